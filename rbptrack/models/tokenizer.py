"""Load a model's tokenizer with transformers, and make sure that it follows the rules in its files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, shortened_list
from rbptrack.models import sentence_piece
from rbptrack.models.architecture import load_config
from rbptrack.models.border_tokens import add_border_tokens
from rbptrack.models.checkpoint import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, local_file
from rbptrack.models.from_pretrained import explained_errors, load_part
from rbptrack.models.gguf_file import gguf_path, read_gguf
from rbptrack.models.gguf_tokenizer import load_gguf_tokenizer
from rbptrack.models.sentence_piece import REMEDY
from rbptrack.models.tokenizer_rules import (
    PROBE_TEXTS,
    check_fast,
    differing_sections,
    find_differing_text,
    read_tokenizer_file,
    switch_off_randomness,
)
from rbptrack.sources.model_files import read_json_object
from rbptrack.sources.pin import Pinned

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")  # a token that is one byte


def load_tokenizer(pinned: Pinned) -> PreTrainedTokenizerBase:
    """Load the fast tokenizer of a pinned model, with the rules that its files describe.

    transformers rebuilds a tokenizer from its class. It can then lose rules of tokenizer.json and the flag
    `add_bos_token` of tokenizer_config.json. This function corrects both. If the rules differ from tokenizer.json, it
    reads the tokenizer from that file. If tokenizer_config.json asks for a first or last token, it adds the token. It
    also switches off dropout, which makes each encoding of a text random.

    Raises:
        BadInput: the tokenizer is missing or damaged, has no fast version, or cannot be read from the Hub, or its
            files contradict each other.

    """
    if pinned.gguf:
        return load_gguf_tokenizer(read_gguf(gguf_path(pinned)))
    _check_sentencepiece(pinned)
    tokenizer = _load_by_class(pinned)
    config = _read_config(pinned)
    file = local_file(pinned, _tokenizer_file_name(config))
    with explained_errors("tokenizer", pinned, REMEDY):
        return _check_and_correct_rules(tokenizer, pinned, config, file)


def _sentencepiece_file(pinned: Pinned) -> Path | None:
    """Return the file of a tokenizer's sentencepiece model on this machine, or None."""
    return next(filter(None, (local_file(pinned, name) for name in sentence_piece.FILES)), None)


def _check_sentencepiece(pinned: Pinned) -> None:
    """Raise BadInput if sentencepiece is needed to load a tokenizer and is not installed."""
    file = _sentencepiece_file(pinned)
    if file is not None and local_file(pinned, TOKENIZER_FILE) is None:
        sentence_piece.check_sentencepiece_installed(file)


def _load_by_class(pinned: Pinned) -> PreTrainedTokenizerBase:
    """Load the tokenizer by its class. If the class cannot be loaded, load it from its tokenizer.json."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer: PreTrainedTokenizerBase = load_part("tokenizer", pinned, AutoTokenizer.from_pretrained, REMEDY)
    except BadInput:
        _check_sentencepiece(pinned)  # the files of a repository on the Hub are there only now
        if local_file(pinned, "config.json") is not None:
            load_config(pinned)  # transformers reads config.json first, so it may be the reason for the failure
        if local_file(pinned, TOKENIZER_FILE) is None or "auto_map" in _read_config(pinned):
            raise
        tokenizer = load_part("tokenizer", pinned, PreTrainedTokenizerFast.from_pretrained, REMEDY)
    return tokenizer


def _check_and_correct_rules(
    tokenizer: PreTrainedTokenizerBase, pinned: Pinned, config: dict[str, Any], file: Path | None
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that follows the rules in its files. Raises BadInput if the files are incomplete or damaged.

    `config` is the content of tokenizer_config.json, and `file` is the path of tokenizer.json, if there is one.
    """
    if file is not None:
        tokenizer = _with_rules_of_file(file, tokenizer, pinned)
    check_fast(tokenizer, f"the tokenizer of {pinned.location}")
    sentencepiece_file = _sentencepiece_file(pinned)
    if file is None and sentencepiece_file is not None:
        sentence_piece.follow_sentencepiece(tokenizer, sentencepiece_file, [*PROBE_TEXTS])
    # If the files are missing, transformers returns a tokenizer that has special tokens only.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise BadInput(f"{pinned.location} has no tokenizer{REMEDY}")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    if file is not None:
        _check_prefix_space(pinned, config, tokenizer)
    _check_vocabulary(pinned, tokenizer)
    add_border_tokens(pinned, config, tokenizer)
    return tokenizer


def _check_vocabulary(pinned: Pinned, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if a vocabulary gives one id to several tokens, or if its list of merges is missing."""
    ids = tokenizer.get_vocab()
    if len(set(ids.values())) < len(ids):
        names: dict[int, str] = {}
        for name, token_id in ids.items():
            other = names.setdefault(token_id, name)
            if other != name:
                raise BadInput(
                    f"the tokenizer of {pinned.location} is damaged: {other!r} and {name!r} both have the id {token_id}"
                )
    if '"merges":[]' not in tokenizer.backend_tokenizer.to_str():
        return
    added = tokenizer.get_added_vocab()
    unreachable = [name for name in ids if len(name) > 1 and name not in added and not _BYTE.fullmatch(name)]
    if unreachable:
        raise BadInput(
            f"the tokenizer of {pinned.location} is damaged: its list of merges is empty, though {len(unreachable):,} "
            f"tokens need merges ({shortened_list(sorted(unreachable), limit=3)})"
        )


def _read_config(pinned: Pinned) -> dict[str, Any]:
    """Return the content of tokenizer_config.json."""
    path = local_file(pinned, TOKENIZER_CONFIG_FILE)
    return {} if path is None else read_json_object(path)


def _tokenizer_file_name(config: dict[str, Any]) -> str:
    """Return the name of the file that transformers reads: tokenizer.json, or a version of it that the config names."""
    from transformers.tokenization_utils_base import get_fast_tokenizer_file

    versions = config.get("fast_tokenizer_files")
    return get_fast_tokenizer_file(versions) if versions else TOKENIZER_FILE


def _with_rules_of_file(file: Path, tokenizer: PreTrainedTokenizerBase, pinned: Pinned) -> PreTrainedTokenizerBase:
    """Return the tokenizer if it has the rules of its tokenizer.json. Otherwise load one that has these rules.

    Raises BadInput if the tokenizer that transformers loads from the file does not have its rules either.
    """
    from transformers import PreTrainedTokenizerFast

    file_tokenizer = read_tokenizer_file(file)
    if not tokenizer.is_fast or tokenizer.backend_tokenizer.to_str() != file_tokenizer.to_str():
        class_tokenizer = tokenizer
        tokenizer = load_part("tokenizer", pinned, PreTrainedTokenizerFast.from_pretrained, REMEDY)
        # Some special tokens are named by the class only, such as the end-of-text token of GPT-2.
        for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
            name = getattr(class_tokenizer, role)
            if name and getattr(tokenizer, role) is None and file_tokenizer.token_to_id(name) is not None:
                setattr(tokenizer, role, name)
    switch_off_randomness(tokenizer.backend_tokenizer)
    for add_special_tokens in (False, True):
        text = find_differing_text(tokenizer, file_tokenizer, add_special_tokens=add_special_tokens)
        if text:
            raise BadInput(
                f"the tokenizer of {pinned.location} cannot be loaded as its tokenizer.json describes it: transformers "
                f"changes {differing_sections(tokenizer, file_tokenizer)}, and {text!r:.60} gets other ids{REMEDY}"
            )
    return tokenizer


def _check_prefix_space(pinned: Pinned, config: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise BadInput if the files contradict each other about a space that is added before a text."""
    configured = config.get("add_prefix_space")
    pre_tokenizer = json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]
    if not isinstance(configured, bool) or not pre_tokenizer or pre_tokenizer["type"] != "ByteLevel":
        return
    if pre_tokenizer["add_prefix_space"] != configured:
        raise BadInput(
            f"the files of the tokenizer of {pinned.location} contradict each other: add_prefix_space is {configured} "
            f"in {TOKENIZER_CONFIG_FILE} and {not configured} in {TOKENIZER_FILE}. Correct one of them"
        )
