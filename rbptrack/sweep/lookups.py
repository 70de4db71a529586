"""Look up what follows from a pinned model or tokenizer and takes seconds to find. It is cached on disk."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version

from rbptrack.sources.cache import cached_line, hash_settings
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned


@cache
def tokenizer_rules(tokenizer: Pinned) -> str:
    """Return the hash of the rules by which a tokenizer splits texts.

    The hash is cached on disk, because loading a tokenizer takes seconds.
    """

    def compute_hash() -> str:
        from rbptrack.models.tokenizer import load_tokenizer
        from rbptrack.models.tokenizer_rules import rules_hash

        with reading(tokenizer.files):
            return rules_hash(load_tokenizer(tokenizer))

    return cached_line(f"tokenizers/{cache_key(source=tokenizer.identity)}", compute_hash)


@cache
def own_template_hash(model: str, tokenizer: Pinned) -> str:
    """Return the hash of a tokenizer's own chat template. It is cached on disk."""

    def compute_hash() -> str:
        from rbptrack.corpus.chat import find_chat_template
        from rbptrack.models.tokenizer import load_tokenizer

        template = find_chat_template("", load_tokenizer(tokenizer), model)
        return hashlib.sha256(template.encode()).hexdigest()

    return cached_line(f"chat-templates/{cache_key(source=tokenizer.identity)}", compute_hash)


@cache
def vocab_size(weights: Pinned) -> int:
    """Return |V|, the number of a model's logits. The number is cached on disk."""

    def read_config() -> str:
        from rbptrack.models import architecture

        return str(architecture.vocab_size(architecture.load_config(weights)))

    return int(cached_line(f"vocabularies/{cache_key(source=weights.identity)}", read_config))


@cache
def max_sequence_length(weights: Pinned) -> int:
    """Return the maximum length of a model's sequences in tokens, or 0 for no limit. The number is cached on disk."""

    def read_config() -> str:
        from rbptrack.models import architecture

        return str(architecture.max_sequence_length(architecture.load_config(weights)) or 0)

    return int(cached_line(f"lengths/{cache_key(source=weights.identity)}", read_config))


def parameter_counts_key(identity: str) -> str:
    """Return the key under which the numbers of a model's parameters are cached on disk, from the model's identity."""
    return f"parameter-counts/{cache_key(source=identity)}"


def cache_key(**parts: str) -> str:
    """Return a key for the cache on disk: the hash of some texts and of the versions of rbptrack and its libraries."""
    return hash_settings({**parts, "versions": _library_versions()})


@cache
def _library_versions() -> list[str]:
    return [version(library) for library in ("rbptrack", "tokenizers", "transformers")]
