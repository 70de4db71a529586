"""Which processes are at work in the folder of an unfinished measurement: a lock for each stretch of its division."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

DIVISION = "division.json"
"""The file that says who measures what; a folder without it holds nothing to measure."""


_MOMENT_SECONDS = 3.0  # that a process waits for another without a word
_LOOK_SECONDS = 1.0  # between two looks whether it has ended


def patiently(lock: FileLock, waits: Callable[[], None]) -> None:
    """Take a lock that another process may hold for hours.

    Args:
        lock: not held yet.
        waits: called where that takes more than a moment.

    """
    try:
        lock.acquire(timeout=_MOMENT_SECONDS)
    except Timeout:
        waits()
        lock.acquire(poll_interval=_LOOK_SECONDS)


@contextmanager
def alone(folder: Path, number: int, waits: Callable[[], None]) -> Iterator[bool]:
    """Be the only process at work on a stretch; whether there is still something to do, or all was delivered.

    Args:
        folder: of the unfinished measurement.
        number: of the stretch.
        waits: called where another process is at work on it.

    """
    with _locked(folder, number, waits):
        yield (folder / DIVISION).exists()


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere; not while other processes are at work."""
    with ExitStack() as held:
        try:
            for number in range(_stretches(folder)):
                held.enter_context(_locked(folder, number))
        except Timeout:
            return  # whoever ends last there removes it, or the next command
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, number: int, waits: Callable[[], None] | None = None) -> Iterator[None]:
    file = folder.with_name(f"{folder.name}.shard-{number}.lock")  # beside the folder, which another may remove
    lock = FileLock(file)
    if waits is None:
        lock.acquire(timeout=0)
    else:
        patiently(lock, waits)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        lock.release()


def _stretches(folder: Path) -> int:
    try:
        return len(json.loads((folder / DIVISION).read_text(encoding="utf-8"))["shards"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: nobody can be at work in it
        return 0
