"""Tests of answers that no MLflow server should give. Each must end in an error for the user, and none may hang."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway
from rbptrack.tracking import Store
from rbptrack.tracking import connection as connection_module

EXPERIMENT = {"experiment": {"experiment_id": "1", "name": "rbptrack", "lifecycle_stage": "active"}}
RUN = {"info": {"run_id": "a" * 32, "experiment_id": "1", "status": "FINISHED", "start_time": 1}}


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[Store]:
    """Yield the store of a server that answers every request by a function."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer(self)

        do_POST = do_GET  # noqa: N815 - the name of http.server

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        try:
            yield Store(f"http://127.0.0.1:{running.server_port}")
        finally:
            running.shutdown()
            thread.join()


def send(handler: BaseHTTPRequestHandler, content: str, *, status: int = 200, retry_after: str = "") -> None:
    body = content.encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    if retry_after:
        handler.send_header("Retry-After", retry_after)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize(
    "content",
    [
        "null",
        "{",
        '{"experiment": 1}',
        '{"experiment": {"experiment_id": [1]}}',
        '{"experiment": {"tags": {"a": 1}}}',
        '{"experiment": {"lifecycle_stage": 5}}',
        '{"runs": 5}',
    ],
)
def test_malformed_answer_of_a_server_is_an_error_for_the_user(content: str) -> None:
    with server(lambda handler: send(handler, content)) as store, pytest.raises(RbptrackError):
        store.runs()


def test_server_that_sends_one_page_for_ever_is_away() -> None:
    page = json.dumps({"runs": [RUN], "next_page_token": "more"})

    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, json.dumps(EXPERIMENT) if "get-by-name" in handler.path else page)

    with server(answer) as store, pytest.raises(StoreAway):
        list(store.measurements.search(""))


def test_server_that_asks_to_wait_for_an_hour_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
    busy = server(lambda handler: send(handler, "", status=429, retry_after="3600"))
    with busy as store, pytest.raises(StoreAway):
        store.runs()


def test_server_whose_answer_never_ends_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_MAX_CALL_SECONDS", 0.1)
    ended = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "10")
        handler.end_headers()
        ended.wait()

    with server(answer) as store:
        try:
            with pytest.raises(StoreAway):
                store.runs()
        finally:
            ended.set()


def test_address_with_half_a_bracket_is_refused() -> None:
    with pytest.raises(BadInput):
        Store("http://[::1").runs()
