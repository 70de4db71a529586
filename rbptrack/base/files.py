"""Write files completely or not at all, and wait until they are on the disk.

The operating system keeps written data in memory for a while. A power cut in this time may leave an empty file.
Therefore rbptrack syncs files, and the folders that hold their names, before it relies on them: before it marks a run
FINISHED, counts a block as measured, or removes the original of a copy.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rbptrack.base.errors import BadInput

_MAX_SMALL_BYTES = 16 * 2**20
"""The largest size, in bytes, of a file that `read_small` reads."""


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk. Raises OSError if this fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Sync a folder, everything in it, and the folder's name in its parent."""
    for path in sorted(folder.rglob("*")):
        if not path.is_symlink():
            sync(path)
    sync(folder)
    sync(folder.parent)


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` when the block ends.

    If the block raises an exception, the temporary file is deleted and `path` stays as it is. Otherwise the new file is
    on the disk when the block ends, with the permissions `mode`; by default those of the file that it replaces. Raises
    BadInput if `path` is a link, a folder or a device, or if no file can be created in its folder.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BadInput(f"{path} is {describe_kind(path)}: only a file can be replaced. Give another name")
    if mode is None:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    try:
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise
        # The folder exists, but cannot hold files. An example is /proc.
        raise BadInput(f"no file can be created in the folder {path.parent}: give another one") from error
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)  # because mkstemp makes files that only their owner can read
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Write or replace a file, completely or not at all. It is on the disk when the function returns.

    The file gets the permissions `mode`. By default, it has those of the file that it replaces.

    Raises:
        BadInput: `path` is a link, a folder or a device, or no file can be created in its folder.
        OSError: the folder does not exist, or the disk is full. An existing file is unchanged.

    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, mode) as temporary:
        temporary.write_bytes(data)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading. Opening a FIFO would wait for a writer for ever.

    Raises BadInput if the path is not a regular file, and OSError if it cannot be opened.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EOPNOTSUPP):  # a socket, or a device that does not exist
            raise
        raise BadInput(f"{path} is {describe_kind(path)}, not a file") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput(f"{path} is {describe_kind(path)}, not a file")
    return file


def read_regular(path: Path) -> bytes:
    """Return the content of a file. Raises BadInput if it is not a regular file, and OSError if it cannot be read."""
    with open_regular(path) as file:
        return file.read()


def sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content. Raises BadInput if the path is not a regular file."""
    import hashlib  # it loads OpenSSL, which would delay --help

    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_regular_file(path: Path, option: str) -> Path:
    """Check that a path from a user is a regular file, and return it. Reading a FIFO or /dev/zero would never end.

    Raises BadInput if it is not. The message names the option that gives the path, such as `dataset.files`.
    """
    try:
        if path.is_file():
            return path
        if not os.path.lexists(path):
            raise BadInput(f"{option}: there is no file {path}")
    except (OSError, ValueError) as error:  # too long, a loop of links, a zero byte
        raise BadInput(f"{option}: {str(path)[:100]!r} is not a path of a file") from error
    raise BadInput(f"{option}: {path} is {describe_kind(path)}, not a file")


def read_small(path: Path, option: str) -> str:
    """Read a text file of at most 16 MiB that an option names.

    Raises BadInput if the path is not a regular file, or if the file is too large, cannot be read, or is not UTF-8.
    """
    check_regular_file(path, option)
    size = path.stat().st_size
    if size > _MAX_SMALL_BYTES:
        raise BadInput(f"{option}: {path} has {size:,} bytes; at most {_MAX_SMALL_BYTES:,} are allowed")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{option}: {path} is not UTF-8 text (byte {error.start:,}): save it as UTF-8") from error
    except OSError as error:
        raise BadInput(f"{option}: {path} cannot be read: {error.strerror}") from error


def describe_kind(path: Path) -> str:
    """Describe the kind of an existing path: `a folder`, `a FIFO`, `a link to x`."""
    if path.is_symlink():
        return f"a link to {path.readlink()}"
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(path.stat().st_mode), "a device")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
