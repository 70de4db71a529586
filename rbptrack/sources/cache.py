"""Files that can be made again, in the user's cache folder: selections of hub datasets and tokenised corpora."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from platformdirs import user_cache_path

T = TypeVar("T")


def folder() -> Path:
    """Where cached files are kept: RBPTRACK_CACHE, else the system's place for caches."""
    return Path(os.environ.get("RBPTRACK_CACHE") or user_cache_path("rbptrack")).absolute()


def cached(name: str, *, make: Callable[[], T], write: Callable[[T, Path], None], read: Callable[[Path], T]) -> T:
    """What the cache holds under a name, made and written there first if it lacks it.

    Safe for several processes at once: one makes, the others wait for it. A file is there whole or not at all; one that
    cannot be read is made again. Where the cache cannot be written (a full disk, no permission) things work without.

    Args:
        name: path below the cache folder; it must change with everything that the content depends on.
        make: the slow way to the value.
        write: writes the value to a path.
        read: reads what `write` wrote; OSError or ValueError if it is damaged.

    """
    path = folder() / name
    if (found := _read(path, read)) is not None:
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(path.name + ".lock"))
        lock.acquire()
    except OSError:
        return make()
    try:
        if (found := _read(path, read)) is not None:
            return found
        value = make()
        unfinished = path.with_name(path.name + ".tmp")
        try:
            write(value, unfinished)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
        return value
    finally:
        lock.release()


def _read(path: Path, read: Callable[[Path], T]) -> T | None:
    try:
        return read(path) if path.exists() else None
    except (OSError, ValueError):
        return None


def remember(name: str, text: str) -> None:
    """Keep a line of text under a name, in place of what was there; where the cache cannot be written, don't."""
    path = folder() / name
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)


def recall(name: str) -> str | None:
    """What was remembered under a name."""
    path = folder() / name
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def contents() -> dict[str, tuple[int, int]]:
    """Number of files and their bytes, by kind (the folders below the cache folder)."""
    found: dict[str, tuple[int, int]] = {}
    for kind in sorted(p for p in folder().glob("*") if p.is_dir()):
        sizes = [p.stat().st_size for p in kind.rglob("*") if p.is_file() and p.suffix not in (".lock", ".tmp")]
        found[kind.name] = (len(sizes), sum(sizes))
    return found


def clear() -> None:
    """Remove everything; it is made again where it is needed."""
    shutil.rmtree(folder(), ignore_errors=True)
