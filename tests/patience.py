"""Waiting for the thing itself, on machines that may be ten times slower than ours and busy besides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil
import pytest

PATIENCE = 1800  # seconds after which something hangs; a test that passes never waits for it


def until(ready: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
    """Wait until something is so; fails where it does not come to be."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"no {what} in {seconds:.0f} s"
        time.sleep(0.05)


def lives(process: int | psutil.Process) -> bool:
    """Whether a process runs: one that has ended and that nobody waited for does not."""
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(process) if isinstance(process, int) else process
        return one.is_running() and one.status() != psutil.STATUS_ZOMBIE
    return False


def until_they_end(processes: Iterable[int | psutil.Process]) -> None:
    """Wait until none of some processes lives."""
    left = list(processes)
    until(lambda: not any(map(lives, left)), f"end of {left}")


def at_first_part(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> threading.Event:
    """Let something happen once, when a measurement of this process has written its first part; set once it has."""
    from rbptrack.engine.parts import Block  # which imports torch

    write, happened, lock = Block.write, threading.Event(), threading.Lock()

    def written(*arguments: object, **options: object) -> object:
        table = write(*arguments, **options)  # type: ignore[arg-type]
        with lock:
            if not happened.is_set():
                action()
                happened.set()
        return table

    monkeypatch.setattr(Block, "write", written)
    return happened
