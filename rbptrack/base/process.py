"""The running process: the signals that stop it, its cores, what its garbage collection need not look at.

Signals unwind a command, so that what it had begun is closed and said.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STOPPING = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]

INTERRUPTED = 128 + signal.SIGINT
READER_GONE = 141  # 128 + SIGPIPE, which Windows has not
_AGAIN_SECONDS = 0.1
_CGROUPS = Path("/sys/fs/cgroup")
_received = 0


def install_signals(*more: int) -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt; what a shell ignores stays ignored.

    An exception that a signal raises inside a destructor or a callback of the garbage collector is dropped by Python;
    such a signal is sent once more.

    Args:
        *more: further signals that are to raise SystemExit.

    """
    for number in (*_STOPPING, *more):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _dropped


def stop_code() -> int:
    """Return the exit code that the signal asks for which stopped this process; 0 if none came."""
    return _received


def raise_if_stopped() -> None:
    """Raise the interrupt instead of reporting an error, if one came.

    Libraries turn an interrupt into an error of their own when it meets their clean-up.
    """
    if _received:
        raise _exception(_received)


def _stop(number: int, frame: object) -> None:
    global _received
    _received = 128 + number
    raise _exception(_received)


def _exception(code: int) -> BaseException:
    return KeyboardInterrupt() if code == INTERRUPTED else SystemExit(code)


def _dropped(unraisable: Any) -> None:
    error = unraisable.exc_value
    if not _received or not isinstance(error, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)
        return
    timer = threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), _received - 128))
    timer.daemon = True
    timer.start()


def cores() -> int:
    """Return the cores that this process may use: those that it is bound to, and no more than its container's share."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min((bound, *_container_cores())))


def _container_cores() -> Iterator[int]:
    """Yield the cores' worth of time that control groups allow, version 2 and 1, where they limit it; rounded up."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((_CGROUPS / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        if quota.isdecimal() and int(quota):  # "max" and -1 are no limit
            yield -(-int(quota) // int(period))


def collect_rarely() -> None:
    """Look for garbage every 50,000 new objects instead of every 700: importing modules makes none."""
    gc.set_threshold(50_000, 10, 10)


def leave_out_what_is_loaded(*, every: int = 700) -> None:
    """Leave every existing object out of garbage collection, until the process ends.

    Modules hold hundreds of thousands of objects until the end. Collections take less time without
    them, and come sooner: Python waits for a quarter as many new objects as old ones.

    Args:
        every: how many new objects let Python look for garbage among the newest; its own default.

    """
    gc.set_threshold(every, 10, 10)
    gc.collect()
    gc.freeze()
    gc.collect()  # counts the old objects
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # else extension modules complain of objects that nobody freed
