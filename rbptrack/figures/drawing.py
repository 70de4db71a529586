"""Draws Vega-Lite charts as SVG, PNG or PDF in a process of its own.

vl-convert runs V8. V8 reserves about 70 GB of addresses, and aborts its whole process if it does not get them (as under
`ulimit -v`) or if the kernel forbids executable memory. No `except` can catch this. One child process therefore draws
all pictures of this process. It starts with the first picture, and ends when it has nothing to draw for a while.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rbptrack.base.errors import RbptrackError
from rbptrack.figures import drawing_process

MAX_SECONDS = 300.0
"""Seconds that one picture may take."""


class CannotDraw(RbptrackError):
    """A picture cannot be drawn. Nothing else depends on pictures: say so, and go on."""


def draw(function: str, **arguments: Any) -> bytes:
    """Call a function of vl-convert in the process that draws.

    Args:
        function: its name, such as `vegalite_to_svg`.
        arguments: JSON can hold them.

    Raises:
        CannotDraw: vl-convert refuses the chart, takes too long, or cannot run on this machine.

    """
    return _drawer(os.getpid()).draw(json.dumps([function, arguments], default=str).encode())


class _Drawer:
    """The process that draws, and the way to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._has_drawn = False
        self._broken = ""  # why no picture can be drawn at all

    def draw(self, request: bytes) -> bytes:
        """The bytes of a picture."""
        with self._lock:
            if self._broken:
                raise CannotDraw(self._broken)
            reply = self._answer(request) or self._answer(request)  # the process had ended because it was idle
            if not reply:
                raise CannotDraw("vl-convert ended without a picture")
            self._has_drawn = True
        if reply.startswith(drawing_process.REFUSED):
            reason = reply.removeprefix(drawing_process.REFUSED).decode()
            raise CannotDraw(f"vl-convert cannot draw this chart ({reason})")
        return reply.removeprefix(drawing_process.DRAWN)

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _answer(self, request: bytes) -> bytes:
        """What the process answers; empty if it ended by itself because it was idle."""
        if self._connection is None:
            self._start()
        connection = self._connection
        process = self._process
        assert connection is not None  # noqa: S101 - for mypy
        assert process is not None  # noqa: S101 - for mypy
        try:
            connection.send_bytes(request)
            if not connection.poll(MAX_SECONDS):
                self.close()
                raise CannotDraw(f"vl-convert takes more than {MAX_SECONDS:.0f} s")
            return connection.recv_bytes()
        except (EOFError, ConnectionError):
            code = process.wait()
            self.close()
            if code == 0:
                return b""
            problem = _why_it_ended(code)
            if not self._has_drawn:  # it is this machine, and not this chart
                self._broken = problem
            raise CannotDraw(problem) from None
        except BaseException:  # Ctrl-C: the answer that still comes is not that to the next request
            self.close()
            raise

    def _start(self) -> None:
        ours, theirs = Pipe()
        with theirs:
            words = [sys.executable, "-P", str(Path(drawing_process.__file__)), str(theirs.fileno())]
            silent = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(
                    words, pass_fds=[theirs.fileno()], stdin=silent, stdout=silent, stderr=silent
                )
            except OSError as error:
                ours.close()
                raise CannotDraw(f"no process can be started that draws: {error.strerror}") from error
        self._connection = ours


@functools.cache
def _drawer(pid: int) -> _Drawer:
    """The drawer of this process. A forked process gets one of its own."""
    drawer = _Drawer()
    atexit.register(lambda: drawer.close() if os.getpid() == pid else None)
    return drawer


def _why_it_ended(code: int) -> str:
    if code > 0:
        return f"vl-convert ended with exit code {code}"
    name = signal.Signals(-code).name
    return (
        f"V8, which draws pictures, was ended by {name}. It needs 70 GB of addresses and executable memory: "
        "raise the limit on virtual memory (ulimit -v), or draw the figures on another machine"
    )
