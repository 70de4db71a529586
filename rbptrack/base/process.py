"""Turns signals that end this process into exceptions, and shortens the end of the process.

Because of the exceptions, code can release its resources and print a message when a signal arrives.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, by the convention of shells."""

_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

_OBJECTS_BETWEEN_SEARCHES = 50_000  # Python's own number is 700

_raised: list[BaseException] = []  # the exceptions that signals raised in this process


def search_garbage_rarely() -> None:
    """Make Python search its memory for garbage less often, and not at all when the process ends.

    A third of the processor time of a short command would go into these searches: imports make many objects, and
    hardly any of them becomes garbage.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES, 10, 10)
    atexit.register(_leave_memory)


def _leave_memory() -> None:
    """Close databases, because SQLite would leave their logs behind. Exclude all other objects from the last search."""
    for thing in gc.get_objects():
        if type(thing) is sqlite3.Connection:
            with suppress(sqlite3.Error):  # a connection of another thread cannot be closed here
                thing.close()
    gc.freeze()


class Stopped(SystemExit):
    """A signal ends this process. Code that catches a plugin's SystemExit must let this exception pass."""

    code: int


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Stopped(128 + number) in the main thread, as SIGINT raises KeyboardInterrupt.

    A signal that is already ignored (nohup) or handled is left alone. Outside the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) is default]
    for number in changed:
        signal.signal(number, _stop)
    try:
        yield
    except Exception:
        raise_stop()
        raise
    finally:
        for number in changed:
            signal.signal(number, _DEFAULTS[number])
        if changed:
            _raised.clear()


def raise_stop() -> None:
    """Raise the exception of the last signal again, if a signal has arrived.

    A signal may arrive while a library cleans up, and the library may replace its exception. OmegaConf then raises an
    AttributeError.
    """
    if _raised:
        raise _raised[-1]


def _stop(number: int, frame: object) -> None:
    _raised.append(KeyboardInterrupt() if number == signal.SIGINT else Stopped(128 + number))
    raise _raised[-1]
