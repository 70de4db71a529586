"""Check that a model, its tokenizer and its reference fit together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Candidates
from rbptrack.models.architecture import max_sequence_length, vocab_size

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def choose_candidates(
    config: Any, tokenizer: PreTrainedTokenizerBase, requested: Candidates
) -> tuple[int, tuple[int, ...]]:
    """Return the number of head rows that are scored, and the ids among them that are excluded from the ranking.

    With `Candidates.vocabulary`, a target is ranked among all rows. Otherwise it is ranked among the rows up to the
    tokenizer's largest id, and ids that the tokenizer does not have are excluded.
    """
    rows = vocab_size(config)
    if requested is Candidates.vocabulary:
        return rows, ()
    tokenizer_ids = set(tokenizer.get_vocab().values())
    num_candidates = min(rows, 1 + max(tokenizer_ids))
    return num_candidates, tuple(sorted(set(range(num_candidates)) - tokenizer_ids))


def check_compatible(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, seq_len: int) -> None:
    """Raise BadInput if sequences exceed the model's maximum, or if the tokenizer belongs to another model.

    Tokens that were added to a tokenizer may have ids beyond the model's rows, as in Gemma 3 without images.
    `check_token_ids` then checks the texts.
    """
    max_length = max_sequence_length(config)
    if max_length and seq_len > max_length:
        raise BadInput(f"dataset.seq_len must be at most {max_length}, the maximum of {name}; got {seq_len}")
    rows = vocab_size(config)
    added = tokenizer.get_added_vocab()
    ordinary = [(token_id, token) for token, token_id in tokenizer.get_vocab().items() if token not in added]
    largest_id, token = max(ordinary, default=(0, ""))
    if largest_id >= rows:
        raise BadInput(
            f"{name}: its tokenizer gives {token!r} the id {largest_id}, but the model has {rows} rows only. "
            "The tokenizer belongs to another model"
        )


def check_token_ids(name: str, config: Any, tokenizer: PreTrainedTokenizerBase, largest_id: int) -> None:
    """Raise BadInput if the largest token id of some texts has no row in the model."""
    rows = vocab_size(config)
    if largest_id >= rows:
        token = tokenizer.convert_ids_to_tokens(largest_id)
        raise BadInput(
            f"{name}: a text holds the token {token!r} with the id {largest_id}, but the model has {rows} rows only. "
            "Leave out texts with this token"
        )


def check_same_tokenizer(
    name: str, tokenizer: PreTrainedTokenizerBase, reference_tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raise BadInput if the tokenizer of a reference has other tokens or rules than the measured model's tokenizer."""
    ids = tokenizer.get_vocab()
    reference_ids = reference_tokenizer.get_vocab()
    remedy = (
        f"a reference must read the same tokens. If {name} was trained with the model's tokenizer, give that tokenizer "
        "as reference.tokenizer="
    )
    if ids != reference_ids:
        count = len({token for token, _ in ids.items() ^ reference_ids.items()})
        raise BadInput(f"reference {name} has another vocabulary ({count:,} tokens differ): {remedy}")
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    reference_rules = json.loads(reference_tokenizer.backend_tokenizer.to_str())
    parts = ("normalizer", "pre_tokenizer", "model")
    differing = [part for part in parts if rules[part] != reference_rules[part]]
    if differing:
        raise BadInput(f"reference {name} has another tokenizer (its {' and '.join(differing)}): {remedy}")
