"""Connects to a vLLM server, finds out what it serves, and checks its answers with a probe.

The weights of a server cannot be hashed. A server says the name and the origin (`root`) of its models and its version.
A probe finds the rest: whether the answers are ranks of the tokens that were sent, and how precise the logits are.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import httpx2
import numpy as np

from rbptrack.base.errors import BadInput, MeasurementError, first_line, shortened_list
from rbptrack.base.secrets import declare_secret, without_password
from rbptrack.config.paths import user_path
from rbptrack.config.schema import Dtype, EngineConfig, ModelConfig
from rbptrack.ranks import FloatArray, IntArray, vllm_tokens
from rbptrack.ranks.prompt_logprobs import vllm_prompt

log = logging.getLogger(__name__)

_COMPLETIONS = "/v1/completions"
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE = 0.5  # seconds before a request is tried again; each further pause is twice as long
_LONGEST_PAUSE = 30.0
_BUSY = (408, 429, 502, 503, 504)  # statuses with which a server or its proxy asks to try again later
_REFUSED_KEY = (401, 403)
_REFUSED_BODY = (400, 422)  # statuses with which vLLM refuses the options of a request
_MAX_ANSWER = 2**28  # bytes; an answer has about 100 for each token
_MAX_TEXT = 300  # characters of a text of the server that are stored or shown
_MALFORMED = (TypeError, AttributeError, LookupError, ValueError, OverflowError)  # from reading another JSON object
_ONLY_VLLM = "Other servers do not return ranks; `rbptrack import` reads the log-probabilities of some of them"
_PROBE_TOKENS = 64
_SHORTEST = 3  # max_model_len
_PROBE_ENTRIES = 20  # the largest number of entries of a token that vLLM returns by default
# vLLM and transformers agree on the ln p of one token within about .1 nats in bfloat16, and 1e-4 in float32.
_MAX_MEAN_DIFFERENCE = 0.05  # nats, between the answers to the same sequence alone and among others
# Logits with 8 or 11 significant bits, whose largest are above .25 in magnitude, are multiples of 2^-10 and tie often.
_GRID = 2.0**-10
_GRID_TOLERANCE = 5e-5  # nats; float32 rounds ln p by less
_MANY_ON_GRID = 0.8  # by chance, a tenth of all differences are this close to the grid
_MANY_TIES = 0.08  # shares of entries that equal another entry: about .2 in bfloat16, .03 in float16, 1e-4 in float32
_FEW_TIES = 0.01


@dataclass(frozen=True)
class ServedModel:
    """A model of a server, as the server describes it and as a probe found it.

    Attributes:
        name: the name that requests give.
        root: the repository or folder from which the server loaded the model.
        engine: the server's program and version, such as `vllm 0.32.0`.
        head_dtype: the precision of the logits: `float32`, `bfloat16`, `float16` or `unknown`.
        max_length: the largest number of tokens of a prompt. vLLM always generates one more token.
        named_by_user: whether only the user says that it is the model of the config, with `model.server_name=`.
        configuration: vLLM's hash of its configuration, `system_fingerprint`; empty if it does not give one.

    """

    name: str
    root: str
    engine: str
    head_dtype: str
    max_length: int
    named_by_user: bool
    configuration: str

    def facts(self) -> dict[str, str]:
        """Return the fields of a measurement that the server determines."""
        parts = [f"root {self.root}", f"max_model_len {self.max_length + 1}", self.configuration]
        return {
            "engine": self.engine,
            "head_dtype": self.head_dtype,
            "server_name": self.name if self.named_by_user else "",
            "server": without_password(f"{self.name} ({', '.join(filter(None, parts))})"),
        }

    def note(self) -> str:
        """Return a note on the precision of the logits; empty if they are float32."""
        if self.head_dtype == "float32":
            return ""
        remedy = """start the server with --hf-overrides '{"head_dtype": "float32"}'"""
        if self.head_dtype == "unknown":
            return f"the precision of the server's logits is unknown. If it is not float32, {remedy}"
        return (
            f"the server's logits are {self.head_dtype}. They tie at many positions, and ties count before the target, "
            f"so RBP_1 and RBP_10 are too small: {remedy}"
        )


class _Refused(BadInput):
    """A server answers that it does not accept the options of a request."""


class Connection:
    """Sends requests to a server over HTTP/1.1 connections, which are kept open. Several threads may use it.

    A request is tried again, with growing pauses, if the server cannot answer it now (statuses 408, 429, 500 to 504),
    if the connection is lost, or if the answer takes longer than `engine.timeout`.

    Args:
        address: the address of the server, such as `http://host:8000`. A `/v1` at its end is left out.
        config: the options of the engine.

    Attributes:
        losses: how often a connection was lost or an answer came too late.
        rejections: how often the server asked to try again later.

    Raises:
        BadInput: `engine.key_variable` names an environment variable that does not exist.

    """

    def __init__(self, address: str, config: EngineConfig) -> None:
        self.address = address.rstrip("/").removesuffix("/v1")
        self.losses = 0
        self.rejections = 0
        self._key_variable = config.key_variable
        self._timeout = config.timeout
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._num_active = 0  # requests that wait for an answer
        self._is_away = False
        self._headers = {}
        key = os.environ.get(config.key_variable, "")
        if key:
            declare_secret(key)
            self._headers["Authorization"] = f"Bearer {key}"
        elif config.key_variable != EngineConfig.key_variable:
            raise BadInput(f"engine.key_variable={config.key_variable}: this environment variable does not exist")
        self._context = httpx2.create_ssl_context()
        self._idle: list[httpx2.Client] = []  # of one connection each: a client with many looks at all for each request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections when no other thread waits for an answer. No request is tried again."""
        with self._lock:
            self._closed.set()
            if not self._num_active:
                self._close_clients()

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
            raise BadInput(f"{self.address} answered with the model {_shown(response.get('model'))} instead of {model}")
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
        with self._lock:
            if self._closed.is_set():
                raise MeasurementError(f"the connection to {self.address} is closed")
            self._num_active += 1
        try:
            return self._request(path, body, deadline)
        finally:
            with self._lock:
                self._num_active -= 1
                if self._closed.is_set() and not self._num_active:
                    self._close_clients()

    def _close_clients(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _request(self, path: str, body: Mapping[str, Any] | None, deadline: float) -> dict[str, Any]:
        ends = time.monotonic() + deadline
        pause = _FIRST_PAUSE
        while True:
            fault = self._try(path, body)
            if not isinstance(fault, str):
                self._is_away = False
                return fault
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

    def _try(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any] | str:
        """Send a request once. Return the answer, or the reason why it should be tried again."""
        try:
            status, content, location = self._send(path, body)
        except httpx2.TimeoutException:
            self._count_loss()
            return f"no answer within {self._timeout:g} s (engine.timeout)"
        except (httpx2.InvalidURL, UnicodeError) as error:  # such as a port that is not a number
            raise BadInput(f"model.server={self.address} is not an address, such as http://host:8000") from error
        except httpx2.RequestError as error:
            self._count_loss()
            return f"no answer ({_shown(first_line(error))})"
        if status in _BUSY:
            with self._lock:
                self.rejections += 1
            return f"the server asks to try again later (status {status})"
        if status >= 500:
            self._count_loss()
            return f"the server failed (status {status})"
        if status in _REFUSED_KEY:
            raise BadInput(
                f"{self.address} refuses the key (status {status}). Put the server's key into the environment variable "
                f"{self._key_variable} (engine.key_variable)"
            )
        if location:
            raise BadInput(
                f"{self.address}{path} is elsewhere: {_shown(location)}. Give the address of the server itself"
            )
        if body is None and status == httpx2.codes.NOT_FOUND:
            raise BadInput(f"{self.address}{path} does not exist: this is not a vLLM server. {_ONLY_VLLM}")
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status != httpx2.codes.OK:
            kind = _Refused if status in _REFUSED_BODY else BadInput
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
                self._idle.append(client)

    def _count_loss(self) -> None:
        with self._lock:
            self.losses += 1


def _reason(answer: Any) -> str:
    """Return the reason that a server gives for refusing a request, after a colon; empty if it gives none."""
    if isinstance(answer, dict):
        error = answer.get("error", answer)
        answer = error.get("message") if isinstance(error, dict) else error
    return f": {_shown(answer)}" if answer else ""


def _shown(value: object) -> str:
    """Return what a server said as a short line of printable characters."""
    text = " ".join(str(value)[: 2 * _MAX_TEXT].split())[:_MAX_TEXT]
    return "".join(character if character.isprintable() else "?" for character in text)


def _said(address: str, name: str, value: object) -> str:
    """Return a text that a server gives. Raises BadInput if it is not a short line of printable characters."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > _MAX_TEXT or not value.isprintable():
        raise BadInput(
            f"{address} gives the {name} {_shown(value)}: a line of at most {_MAX_TEXT} characters is needed"
        )
    return value


def find_served_model(model: ModelConfig, engine: EngineConfig, vocab_size: int) -> ServedModel:
    """Connect to the server of a model, and return what `identify` finds."""
    with Connection(model.server, engine) as connection:
        return identify(connection, model, vocab_size)


def identify(connection: Connection, model: ModelConfig, vocab_size: int, *, deadline: float = 0) -> ServedModel:
    """Find the model of a config on a server, and check the server's answers with a probe.

    Args:
        connection: the connection to the server.
        model: the options of the model.
        vocab_size: |V|, from the model's config.
        deadline: as in `Connection.request`.

    Raises:
        BadInput: the server does not serve the model, is not a vLLM server, or gives wrong answers.
        MeasurementError: the server does not answer.

    """
    cards = connection.request("/v1/models", deadline=deadline).get("data")
    if not isinstance(cards, list) or not all(isinstance(card, dict) for card in cards):
        raise BadInput(f"{connection.address}/v1/models does not list models. This is not a vLLM server")
    card = _find_card(connection.address, cards, model)
    answer = connection.request("/version", deadline=deadline)
    version = _said(connection.address, "version", answer.get("version"))
    name = _said(connection.address, "name", card.get("id"))
    root = _said(connection.address, "root", card.get("root"))
    max_model_len = card.get("max_model_len")
    if not version or not name or type(max_model_len) is not int:
        raise BadInput(
            f"{connection.address} is not a vLLM server: it gives no version, no name or no max_model_len. {_ONLY_VLLM}"
        )
    if not _SHORTEST <= max_model_len < 2**31:
        raise BadInput(
            f"{connection.address} has max_model_len {_shown(max_model_len)}: a number from {_SHORTEST} is needed, "
            "because a sequence has two tokens or more, and vLLM generates one"
        )
    head_dtype, configuration = _probe(connection, name, vocab_size, max_model_len - 1, deadline)
    if model.server_dtype is Dtype.float32 and head_dtype in (Dtype.bfloat16.value, Dtype.float16.value):
        raise BadInput(
            f"model.server_dtype=float32, but the logits of {connection.address} are {head_dtype}. Start the server "
            "with --dtype float32, or correct model.server_dtype"
        )
    return ServedModel(
        name=name,
        root=root,
        engine=f"vllm {version}",
        head_dtype=head_dtype,
        max_length=max_model_len - 1,
        named_by_user=not _is_root(card, model),
        configuration=configuration,
    )


def _find_card(address: str, cards: Sequence[Mapping[str, Any]], model: ModelConfig) -> Mapping[str, Any]:
    """Return the server's entry for the model of a config. Raises BadInput if there is none, or if it is not clear."""
    names = shortened_list([_shown(f"{card.get('id')} (root {card.get('root')})") for card in cards]) or "nothing"
    if model.server_name:
        card = next((card for card in cards if card.get("id") == model.server_name), None)
        if card is None:
            raise BadInput(f"model.server_name={model.server_name}: {address} serves {names}")
        return card
    found = [card for card in cards if _is_root(card, model)]
    if found:  # several names of one model
        return found[0]
    wanted = model.path or model.repo
    if model.revision != "main":
        wanted += f" at the revision {model.revision}, which servers do not say"
    raise BadInput(
        f"{address} serves {names}. It is not certain that this is {wanted}. If it is, name it: model.server_name=NAME"
    )


def _is_root(card: Mapping[str, Any], model: ModelConfig) -> bool:
    """Return whether a server's entry says that it was loaded from the repository or folder of a config.

    A server does not say the revision of a repository, so it is taken to serve the revision `main`.
    """
    root = str(card.get("root") or "")
    if card.get("parent"):  # an adapter
        return False
    if model.path:
        return Path(root) == user_path(model.path).absolute() or root == model.path
    return root == model.repo and model.revision == "main"


def _probe(connection: Connection, name: str, vocab_size: int, max_length: int, deadline: float) -> tuple[str, str]:
    """Check a server's answers to one sequence, alone and among others.

    Returns the precision of the logits and the server's hash of its configuration.
    """
    generator = random.Random(0)
    length = min(_PROBE_TOKENS, max_length)
    # Rows of padding and placeholders of images have the largest ids.
    prompts = [[generator.randrange(max(1, vocab_size // 2)) for _ in range(length)] for _ in range(4)]
    alone = connection.ask(name, prompts[0], deadline=deadline)
    _, expected = check_answer(alone, prompts[0], vocab_size)
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda ids: connection.ask(name, ids, deadline=deadline), prompts))
    checked = [check_answer(answer, ids, vocab_size) for answer, ids in zip(answers, prompts, strict=True)]
    difference = float(np.abs(checked[0][1] - expected).mean())
    if difference > _MAX_MEAN_DIFFERENCE:
        raise BadInput(
            f"{connection.address} gives other log-probabilities if it answers several requests at once: they differ "
            f"by {difference:.2g} nats on average, and at most {_MAX_MEAN_DIFFERENCE} is allowed"
        )
    configuration = _said(connection.address, "system_fingerprint", alone.get("system_fingerprint"))
    try:
        entries = connection.ask(name, prompts[0], entries=_PROBE_ENTRIES, deadline=deadline)
    except _Refused:  # the server allows fewer entries (--max-logprobs)
        return "unknown", configuration
    check_answer(entries, prompts[0], vocab_size)
    try:
        return find_head_dtype(entries), configuration
    except _MALFORMED as error:
        raise BadInput(f"{connection.address}: the most likely entries of a token have no log-probabilities") from error


def check_answer(response: Mapping[str, Any], ids: Sequence[int], vocab_size: int) -> tuple[IntArray, FloatArray]:
    """Return the ranks and log-probabilities of the tokens that a prompt predicts: all but its first.

    Args:
        response: the response of vLLM to the prompt.
        ids: the token ids of the prompt, (tokens,).
        vocab_size: |V|.

    Returns:
        The ranks, int64 (tokens - 1,), and ln p in nats, float64 (tokens - 1,).

    Raises:
        BadInput: the response has other tokens, a rank above |V|, or a rank that contradicts its probability.

    """
    try:
        tokens = vllm_tokens(response)
    except BadInput as error:
        raise BadInput(_shown(error)) from error
    except _MALFORMED as error:
        raise BadInput("the answer does not list prompt_logprobs as vLLM does") from error
    if [token.id for token in tokens] != list(ids):
        raise BadInput("the answer has other token ids than the request")
    largest = max(token.rank for token in tokens)
    if largest > vocab_size:
        raise BadInput(f"a token has rank {largest:,}, but the model has only {vocab_size:,} entries")
    rank = np.array([token.rank for token in tokens[1:]], dtype=np.int64)
    logprob = np.array([token.logprob for token in tokens[1:]], dtype=np.float64)
    return rank, logprob


def find_head_dtype(response: Mapping[str, Any]) -> str:
    """Find the precision of logits from the most likely entries of each token of a prompt.

    Logits with few significant bits often equal each other, and their differences are multiples of a power of two.

    Returns:
        `bfloat16`, `float16`, `float32` or `unknown`.

    """
    ties = 0
    on_grid = 0
    count = 0
    for entry in vllm_prompt(response)["prompt_logprobs"][1:]:
        logprobs = sorted((item["logprob"] for item in entry.values()), reverse=True)[:_PROBE_ENTRIES]
        for above, below in pairwise(logprobs):
            difference = above - below
            count += 1
            ties += difference == 0
            on_grid += abs(difference / _GRID - round(difference / _GRID)) * _GRID < _GRID_TOLERANCE
    if not count:
        return "unknown"
    if on_grid / count > _MANY_ON_GRID:
        return "bfloat16" if ties / count > _MANY_TIES else "float16"
    return "float32" if ties / count < _FEW_TIES else "unknown"
