"""Connect to a vLLM server, find out what it serves, and check its answers with a probe.

The weights of a server cannot be hashed. A server says the name and the origin (`root`) of its models and its version.
A probe finds the rest: whether the answers are ranks of the tokens that were sent, and how precise the logits are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.base.errors import BadInput, shortened_list
from rbptrack.base.secrets import without_password
from rbptrack.config.paths import user_path
from rbptrack.config.schema import Dtype, EngineConfig, ModelConfig
from rbptrack.sources.server_answers import MALFORMED, PROBE_ENTRIES, find_head_dtype, read_answer
from rbptrack.sources.server_connection import MAX_TEXT, ONLY_VLLM, Connection, RefusedOptions, shown

_PROBE_TOKENS = 64
_SHORTEST = 3  # max_model_len
# vLLM and transformers agree on the ln p of one token within about .1 nats in bfloat16, and 1e-4 in float32.
_MAX_MEAN_DIFFERENCE = 0.05  # nats, between the answers to the same sequence alone and among others


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


def _said(address: str, name: str, value: object) -> str:
    """Return a text that a server gives. Raises BadInput if it is not a short line of printable characters."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise BadInput(f"{address} gives the {name} {shown(value)}: a line of at most {MAX_TEXT} characters is needed")
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
            f"{connection.address} is not a vLLM server: it gives no version, no name or no max_model_len. {ONLY_VLLM}"
        )
    if not _SHORTEST <= max_model_len < 2**31:
        raise BadInput(
            f"{connection.address} has max_model_len {shown(max_model_len)}: a number from {_SHORTEST} is needed, "
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
    names = shortened_list([shown(f"{card.get('id')} (root {card.get('root')})") for card in cards]) or "nothing"
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
    _, expected = read_answer(alone, prompts[0], vocab_size)
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda ids: connection.ask(name, ids, deadline=deadline), prompts))
    checked = [read_answer(answer, ids, vocab_size) for answer, ids in zip(answers, prompts, strict=True)]
    difference = float(np.abs(checked[0][1] - expected).mean())
    if difference > _MAX_MEAN_DIFFERENCE:
        raise BadInput(
            f"{connection.address} gives other log-probabilities if it answers several requests at once: they differ "
            f"by {difference:.2g} nats on average, and at most {_MAX_MEAN_DIFFERENCE} is allowed"
        )
    configuration = _said(connection.address, "system_fingerprint", alone.get("system_fingerprint"))
    try:
        entries = connection.ask(name, prompts[0], entries=PROBE_ENTRIES, deadline=deadline)
    except RefusedOptions:  # the server allows fewer entries (--max-logprobs)
        return "unknown", configuration
    read_answer(entries, prompts[0], vocab_size)
    try:
        return find_head_dtype(entries), configuration
    except MALFORMED as error:
        raise BadInput(f"{connection.address}: the most likely entries of a token have no log-probabilities") from error
