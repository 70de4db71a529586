"""Turn the signals that end this process into exceptions, and make the process end sooner.

An exception lets the code that is interrupted release its resources and print a message.
"""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPT_EXIT_CODE = 130
"""The exit code of a command that Ctrl-C ended, by the convention of shells."""

_DEFAULT_HANDLERS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

_OBJECTS_BETWEEN_SEARCHES = 50_000  # Python's own number is at most 2,000

_signal_exceptions: list[BaseException] = []  # those that signals have raised, in order


def search_garbage_rarely() -> None:
    """Make Python search its memory for garbage less often, and not at all when the process ends.

    Otherwise these searches would take a third of the processor time of a short command, because imports create many
    objects. Hardly any of these objects becomes garbage.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES, 10, 10)
    atexit.register(_skip_last_search)


def _skip_last_search() -> None:
    """Exclude all objects from the search for garbage at the end of the process.

    This search would also close connections to SQLite files. They are closed here, because an open connection leaves a
    write-ahead log next to its file.
    """
    for candidate in gc.get_objects():
        if type(candidate) is sqlite3.Connection:
            with suppress(sqlite3.Error):  # a connection of another thread cannot be closed here
                candidate.close()
    gc.freeze()


def lift_limits() -> None:
    """Prepare a child process that may abort: it ignores Ctrl-C, prints nothing, and leaves no core file.

    Its limit on address space becomes the hard limit.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(devnull, output)
    with suppress(OSError, ValueError):
        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (hard_limit, hard_limit))


class Stopped(SystemExit):
    """Raised when a signal ends this process. Code that catches the SystemExit of a plugin must not catch this one."""

    code: int


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """While a block runs, let SIGTERM and SIGHUP raise Stopped(128 + number), and SIGINT raise KeyboardInterrupt.

    The exceptions are raised in the main thread. A signal that is already ignored (as under nohup) or handled is left
    as it is. In another thread, this context manager does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [number for number, default in _DEFAULT_HANDLERS.items() if signal.getsignal(number) is default]
    for number in handled:
        signal.signal(number, _raise_for_signal)
    try:
        yield
    except Exception:
        raise_for_last_signal()
        raise
    finally:
        for number in handled:
            signal.signal(number, _DEFAULT_HANDLERS[number])
        if handled:
            _signal_exceptions.clear()


def raise_for_last_signal() -> None:
    """Raise the exception of the last signal again, if a signal has arrived.

    Call this when a library raises an exception. If a signal arrives while a library cleans up, the library may replace
    the exception of the signal by its own. OmegaConf raises an AttributeError, for example.
    """
    if _signal_exceptions:
        raise _signal_exceptions[-1]


def _raise_for_signal(number: int, frame: object) -> None:
    _signal_exceptions.append(KeyboardInterrupt() if number == signal.SIGINT else Stopped(128 + number))
    raise _signal_exceptions[-1]
