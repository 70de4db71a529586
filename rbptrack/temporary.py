"""Temporary folders that do not outlive their process: what a killed one left, the next command removes.

Each holds a lock for as long as its process lives, so that a dead one's is known from a living one's, also where a
process number has been given out again or belongs to another container.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_PREFIX = "rbptrack-"
_LOCK = ".rbptrack-alive"
_NEW_SECONDS = 60.0  # a folder of this age without a lock may be one that is being made


class TemporaryFolder:
    """A temporary folder that is removed when nothing refers to it any more.

    Attributes:
        path: the folder.

    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = FileLock(self.path / _LOCK, thread_local=False)
        lock.acquire()
        self.remove = weakref.finalize(self, _remove, self.path, lock)


@contextmanager
def for_this_process() -> Iterator[None]:
    """Let all that this process puts into temporary folders, MLflow's too, lie in one that is removed at its end.

    What dead processes left is removed first.
    """
    if tempfile.gettempdir().rpartition(os.sep)[2].startswith(_PREFIX):  # this process has one
        yield
        return
    clear()
    before, mine = tempfile.tempdir, TemporaryFolder()
    tempfile.tempdir = str(mine.path)
    try:
        yield
    finally:
        tempfile.tempdir = before
        mine.remove()


def clear() -> None:
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
    """Remove a folder whose lock this process holds; the lock goes last, so that what is left of it is found again."""
    for entry in path.glob("*"):
        if entry.name != _LOCK:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    lock.release()
    shutil.rmtree(path, ignore_errors=True)
