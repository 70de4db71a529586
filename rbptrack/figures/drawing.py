"""Draws Vega-Lite charts as SVG, PNG or PDF in a child process.

vl-convert uses the JavaScript engine V8, which reserves about 70 GB of address space. V8 aborts the process in which it
runs if this space is not available (for example under `ulimit -v`), or if the kernel forbids executable memory. No
`except` can catch this. A child process therefore draws all pictures. It starts with the first picture, and ends after
a minute without a request.
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
"""The most seconds that one picture may take."""


class CannotDraw(RbptrackError):
    """A picture cannot be drawn. Callers report this and continue without the picture."""


def draw(function: str, **arguments: Any) -> bytes:
    """Call a function of vl-convert in the child process, and return the bytes of the picture.

    Args:
        function: the name of the function, such as `vegalite_to_svg`.
        arguments: the arguments of the function. They must be convertible to JSON.

    Raises:
        CannotDraw: vl-convert rejects the chart, takes longer than `MAX_SECONDS`, or cannot run on this machine.

    """
    return _drawer(os.getpid()).draw(json.dumps([function, arguments], default=str).encode())


class _Drawer:
    """The child process that draws, and the connection to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._has_drawn = False
        self._machine_problem = ""  # why no picture can be drawn on this machine; empty if no reason is known

    def draw(self, request: bytes) -> bytes:
        """Send a request to the child process, and return the bytes of the picture. Raises CannotDraw."""
        with self._lock:
            if self._machine_problem:
                raise CannotDraw(self._machine_problem)
            # If the process had ended because it was idle, the first reply is empty. The second call starts a new one.
            reply = self._exchange(request) or self._exchange(request)
            if not reply:
                raise CannotDraw("vl-convert ended without a picture")
            self._has_drawn = True
        if reply.startswith(drawing_process.REFUSED):
            reason = reply.removeprefix(drawing_process.REFUSED).decode()
            raise CannotDraw(f"vl-convert cannot draw this chart ({reason})")
        return reply.removeprefix(drawing_process.DRAWN)

    def close(self) -> None:
        """End the child process."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None

    def _exchange(self, request: bytes) -> bytes:
        """Send a request and return the reply. It is empty if the process had ended because it was idle."""
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
            problem = _exit_reason(code)
            if not self._has_drawn:  # the machine is the cause, not the chart
                self._machine_problem = problem
            raise CannotDraw(problem) from None
        except BaseException:  # after Ctrl-C, the late reply must not be taken for the reply to the next request
            self.close()
            raise

    def _start(self) -> None:
        parent_end, child_end = Pipe()
        with child_end:
            command = [sys.executable, "-P", str(Path(drawing_process.__file__)), str(child_end.fileno())]
            devnull = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(
                    command, pass_fds=[child_end.fileno()], stdin=devnull, stdout=devnull, stderr=devnull
                )
            except OSError as error:
                parent_end.close()
                raise CannotDraw(f"the process that draws cannot be started: {error.strerror}") from error
        self._connection = parent_end


@functools.cache
def _drawer(pid: int) -> _Drawer:
    """Return the drawer of the process with this ID. A forked process gets its own drawer."""
    drawer = _Drawer()
    atexit.register(lambda: drawer.close() if os.getpid() == pid else None)
    return drawer


def _exit_reason(code: int) -> str:
    """Say why the child process ended. A negative exit code is the number of the signal that killed it."""
    if code > 0:
        return f"vl-convert ended with exit code {code}"
    name = signal.Signals(-code).name
    return (
        f"V8, which draws pictures, was ended by {name}. It needs 70 GB of address space, and permission to "
        "run code in memory. Raise the limit on virtual memory (ulimit -v), or draw the figures on another machine"
    )
