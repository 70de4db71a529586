"""Signals that stop a command: all of them unwind it, so that what it had begun is closed and said."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

_STOPPING = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]

INTERRUPTED = 128 + signal.SIGINT
CODES = (INTERRUPTED, *(128 + number for number in _STOPPING))
"""Exit codes of commands that were stopped: by Ctrl-C, SIGTERM, or SIGHUP (a terminal that was closed)."""

_AGAIN_SECONDS = 0.1
_received = 0


def install() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt; what a shell ignores stays ignored.

    An exception that a signal raises inside a destructor or a callback of the garbage collector is dropped by Python;
    such a signal is sent once more.
    """
    for number in _STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _dropped


def received() -> int:
    """The exit code that the signal asks for which stopped this process; 0 if none came."""
    return _received


def again() -> None:
    """Where an error is about to be reported: raise the interrupt instead, if one came.

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
