"""Signals that stop a command: all of them unwind it, so that what it had begun is closed and said."""

from __future__ import annotations

import signal
from typing import NoReturn

_STOPPING = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]

INTERRUPTED = 128 + signal.SIGINT
CODES = (INTERRUPTED, *(128 + number for number in _STOPPING))
"""Exit codes of commands that were stopped: by Ctrl-C, SIGTERM, or SIGHUP (a terminal that was closed)."""


def install() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit, as SIGINT raises KeyboardInterrupt; nohup's ignored SIGHUP stays so."""
    for number in _STOPPING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)
