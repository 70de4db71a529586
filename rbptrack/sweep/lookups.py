"""Look up what follows from a pinned model or tokenizer. What takes seconds to find is also cached on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rbptrack.sources.cache import cached_line, hash_settings
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:  # these modules import torch and transformers, which take seconds to load
    from transformers import PreTrainedTokenizerBase

    from rbptrack.models.parameters import ParameterCounts


@cache
def tokenizer(pinned: Pinned) -> PreTrainedTokenizerBase:
    """Load a tokenizer."""
    from rbptrack.models.tokenizer import load_tokenizer

    with reading(pinned.files):
        return load_tokenizer(pinned)


@cache
def architecture(weights: Pinned) -> Any:
    """Return the transformers config of a model."""
    from rbptrack.models.architecture import load_config

    return load_config(weights)


@cache
def tokenizer_rules(pinned: Pinned) -> str:
    """Return the hash of the rules by which a tokenizer splits texts."""

    def compute_hash() -> str:
        from rbptrack.models.tokenizer_rules import rules_hash

        return rules_hash(tokenizer(pinned))

    return _on_disk("tokenizers", pinned, compute_hash)


@cache
def own_template_hash(model: str, pinned: Pinned) -> str:
    """Return the hash of a tokenizer's own chat template."""

    def compute_hash() -> str:
        from rbptrack.corpus.chat import find_chat_template

        return hashlib.sha256(find_chat_template("", tokenizer(pinned), model).encode()).hexdigest()

    return _on_disk("chat-templates", pinned, compute_hash)


@cache
def config_limits(weights: Pinned) -> tuple[int, int]:
    """Return |V|, the number of a model's logits, and its maximum length of sequences in tokens, or 0 for no limit."""

    def read_config() -> str:
        from rbptrack.models.architecture import max_sequence_length, vocab_size

        config = architecture(weights)
        return f"{vocab_size(config)} {max_sequence_length(config) or 0}"

    num_logits, max_length = _on_disk("limits", weights, read_config).split()
    return int(num_logits), int(max_length)


@cache
def parameters(weights: Pinned) -> ParameterCounts:
    """Count the parameters of a model without loading its weights."""
    from rbptrack.models.parameters import ParameterCounts, count_parameters

    def count() -> str:
        return json.dumps(asdict(count_parameters(architecture(weights))))

    return ParameterCounts(**json.loads(cached_line(parameter_counts_key(weights.identity), count)))


def parameter_counts_key(identity: str) -> str:
    """Return the key under which the numbers of a model's parameters are cached on disk, from the model's identity."""
    return f"parameter-counts/{cache_key(source=identity)}"


def cache_key(**parts: str) -> str:
    """Return a key for the cache on disk: the hash of some texts and of the versions of rbptrack and its libraries."""
    return hash_settings({**parts, "versions": _library_versions()})


def _on_disk(kind: str, pinned: Pinned, compute: Callable[[], str]) -> str:
    """Return a line about a pinned model or tokenizer that is cached on disk. If it is missing, compute it first."""
    return cached_line(f"{kind}/{cache_key(source=pinned.identity)}", compute)


@cache
def _library_versions() -> list[str]:
    return [version(library) for library in ("rbptrack", "tokenizers", "transformers")]
