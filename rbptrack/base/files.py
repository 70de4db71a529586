"""Files that are there whole or not at all, and on the disk where something relies on them; temporary folders.

What a program wrote, the system keeps in memory for a while: after a power cut it is an empty file. So nothing is
acknowledged (a run FINISHED, a part counted, what it was made from removed) before `sync` has returned for its files
and for the folders that hold their names.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from rbptrack.base.errors import BadInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = "rbptrack-"
_LOCK = ".rbptrack-alive"
_LONGEST_NAME = 255  # bytes of a file's name
_UNFINISHED = re.compile(r".+\.(zip|csv|parquet|html|folder)\.[0-9a-f]{8}\.tmp")
_AT_ONCE = 8  # files that are synced
_NEW_SECONDS = 60.0  # a folder of this age without a lock may be one that is being made


def sync(paths: Iterable[Path]) -> None:
    """Wait until files and folders are on the disk: what a file holds, and which names a folder does.

    Several at once, because the file system writes them together: a dozen take a quarter of the time that they take one
    after the other.

    Raises:
        OSError: the disk does not take them.

    """
    wanted = list(dict.fromkeys(paths))
    if len(wanted) == 1:
        _sync(wanted[0])
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(_sync, wanted))


def _sync(path: Path) -> None:
    try:
        opened = os.open(path, os.O_RDONLY)
    except PermissionError:
        if path.is_dir():  # on Windows a folder cannot be opened
            return
        raise
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync
            raise
    finally:
        os.close(opened)


def sync_tree(folder: Path, *, above: Iterable[Path] = ()) -> None:
    """Sync a folder, all its files, and the given folders above it, as `sync` does a file."""
    sync([folder, *(path for path in folder.rglob("*") if not path.is_symlink()), *above])


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, each of them on the disk; nothing where it is there."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    sync(folder.parent for folder in missing)


def check_replaceable(path: Path) -> None:
    """Refuse to put a file where something else stands than a regular file: a device, a FIFO, a folder, a link.

    Raises:
        BadInput: something else stands there.

    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            kind = "a link" if path.is_symlink() else kind_of(path)
            raise BadInput(f"{path} is {kind}, which is not replaced by a file: give another name")


def kind_of(path: Path) -> str:
    """Say in words which kind of file a path is: `a device`, `a folder`, `a link to x, which is not there`."""
    if path.is_symlink() and not path.exists():
        return f"a link to {path.readlink()}, which is not there"
    mode = path.stat().st_mode
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def put(unfinished: Path, path: Path, *, durable: bool) -> None:
    """Rename a finished file into the place of a regular file, or where nothing is.

    Args:
        unfinished: in the same folder.
        path: its name from now on.
        durable: whether it is on the disk when this returns: for what something relies on after a power cut.

    Raises:
        BadInput: something else than a regular file stands there.
        OSError: the disk is full; the earlier file is unchanged.

    """
    check_replaceable(path)
    if durable:
        sync([unfinished])
    unfinished.replace(path)
    if durable:
        sync([path.parent])


@contextmanager
def unfinished(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a file to be written in the same folder, which becomes `path` when the block ends, and goes where it
    raises.
    """
    other = _beside(path)
    with _held(other) if durable else nullcontext():
        try:
            yield other
            put(other, path, durable=durable)
        finally:
            other.unlink(missing_ok=True)


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to be filled, which becomes `path` when the block ends, and goes where it raises.

    When this returns it is on the disk. There must be nothing at `path`.
    """
    with folder_beside(path) as other:
        yield other
        sync_tree(other)
        other.rename(path)
        sync([path.parent])


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield a folder beside a path, gone when the block ends; `clear_unfinished` removes that of a killed process."""
    other = _beside(path, ".folder")
    other.mkdir()
    with _locked(other):
        try:
            yield other
        finally:
            shutil.rmtree(other, ignore_errors=True)


def _beside(path: Path, kind: str = "") -> Path:
    """Return a name for what becomes `path`, in the same folder."""
    # Not the process's number: two machines that share a folder, or two containers, give the same one.
    ending = f"{kind}.{secrets.token_hex(4)}.tmp"
    kept = os.fsencode(path.name)[: _LONGEST_NAME - len(ending)].decode(errors="ignore")
    return path.with_name(kept + ending)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Make a file that is locked as long as the block and its process last: `clear_unfinished` leaves it alone."""
    path.touch(exist_ok=False)
    with _locked(path):
        yield


@contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock a file or folder; a file system without locks is taken as it is, unless somebody else may hold the lock."""
    if fcntl is None:
        yield
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError) if wait else nullcontext():
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def clear_unfinished(folder: Path) -> None:
    """Remove what processes that were killed left for users (`out.zip.0123abcd.tmp`, `out.folder.0123abcd.tmp`)."""
    for path in folder.glob("*.tmp"):
        kind = _UNFINISHED.fullmatch(path.name)
        is_ours = kind is not None and path.is_dir() == (kind[1] == "folder") and not path.is_symlink()
        if fcntl is None or not is_ours:
            continue
        with suppress(OSError), _locked(path, wait=False):  # one that lives has a lock
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file, or write a new one; several processes may do so at once, and one of them is the last.

    Args:
        path: the file.
        text: all of it.
        durable: see `put`.

    Raises:
        OSError: the folder is not there, or the disk is full; the earlier file is unchanged.

    """
    with unfinished(path, durable=durable) as other:
        other.write_text(text, encoding="utf-8")


class TemporaryFolder:
    """A temporary folder that is removed when nothing refers to it, and by the next process if its own was killed.

    It holds a lock for as long as its process lives, so that a dead one's is known from a living one's, also where a
    process number has been given out again or belongs to another container.

    Attributes:
        path: the folder.

    """

    def __init__(self) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = FileLock(self.path / _LOCK, thread_local=False)
            # Another process that clears up may get the new lock first: then the folder is gone before it is free.
            with suppress(FileNotFoundError):
                lock.acquire()
                break
        self.remove = weakref.finalize(self, _remove, self.path, lock)


@contextmanager
def temporary_files() -> Iterator[None]:
    """Let all that this process puts into temporary folders, MLflow's too, lie in one that is removed at its end.

    What dead processes left is removed first.
    """
    if tempfile.gettempdir().rpartition(os.sep)[2].startswith(_PREFIX):  # this process has one
        yield
        return
    clear_temporary()
    before = tempfile.tempdir
    folder = TemporaryFolder()
    tempfile.tempdir = str(folder.path)
    try:
        yield
    finally:
        tempfile.tempdir = before
        folder.remove()


def clear_temporary() -> None:
    """Remove the temporary folders of processes that have died."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, Timeout):
            if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
                continue
            if (path / _LOCK).exists():
                lock = FileLock(path / _LOCK)
                lock.acquire(timeout=0)
                _remove(path, lock)
            elif time.time() - path.stat().st_mtime > _NEW_SECONDS:
                path.rmdir()  # only if it is empty


def _remove(path: Path, lock: FileLock) -> None:
    """Remove a folder whose lock this process holds; the lock goes last, so that a half-removed folder shows."""
    for entry in path.glob("*"):
        if entry.name != _LOCK:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
    lock.release()
