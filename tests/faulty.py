"""A proxy in front of a tracking server that answers some requests as a bad day would."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.patience import PATIENCE


class Fault(StrEnum):
    """What happens to a request."""

    error = "500"
    unavailable = "503"
    garbage = "garbage"  # 200, and a page of HTML
    nothing = "nothing"  # the connection is closed without an answer
    cut = "cut answer"  # half of the true answer
    lost = "lost answer"  # the server does what is asked, and the answer never arrives


Choose = Callable[[int], Fault | None]


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a port of this machine; a context manager.

    Args:
        target: the server's port.

    Attributes:
        choose: says what happens to the n-th request (from 0) since it was set; None: it is passed on.
        seen: how many requests there were since then; one for /health is not counted.

    """

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.seen, self._lock = target, 0, threading.Lock()
        self.choose: Choose = lambda number: None
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def use(self, choose: Choose) -> None:
        """Count from 0 again, with other faults."""
        with self._lock:
            self.choose, self.seen = choose, 0

    def next_fault(self) -> Fault | None:
        with self._lock:
            number, self.seen = self.seen, self.seen + 1
            return self.choose(number)

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away as they like."""


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = None if self.path == "/health" else self.server.next_fault()
        if fault in (Fault.error, Fault.unavailable):
            return self._answer(int(fault), b"upstream error", {})
        if fault is Fault.garbage:
            return self._answer(200, b"<html><body>Please log in.</body></html>", {"Content-Type": "text/html"})
        if fault is Fault.nothing:
            return self._hang_up()
        try:
            status, content, headers = self._pass_on(body)
        except OSError:  # the server itself is away
            return self._hang_up()
        if fault is Fault.lost:
            return self._hang_up()
        return self._answer(status, content, headers, kept=len(content) // 2 if fault is Fault.cut else None)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _pass_on(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        link = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=PATIENCE)
        try:
            link.request(self.command, self.path, body, dict(self.headers) | {"Connection": "close"})
            answer = link.getresponse()
            unwanted = ("transfer-encoding", "content-length", "connection")
            return answer.status, answer.read(), {k: v for k, v in answer.getheaders() if k.lower() not in unwanted}
        finally:
            link.close()

    def _answer(self, status: int, content: bytes, headers: dict[str, str], *, kept: int | None = None) -> None:
        with suppress(OSError):
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:kept])
                self.wfile.flush()
        if kept is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args: object) -> None:  # type: ignore[override]
        """Nothing is printed."""
