"""The rules by which a tokenizer splits texts: their hash, and how they differ from those of tokenizer.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")  # of tokenizer.json

_PROBE_TEXT = (
    "In 2026 it was 12345, 3.14159265 and 1,000,000; 0x7F.\n\n\tdef f(x):\n        return x  +   1    # two\r\n"
    "don't DON'T we'll Ångström naïve cafe\u0301 İstanbul ﬁn straße Ελληνικά русский עברית العربية हिन्दी ไทย "
    "日本語と中文，한국어 🙂👩‍👩‍👧 \u00a0\u200b\ufeff\u3000 x²½ ~!@#$%^&*()_+{}|:\"<>?[]\\;',./ "
    "HTTPServer snake_case   "
)
"""Digits, spaces, line breaks, accents and several scripts. Tokenizers with different rules encode them differently."""

PROBE_TEXTS = ("", "a", " a", _PROBE_TEXT, *_PROBE_TEXT.split("\n"))
RANDOM_OPTIONS = ("dropout", "nbest_size")  # options of a tokenizer's model that make each encoding of a text random
_MAX_PROBED_TOKENS = 50  # the largest number of added tokens that probe texts contain


def check_fast(tokenizer: Any, description: str) -> None:
    """Raise BadInput if an object is not a fast tokenizer. Only fast tokenizers return character offsets.

    `description` names the object in the message, such as "the tokenizer of gpt2".
    """
    from transformers import PreTrainedTokenizerBase

    if isinstance(tokenizer, type):
        name = tokenizer.__name__
        raise BadInput(f"{description} is the class {name}: give a tokenizer, such as {name}.from_pretrained(FOLDER)")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise BadInput(f"{description} is a {type(tokenizer).__name__}: give a fast tokenizer of transformers")
    if tokenizer.is_fast is not True:
        raise BadInput(
            f"{description} has no fast version ({type(tokenizer).__name__}). Only fast tokenizers return character "
            "offsets, which rbptrack needs"
        )


def rules_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the SHA-256 of a tokenizer's rules for splitting texts and of its special tokens, in hexadecimal digits.

    Two tokenizers with equal hashes give equal ids for every text.
    """
    from tokenizers import Tokenizer

    backend = tokenizer.backend_tokenizer
    text = backend.to_str()
    if backend.truncation or backend.padding:  # each call of the tokenizer sets them, and measurements use neither
        copy = Tokenizer.from_str(text)
        copy.no_truncation()
        copy.no_padding()
        text = copy.to_str()
    special_tokens = (sorted(tokenizer.all_special_ids), tokenizer.eos_token_id, backend.encode_special_tokens)
    return hashlib.sha256(f"{text}\0{special_tokens!r}".encode()).hexdigest()


def read_tokenizer_file(file: Path) -> Tokenizer:
    """Read the tokenizer in a tokenizer.json, and switch its dropout, truncation and padding off."""
    from tokenizers import Tokenizer

    try:
        file_tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust library raises a plain Exception
        raise BadInput(f"{file} is not a tokenizer: {first_line(error)}") from error
    switch_off_randomness(file_tokenizer)
    file_tokenizer.no_truncation()
    file_tokenizer.no_padding()
    return file_tokenizer


def switch_off_randomness(backend: Tokenizer) -> None:
    """Switch off random splitting of texts (BPE's dropout, Unigram's sampling)."""
    for name in RANDOM_OPTIONS:
        if getattr(backend.model, name, None):
            setattr(backend.model, name, None)


def differing_sections(tokenizer: PreTrainedTokenizerBase, file_tokenizer: Tokenizer) -> str:
    """Name the sections of tokenizer.json in which a tokenizer differs from the file."""
    loaded_rules = json.loads(tokenizer.backend_tokenizer.to_str())
    file_rules = json.loads(file_tokenizer.to_str())
    return " and ".join(name for name in _SECTIONS if loaded_rules[name] != file_rules[name]) or "its rules"


def find_differing_text(
    tokenizer: PreTrainedTokenizerBase, file_tokenizer: Tokenizer, *, add_special_tokens: bool
) -> str:
    """Return a probe text to which a tokenizer and the tokenizer in its file give different ids, or an empty text."""
    file_tokenizer.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    for text in _probe_texts(file_tokenizer):
        ids = tokenizer(text, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
        if ids != file_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids:
            return text
    return ""


def _probe_texts(file_tokenizer: Tokenizer) -> Iterator[str]:
    """Yield texts that tokenizers with different rules encode differently. Some have added tokens inside words."""
    yield from PROBE_TEXTS
    added = [token.content for _, token in sorted(file_tokenizer.get_added_tokens_decoder().items())]
    for name in added[:_MAX_PROBED_TOKENS]:
        yield f"a {name} b{name}c  {name}\n{name}{name} {name.lower()}"
