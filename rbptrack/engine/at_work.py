"""Which processes are at work in the folder of an unfinished measurement: a lock for each stretch of its division."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from rbptrack.base.files import make_folder

DIVISION = "division.json"
"""The file that says who measures what; a folder without it holds nothing to measure."""


_MOMENT_SECONDS = 3.0  # that a process waits for another without a word
_LOOK_SECONDS = 1.0  # between two looks whether it has ended


@contextmanager
def locked(path: Path, *, waits: Callable[[], None] | None = None) -> Iterator[bool]:
    """Lock a folder of the outbox, an unfinished measurement or a stretch of one, there or not.

    Args:
        path: the folder; the lock is a file beside it, because another process may remove the folder.
        waits: called where another process holds the lock for more than a moment; it is waited for, for hours if need
            be. None: it is not waited for.

    Yields:
        False where another process holds the lock, and is not waited for.

    """
    file = path.with_name(f"{path.name}.lock")
    lock = FileLock(file)
    patience = 0.0 if waits is None else _MOMENT_SECONDS
    while True:
        try:
            make_folder(path.parent)
            lock.acquire(timeout=patience, poll_interval=_LOOK_SECONDS if patience < 0 else 0.05)
            break
        except FileNotFoundError:  # another process has just removed the folder because it was empty
            continue
        except Timeout:
            if waits is None:
                yield False
                return
            waits()
            patience = -1  # without end
    try:
        yield True
    finally:
        file.unlink(missing_ok=True)
        lock.release()


@contextmanager
def alone(folder: Path, number: int, waits: Callable[[], None]) -> Iterator[bool]:
    """Be the only process at work on a stretch; yield whether work is left, or all was delivered.

    Args:
        folder: of the unfinished measurement.
        number: of the stretch.
        waits: called where another process is at work on it.

    """
    with locked(_stretch(folder, number), waits=waits):
        yield (folder / DIVISION).exists()


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere; not while other processes are at work."""
    with ExitStack() as held:
        for number in range(_stretches(folder)):
            if not held.enter_context(locked(_stretch(folder, number))):
                return  # the last process there removes it, or the next command
        shutil.rmtree(folder, ignore_errors=True)


def _stretch(folder: Path, number: int) -> Path:
    return folder.with_name(f"{folder.name}.shard-{number}")


def _stretches(folder: Path) -> int:
    try:
        return len(json.loads((folder / DIVISION).read_text(encoding="utf-8"))["shards"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: nobody can be at work in it
        return 0
