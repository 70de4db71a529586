"""Make a tokenizer begin and end texts with the tokens for which its files ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput
from rbptrack.models.checkpoint import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

_CLASSES_WITH_FLAGS = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer", "GPTNeoXTokenizer")
"""Before transformers 5, these classes followed the flags even if tokenizer.json said otherwise."""


def add_border_tokens(pinned: Pinned, config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Make a tokenizer add the first and the last token of a text for which tokenizer_config.json asks.

    transformers 4 followed the flags `add_bos_token` and `add_eos_token`. transformers 5 ignores both if the folder has
    a tokenizer.json. Raises BadInput if the files ask for a token and do not name it, or they contradict each other.
    """
    backend = tokenizer.backend_tokenizer
    follows_flags = str(config.get("tokenizer_class", "")).removesuffix("Fast") in _CLASSES_WITH_FLAGS
    borders: list[str | None] = []  # the first and the last token; None for no token
    is_missing = False  # whether the tokenizer does not add one of them yet
    for role, ids in zip(("bos_token", "eos_token"), _find_border_ids(backend), strict=True):
        name = getattr(tokenizer, role)
        requested = config.get(f"add_{role}")
        token_id = backend.token_to_id(name) if name else None
        if requested and token_id is None:
            raise BadInput(
                f"the files of the tokenizer of {pinned.location} ask for add_{role} but do not name that token"
            )
        adds_other_token = requested and ids not in ([], [token_id])
        adds_unwanted_token = requested is False and ids and follows_flags
        if adds_other_token or adds_unwanted_token:
            raise BadInput(
                f"the files of the tokenizer of {pinned.location} contradict each other: add_{role} is {requested} in "
                f"{TOKENIZER_CONFIG_FILE}, but {TOKENIZER_FILE} adds {tokenizer.convert_ids_to_tokens(ids)} there. "
                "Correct one of them"
            )
        is_needed = bool(name and (requested or ids))
        borders.append(name if is_needed else None)
        is_missing = is_missing or (is_needed and not ids)
    if is_missing:
        set_border_tokens(backend, *borders)


def set_border_tokens(backend: Tokenizer, first: str | None, last: str | None) -> None:
    """Make a tokenizer begin texts with the token `first` and end them with `last`. None adds no token."""
    from tokenizers import processors

    single = [name for name in (first, "$A", last) if name is not None]
    tokens = [(name, backend.token_to_id(name)) for name in dict.fromkeys((first, last)) if name is not None]
    template = processors.TemplateProcessing(single=single, pair=[*single, "$B:1"], special_tokens=tokens)
    if isinstance(backend.post_processor, processors.ByteLevel):  # it corrects character offsets and must stay
        backend.post_processor = processors.Sequence([backend.post_processor, template])
    else:
        backend.post_processor = template


def _find_border_ids(backend: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids of the special tokens that a tokenizer adds at the beginning and at the end of a text."""
    for text in ("a", "1", ".", "一"):  # a tokenizer may not know each of these characters
        text_ids = backend.encode(text, add_special_tokens=False).ids
        ids = backend.encode(text).ids
        for begin in range(len(ids)):
            end = begin + len(text_ids)
            if text_ids and ids[begin:end] == text_ids:
                return ids[:begin], ids[end:]
    return [], []
