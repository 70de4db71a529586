"""Send requests to a vLLM server. A request is repeated if the server cannot answer it now."""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import httpx2

from rbptrack.base.errors import BadInput, MeasurementError, first_line
from rbptrack.base.secrets import declare_secret
from rbptrack.config.schema import EngineConfig

log = logging.getLogger(__name__)

_COMPLETIONS = "/v1/completions"
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE = 0.5  # seconds before a request is tried again; each further pause is twice as long
_LONGEST_PAUSE = 30.0
_BUSY = (408, 429, 502, 503, 504)  # statuses with which a server or its proxy asks to try again later
_REFUSED_KEY = (401, 403)
_REFUSED_BODY = (400, 422)  # statuses with which vLLM refuses the options of a request
_MAX_ANSWER = 2**28  # bytes; an answer has about 100 for each token
MAX_TEXT = 300  # characters of a text of the server that are stored or shown
ONLY_VLLM = "Other servers do not return ranks; `rbptrack import` reads the log-probabilities of some of them"


class RefusedOptions(BadInput):
    """A server answers that it does not accept the options of a request."""


class _TryLater(Exception):
    """The server cannot answer now. The message says why."""


class Connection:
    """Sends requests to a server over HTTP/1.1 connections, which are kept open. Several threads may use it.

    A request is tried again, with growing pauses, if the server cannot answer it now (status 408, 429, or 500 and
    above), if the connection is lost, or if the answer takes longer than `engine.timeout`.

    Args:
        address: the address of the server, such as `http://host:8000`. A `/v1` at its end is left out.
        config: the options of the engine.

    Attributes:
        losses: how often a connection was lost or an answer came too late.
        rejections: how often the server asked to try again later.

    Raises:
        BadInput: `engine.key_variable` names an environment variable that does not exist, or that holds other
            characters than printable ASCII.

    """

    def __init__(self, address: str, config: EngineConfig) -> None:
        self.address = address.rstrip("/").removesuffix("/v1")
        self.losses = 0
        self.rejections = 0
        self._key_variable = config.key_variable
        self._timeout = config.timeout
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._is_away = False
        self._headers = {}
        key = os.environ.get(config.key_variable, "").strip()
        if not (key.isascii() and key.isprintable()):
            raise BadInput(f"the key in the environment variable {config.key_variable} must be printable ASCII")
        if key:
            declare_secret(key)
            self._headers["Authorization"] = f"Bearer {key}"
        elif config.key_variable != EngineConfig.key_variable:
            raise BadInput(f"engine.key_variable={config.key_variable}: this environment variable does not exist")
        self._context = httpx2.create_ssl_context()
        # Each has one connection, because a client with many connections searches all of them for each request.
        self._idle: list[httpx2.Client] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, each when no thread waits for its answer. No request is tried again."""
        self._closed.set()
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def ask(self, model: str, ids: Sequence[int], *, entries: int = 0, deadline: float = 0) -> dict[str, Any]:
        """Return the server's response to a prompt, with the ranks and log-probabilities of its tokens.

        Args:
            model: the name of the model.
            ids: the token ids of the prompt, (tokens,).
            entries: for each token, the number of most likely entries that the response has in addition.
            deadline: as in `request`.

        """
        body = {
            "model": model,
            "prompt": list(ids),
            "prompt_logprobs": entries,
            "max_tokens": 1,  # vLLM refuses 0
            "temperature": 0,
            "return_token_ids": True,
        }
        response = self.request(_COMPLETIONS, body, deadline=deadline)
        if response.get("model") != model:
            raise BadInput(f"{self.address} answered with the model {shown(response.get('model'))} instead of {model}")
        return response

    def request(self, path: str, body: Mapping[str, Any] | None = None, *, deadline: float = 0) -> dict[str, Any]:
        """Return the JSON object with which the server answers a request: POST with a body, GET without one.

        Args:
            path: the path after the address.
            body: the JSON object to send.
            deadline: the number of seconds after which the request is not tried again. With 0, it is tried once.

        Raises:
            BadInput: the server refuses the request or the key, or it does not answer with a JSON object.
            MeasurementError: there was no answer before the deadline.

        """
        if self._closed.is_set():
            raise MeasurementError(f"the connection to {self.address} is closed")
        ends = time.monotonic() + deadline
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = self._send_once(path, body)
            except _TryLater as error:
                fault = str(error)
            else:
                self._is_away = False
                return answer
            pause_end = time.monotonic() + pause * random.uniform(0.75, 1.25)
            if pause_end > ends or self._closed.is_set():
                break
            if not self._is_away:
                self._is_away = True
                log.warning("%s: %s. Trying again", self.address, fault)
            if self._closed.wait(pause_end - time.monotonic()):
                break
            pause = min(2 * pause, _LONGEST_PAUSE)
        if not deadline:
            raise BadInput(f"model.server={self.address}: {fault}. Start the server, or correct its address")
        raise MeasurementError(
            f"model.server={self.address}: {fault}, for {deadline:.0f} s (engine.deadline). What is finished is kept: "
            "run the command again when the server answers"
        )

    def _send_once(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request once, and return the answer. Raises _TryLater if it should be sent again."""
        try:
            status, content, location = self._send(path, body)
        except httpx2.TimeoutException as error:
            self._count_loss()
            raise _TryLater(f"no answer within {self._timeout:g} s (engine.timeout)") from error
        except (httpx2.InvalidURL, UnicodeError) as error:  # such as a port that is not a number
            raise BadInput(f"model.server={self.address} is not an address, such as http://host:8000") from error
        except httpx2.RequestError as error:
            self._count_loss()
            raise _TryLater(f"no answer ({shown(first_line(error))})") from error
        if status in _BUSY:
            with self._lock:
                self.rejections += 1
            raise _TryLater(f"the server asks to try again later (status {status})")
        if status >= 500:
            self._count_loss()
            raise _TryLater(f"the server failed (status {status})")
        if status in _REFUSED_KEY:
            raise BadInput(
                f"{self.address} refuses the key (status {status}). Put the server's key into the environment variable "
                f"{self._key_variable} (engine.key_variable)"
            )
        if location:
            raise BadInput(
                f"{self.address}{path} is elsewhere: {shown(location)}. Give the address of the server itself"
            )
        if body is None and status == httpx2.codes.NOT_FOUND:
            raise BadInput(f"{self.address}{path} does not exist: this is not a vLLM server. {ONLY_VLLM}")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status != httpx2.codes.OK:
            kind = RefusedOptions if status in _REFUSED_BODY else BadInput
            raise kind(f"{self.address}{path} refuses the request with status {status}{_reason(answer)}")
        if not isinstance(answer, dict):
            raise BadInput(f"{self.address}{path}: the answer is not a JSON object, as vLLM sends it")
        return answer

    def _send(self, path: str, body: Mapping[str, Any] | None) -> tuple[int, bytes, str]:
        """Send a request. Return the status and the content of the answer, and the address to which it redirects."""
        ends = time.monotonic() + self._timeout
        timeout = httpx2.Timeout(self._timeout, connect=_CONNECT_SECONDS)  # of each piece of the answer
        content = bytearray()
        method = "GET" if body is None else "POST"
        with (
            self._client() as client,
            client.stream(method, self.address + path, json=body, timeout=timeout) as response,
        ):
            for piece in response.iter_bytes():
                content += piece
                if time.monotonic() > ends:
                    raise httpx2.ReadTimeout("the answer is too slow")
                if len(content) > _MAX_ANSWER:
                    raise BadInput(f"{self.address}{path}: the answer has more than {_MAX_ANSWER // 2**20} MiB")
            location = response.headers.get("Location", "") if response.is_redirect else ""
            return response.status_code, bytes(content), location

    @contextmanager
    def _client(self) -> Iterator[httpx2.Client]:
        """Lend a client that no other thread uses."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = httpx2.Client(headers=self._headers, verify=self._context)
        try:
            yield client
        finally:
            with self._lock:
                if self._closed.is_set():
                    client.close()
                else:
                    self._idle.append(client)

    def _count_loss(self) -> None:
        with self._lock:
            self.losses += 1


def _reason(answer: Any) -> str:
    """Return the reason that a server gives for refusing a request, after a colon; empty if it gives none."""
    if isinstance(answer, dict):
        error = answer.get("error", answer)
        answer = error.get("message") if isinstance(error, dict) else error
    return f": {shown(answer)}" if answer else ""


def shown(value: object) -> str:
    """Return what a server said as a short line of printable characters."""
    text = " ".join(str(value)[: 2 * MAX_TEXT].split())[:MAX_TEXT]
    return "".join(character if character.isprintable() else "?" for character in text)
