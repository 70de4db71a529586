"""Which processes are at work in the folder of an unfinished measurement: a lock for each stretch of its division."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

DIVISION = "division.json"
"""The file that says who measures what; a folder without it holds nothing to measure."""


@contextmanager
def alone(folder: Path, number: int) -> Iterator[bool]:
    """Be the only process at work on a stretch; whether there is still something to do, or all was delivered."""
    with _locked(folder, number, wait=-1):
        yield (folder / DIVISION).exists()


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere; not while other processes are at work."""
    with ExitStack() as held:
        try:
            for number in range(_stretches(folder)):
                held.enter_context(_locked(folder, number, wait=0))
        except Timeout:
            return  # whoever ends last there removes it, or the next command
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path, number: int, *, wait: float) -> Iterator[None]:
    lock = folder.with_name(f"{folder.name}.shard-{number}.lock")  # beside the folder, which another may remove
    with FileLock(lock, timeout=wait):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _stretches(folder: Path) -> int:
    try:
        return len(json.loads((folder / DIVISION).read_text(encoding="utf-8"))["shards"])
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: nobody can be at work in it
        return 0
