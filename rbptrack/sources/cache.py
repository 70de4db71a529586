"""Files that can be made again, in the user's cache folder: documents of hub datasets, tokenised corpora, artifacts.

Each file that is read here ends with the SHA-256 of what stands before it, so that a damaged one is made again and
never read. Artifacts of a remote tracking store are kept as they are; those used longest ago make room for others.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from filelock import FileLock
from platformdirs import user_cache_path

from rbptrack.base.errors import BadInput
from rbptrack.base.files import put

T = TypeVar("T")

_MARKER = ".rbptrack-cache"
_MARKED = "rbptrack keeps files in this folder that it can make again; `python -m rbptrack cache clear` removes them.\n"
# Cached files, by folder, with the names of its files. Nothing else is ever removed.
_NAMES = {
    "documents": re.compile(r"[0-9a-f]{64}\.parquet"),
    "tokens": re.compile(r"[0-9a-f]{64}\.parquet"),
    "plugins": re.compile("[0-9a-f]{8}"),
    "analyses": re.compile("[0-9a-f]{64}"),
    "fits": re.compile("[0-9a-f]{64}"),
    "commits": re.compile(r"(models|datasets)--.+@.+"),
    "artifacts": re.compile(r"[0-9a-f]{64}(\.(?!lock$)\w{1,16})?"),
}
_DEAD_SECONDS = 86_400.0  # nothing takes so long to fetch
_ARTIFACT_BYTES = 5_000_000_000
_DIGEST_BYTES = hashlib.sha256().digest_size


def folder() -> Path:
    """Return the folder of cached files: RBPTRACK_CACHE, else the system's place for caches."""
    return Path(os.environ.get("RBPTRACK_CACHE") or user_cache_path("rbptrack")).absolute()


def cached(name: str, *, make: Callable[[], T], write: Callable[[T, Path], None], read: Callable[[memoryview], T]) -> T:
    """Return the cached value under a name; make it and write it first if the cache lacks it.

    Several processes may ask at once: one makes it, the others wait. A file is there whole or not at all, and a damaged
    one is made again. Where the cache cannot be written (a full disk, no permission), the value is made each time.

    Args:
        name: path below the cache folder, `kind/name`; it must change with everything that the content depends on.
        make: the slow way to the value.
        write: writes the value to a path.
        read: reads the bytes that `write` wrote; OSError or ValueError where they cannot be read.

    """
    path = folder() / name
    if (kept := _read(path, read)) is not None:
        return kept
    try:
        _prepare(path.parent)
        lock = FileLock(path.with_name(path.name + ".lock"))
        lock.acquire()
    except OSError:
        return make()
    try:
        if (kept := _read(path, read)) is not None:
            return kept
        value = make()
        unfinished = path.with_name(path.name + ".tmp")
        try:
            write(value, unfinished)
            with unfinished.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            with unfinished.open("ab") as file:
                file.write(digest)
            put(unfinished, path, durable=False)
        except (OSError, BadInput):
            unfinished.unlink(missing_ok=True)
        return value
    finally:
        lock.release()


def fetched(address: str, fetch: Callable[[Path], Path]) -> Path:
    """Return a file that is elsewhere and never changes there: a local copy, fetched once for all processes.

    The copies together stay below RBPTRACK_CACHE_BYTES (5 GB if it is not set); where they exceed it, those that were
    used longest ago are removed. A copy may be removed by another process once this one has not used it for long.

    Args:
        address: says what it is; its suffix becomes the copy's.
        fetch: fetches it into a folder and returns its path there.

    Raises:
        OSError: the cache cannot be written.

    """
    kind = folder() / "artifacts"
    path = kind / (hashlib.sha256(address.encode()).hexdigest() + Path(address).suffix[:17])
    if not _use(path):
        _prepare(kind)
        with FileLock(path.with_name(f"{path.name}.lock")):
            if not _use(path):
                with TemporaryDirectory(dir=kind, prefix="fetching-") as place:
                    put(fetch(Path(place)), path, durable=False)
        _make_room(kind, keep=path)
    return path


def forget(path: Path) -> bool:
    """Remove a file that `fetched` returned, and that turned out damaged or gone; False if it is not one of these."""
    is_cached_artifact = path.parent == folder() / "artifacts"
    if is_cached_artifact:
        path.unlink(missing_ok=True)
    return is_cached_artifact


def _use(path: Path) -> bool:
    """Return whether a file is there; it was used just now then."""
    try:
        os.utime(path)
    except OSError:
        return False
    return True


def _make_room(kind: Path, *, keep: Path) -> None:
    """Remove the files that were used longest ago until the others fit, and what interrupted processes left."""
    for left in kind.glob("fetching-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _DEAD_SECONDS:
                shutil.rmtree(left)
    room = int(os.environ.get("RBPTRACK_CACHE_BYTES") or _ARTIFACT_BYTES) - keep.stat().st_size
    for path in sorted(_files("artifacts"), key=lambda p: p.stat().st_mtime, reverse=True):
        room -= path.stat().st_size if path != keep else 0
        if room < 0 and path != keep:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)


def _prepare(kind: Path) -> None:
    """Make a folder of the cache, and mark the cache as ours."""
    kind.mkdir(parents=True, exist_ok=True)
    marker = kind.parent / _MARKER
    if not marker.exists():
        marker.write_text(_MARKED, encoding="utf-8")


def _read(path: Path, read: Callable[[memoryview], T]) -> T | None:
    try:
        return read(_verified(path)) if path.exists() else None
    except (OSError, ValueError):
        return None


def _verified(path: Path) -> memoryview:
    """Return the content of a cached file; ValueError if it has changed since it was written."""
    content = memoryview(path.read_bytes())
    content, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"{path} is damaged")
    return content


def remember(name: str, text: str) -> None:
    """Keep a line of text under a name, replacing an earlier one; do nothing if the cache cannot be written."""
    path = folder() / name
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with suppress(OSError, BadInput):
        _prepare(path.parent)
        content = text.encode()
        unfinished.write_bytes(content + hashlib.sha256(content).digest())
        put(unfinished, path, durable=False)


def recall(name: str) -> str | None:
    """Return the text that `remember` kept under a name; None if it is missing or damaged."""
    return _read(folder() / name, lambda content: str(content, "utf-8"))


def contents() -> dict[str, tuple[int, int]]:
    """Return number of files and their bytes, by kind (the folders below the cache folder)."""
    kinds = {}
    for kind in sorted(_NAMES):
        sizes = [path.stat().st_size for path in _files(kind)]
        if sizes:
            kinds[kind] = (len(sizes), sum(sizes))
    return kinds


def _files(kind: str) -> list[Path]:
    """Return the files of a kind, without what belongs to somebody else."""
    return [path for path in (folder() / kind).glob("*") if _NAMES[kind].fullmatch(path.name) and path.suffix != ".tmp"]


def clear() -> bool:
    """Remove what this module wrote, and nothing else; it is made again where it is needed.

    Whatever folder RBPTRACK_CACHE names: files are removed only where this module has left its marker, and only those
    with names that it gives; folders only where they are empty then.

    Returns:
        Whether the cache existed.

    """
    marker = folder() / _MARKER
    if not marker.is_file():
        return False
    for kind, names in _NAMES.items():
        for path in (folder() / kind).glob("*"):
            if names.fullmatch(re.sub(r"(\.lock|(\.\d+)?\.tmp)$", "", path.name)) and path.is_file():
                path.unlink(missing_ok=True)
            elif kind == "artifacts" and path.name.startswith("fetching-") and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # not there, or it holds other files
            (folder() / kind).rmdir()
    marker.unlink()
    with suppress(OSError):
        folder().rmdir()
    return True
