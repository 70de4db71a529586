"""Check a tokenizer that a user passes to the Python interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput
from rbptrack.models.checkpoint import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE
from rbptrack.models.tokenizer_rules import (
    RANDOM_OPTIONS,
    check_fast,
    differing_sections,
    find_differing_text,
    read_tokenizer_file,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_tokenizer(tokenizer: Any) -> None:
    """Check a tokenizer object that a user passes to the Python interface.

    It must be a fast tokenizer and follow the rules in the files from which it was loaded. If its vocabulary differs
    from those files, it was trained or changed on purpose, and its rules are not checked.

    Raises:
        BadInput: the object is not a fast tokenizer, has no tokens or random rules, or does not follow its files.

    """
    check_fast(tokenizer, "tokenizer")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise BadInput(
            f"tokenizer has no tokens ({tokenizer.name_or_path or 'no name'}). transformers returns such a tokenizer "
            "for a folder without tokenizer files: load it from a folder that has tokenizer.json"
        )
    for name in RANDOM_OPTIONS:
        if getattr(tokenizer.backend_tokenizer.model, name, None):
            raise BadInput(
                f"tokenizer has {name}, which makes each encoding of a text random: set "
                f"tokenizer.backend_tokenizer.model.{name} = None"
            )
    file = _origin_file(tokenizer, TOKENIZER_FILE)
    if file is not None:
        _check_rules_of_file(tokenizer, file)


def _check_rules_of_file(tokenizer: PreTrainedTokenizerBase, file: Path) -> None:
    """Raise BadInput if a user's tokenizer has the vocabulary of its tokenizer.json, but not the rules of its files."""
    file_tokenizer = read_tokenizer_file(file)
    if file_tokenizer.get_vocab() != tokenizer.get_vocab():
        return
    if_intended = 'If this is intended, set tokenizer.name_or_path = ""'
    if find_differing_text(tokenizer, file_tokenizer, add_special_tokens=False):
        differing = differing_sections(tokenizer, file_tokenizer)
        raise BadInput(
            f"tokenizer splits texts differently from its file {file} ({differing}): load it with "
            f"PreTrainedTokenizerFast.from_pretrained. {if_intended}"
        )
    config_file = _origin_file(tokenizer, TOKENIZER_CONFIG_FILE)
    config = json.loads(config_file.read_text("utf-8")) if config_file else {}
    bos_id = tokenizer.bos_token_id
    is_requested = bool(config.get("add_bos_token")) or file_tokenizer.encode("").ids[:1] == [bos_id]
    if is_requested and bos_id is not None and tokenizer("a")["input_ids"][:1] != [bos_id]:
        raise BadInput(
            f"tokenizer does not begin a text with {tokenizer.bos_token}, although its files in {file.parent} ask for "
            f"it: set tokenizer.add_bos_token = True. {if_intended}"
        )


def _origin_file(tokenizer: PreTrainedTokenizerBase, name: str) -> Path | None:
    """Return a file from the folder or cached repository from which a tokenizer was loaded, or None."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    location = str(tokenizer.name_or_path or "")
    if not location:
        return None
    path = Path(location) / name
    if path.is_file():
        return path
    try:
        cached_file = try_to_load_from_cache(location, name)
    except HFValidationError:
        return None
    return Path(cached_file) if isinstance(cached_file, str) else None
