"""Signals that stop this process unwind it, so that what it had begun is closed and said."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, as shells have it."""

_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}

_raised: list[BaseException] = []  # what the signals raised in this process


class Stopped(SystemExit):
    """A signal ends this process: no guard against a plugin's own SystemExit may take it for one."""

    code: int


@contextmanager
def stop_signals_raise() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Stopped(128 + number) in the main thread, as SIGINT raises KeyboardInterrupt.

    A signal that is ignored (nohup) or handled already stays so. Nothing outside the main thread.
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
    """Raise once more what a signal raised, if one came: another error took its place.

    It may come while a library cleans up after itself: OmegaConf then raises an AttributeError of its own.
    """
    if _raised:
        raise _raised[-1]


def _stop(number: int, frame: object) -> None:
    _raised.append(KeyboardInterrupt() if number == signal.SIGINT else Stopped(128 + number))
    raise _raised[-1]
