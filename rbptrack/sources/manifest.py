"""Manifests: the local files that loaders may open, with their sizes, times and hashes.

A measurement is named by the hash of its files, and it reads them minutes or hours after they were hashed. A manifest
makes sure that both are the same files. Loaders open only what a manifest lists. Before and after they read, the files
are compared with the manifest.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rbptrack.base.errors import BadInput
from rbptrack.base.files import check_regular_file, open_regular

_UNSETTLED = (0, 0)
_SETTLING_NS = 2 * 10**9  # the coarsest times of common file systems


@dataclass(frozen=True)
class ManifestFile:
    """One local file, as it was when it was hashed.

    Attributes:
        name: the file's name, relative to the folder that is loaded; for a single file its own name.
        path: the absolute path.
        size: the number of bytes.
        times: when the content and the inode were last changed, in nanoseconds since 1970. Both are 0 if the file was
            written less than two seconds before it was hashed, because a later write could have the same times.
        sha256: the hash of the content, in hexadecimal digits.

    """

    name: str
    path: Path
    size: int
    times: tuple[int, int]
    sha256: str


def pin_file(path: Path, option: str, name: str = "") -> ManifestFile:
    """Hash a file, and return its entry in a manifest.

    Args:
        path: the path of the file.
        option: the option that names the file or its folder, for messages.
        name: the name of the file in the folder; default: the last part of the path.

    Raises:
        BadInput: the path is not a regular file, cannot be read, or changes while it is read.

    """
    check_regular_file(path, option)
    began = time.time_ns()
    try:
        with open_regular(path) as file:
            before = os.fstat(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = os.fstat(file.fileno())
    except OSError as error:
        raise BadInput(f"{option}: {path} cannot be read: {error.strerror}") from error
    if (before.st_size, _times(before)) != (after.st_size, _times(after)):
        raise BadInput(f"{option}: {path} is being written. Try again when it is complete")
    times = _times(after) if max(_times(after)) < began - _SETTLING_NS else _UNSETTLED
    return ManifestFile(name or path.name, path.absolute(), after.st_size, times, digest)


def check_inside(name: str, source: str) -> None:
    """Check that a name, which a file of a model or dataset gives, is that of a visible file in the same folder.

    Raises BadInput if the name is absolute, leaves the folder, or is hidden. The message says which file gives it.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith(("/", "~")) or "\\" in name or "\0" in name or "://" in name:
        problem = "is not the name of a file in its folder"
    elif ".." in parts:
        problem = "leaves its folder"
    elif any(part.startswith(".") for part in parts):
        problem = "is hidden"
    else:
        return
    raise BadInput(f"{source} names {name[:100]!r}, which {problem}. Only visible files of the folder itself are read")


def content_hash(files: Sequence[ManifestFile]) -> str:
    """Return `sha256:` and the hash of the names and contents of files, in order. Their place does not matter."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(os.fsencode(f"{file.name}\0{file.sha256}\n"))  # a name may hold bytes that are not UTF-8
    return f"sha256:{digest.hexdigest()}"


def check_unchanged(files: Sequence[ManifestFile]) -> list[tuple[int, ...]]:
    """Check that files have not changed since they were hashed. Files whose size and times are the same are not read.

    Returns the inode and the times of each file. Raises BadInput if a file has other content, or does not exist any
    more.
    """
    return [_check_file(file) for file in files]


def _check_file(file: ManifestFile) -> tuple[int, ...]:
    with suppress(OSError, BadInput):
        status = file.path.stat()
        has_same_times = (status.st_size, _times(status)) == (file.size, file.times)
        if has_same_times or (status.st_size == file.size and pin_file(file.path, "").sha256 == file.sha256):
            return status.st_dev, status.st_ino, *_times(status)
    raise BadInput(f"{file.path} has changed since it was hashed. Start the command again")


@contextmanager
def reading(files: Sequence[ManifestFile]) -> Iterator[None]:
    """Check before and after a block, in which files are read, that they have not changed.

    A file that was written while the block ran has changed, even if it has its content again when the block ends. If
    the block fails, a change is reported instead of its error, because the change is the likely cause. Raises BadInput
    if a file has changed.
    """
    before = check_unchanged(files)
    try:
        yield
    except Exception:
        check_unchanged(files)
        raise
    for file, earlier, later in zip(files, before, check_unchanged(files), strict=True):
        if earlier != later:
            raise BadInput(f"{file.path} has changed while it was read. Start the command again")


@functools.cache
def linked_folder(files: tuple[ManifestFile, ...]) -> Path:
    """Return a temporary folder that holds a link to each file of a manifest, under its name, and nothing else.

    A loader that is given this folder cannot open any other file. The folder is removed when the process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="files-", dir=_folder_of_links()))
    for file in files:
        link = folder / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.path)
    return folder


@functools.cache
def _folder_of_links() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="rbptrack-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _times(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns
