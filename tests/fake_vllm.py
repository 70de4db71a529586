"""An HTTP server that answers like vLLM, with the logits of a function in this process, and with faults on demand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import torch
from torch import Tensor

Logits = Callable[[list[int]], Tensor]
"""A function that returns the logits (tokens, vocabulary) of some token ids: the prediction after each token."""


@dataclass
class FakeVllm:
    """A server that answers prompts like vLLM. The attributes may be changed while it runs.

    Attributes:
        logits: computes logits.
        name: the name of its only model.
        root: the folder or repository of the model.
        parent: the model that the model is an adapter of.
        version: the version of vLLM that it claims.
        max_model_len: the largest number of tokens of a prompt, plus one.
        head_dtype: the precision to which it rounds logits.
        key: the key that it demands; empty for none.
        max_logprobs: the largest number of entries of a token that it returns.
        faults: what happens to the next prompts: a status, "drop" (the connection is closed), "slow" (the answer
            takes `slow_seconds`), "garbled" (the answer cannot be decompressed), or a function that changes the
            answer. Empty if they are answered.
        prompts: the prompts that were answered.
        connections: the number of connections that were opened.
        port: the port; 0 to choose one.

    """

    logits: Logits
    name: str = "model"
    root: str = "org/model"
    parent: str | None = None
    version: str = "0.32.0"
    max_model_len: int = 101
    head_dtype: torch.dtype = torch.float32
    key: str = ""
    max_logprobs: int = 20
    configuration: str | None = "vllm-0.32.0-0a1b2c3d"
    slow_seconds: float = 2.0
    faults: list[Any] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server. After `stop`, it starts again on the same port."""
        fake = self

        class Handler(_Handler):
            server_of = fake

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the server, and close its connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in self._server.open_connections:
            connection.close()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return vLLM's response to a completion of a prompt."""
        ids = body["prompt"]
        self.prompts.append(ids)
        rounded = self.logits(ids).to(self.head_dtype).float()
        logprobs = torch.log_softmax(rounded, dim=-1)
        entries: list[Any] = [None]
        for position in range(1, len(ids)):
            row = logprobs[position - 1]
            shown = [ids[position], *row.topk(body["prompt_logprobs"]).indices.tolist()]
            entries.append(
                {
                    str(token): {
                        "logprob": max(float(row[token]), -9999.0),
                        "rank": int((row >= row[token]).sum()),
                        "decoded_token": "x",
                    }
                    for token in shown
                }
            )
        choice = {"index": 0, "text": "x", "prompt_logprobs": entries, "prompt_token_ids": ids}
        return {"model": body["model"], "choices": [choice], "system_fingerprint": self.configuration}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Do not print that a client has closed its connection."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open_connections: list[Any] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_connections.append(request)
        super().process_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # the header and the body are sent together
    disable_nagle_algorithm = True
    server_of: FakeVllm

    def setup(self) -> None:
        self.server_of.connections += 1
        super().setup()

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.server_of
        if not self._is_allowed():
            return
        if self.path == "/version" and fake.version:
            self._reply(200, {"version": fake.version})
        elif self.path == "/v1/models":
            card = {"id": fake.name, "root": fake.root, "parent": fake.parent, "max_model_len": fake.max_model_len}
            self._reply(200, {"object": "list", "data": [card]})
        else:
            self._reply(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        fake = self.server_of
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._is_allowed():
            return
        if body["prompt_logprobs"] > fake.max_logprobs:
            self._reply(400, {"error": {"message": "greater than max allowed"}})
            return
        if body["model"] != fake.name:
            self._reply(404, {"error": {"message": f"The model `{body['model']}` does not exist"}})
            return
        fault = fake.faults.pop(0) if fake.faults else None
        if isinstance(fault, int):
            self._reply(fault, {"error": {"message": "busy"}})
            return
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "slow":
            time.sleep(fake.slow_seconds)
        answer = fake.answer(body)
        if callable(fault):
            answer = fault(answer)
        self._reply(200, answer, encoding="gzip" if fault == "garbled" else "identity")

    def _is_allowed(self) -> bool:
        key = self.server_of.key
        if not key or self.headers["Authorization"] == f"Bearer {key}":
            return True
        self._reply(401, {"error": "Unauthorized"})
        return False

    def _reply(self, status: int, content: dict[str, Any], encoding: str = "identity") -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()
