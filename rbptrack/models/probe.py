"""Check a loaded model on a few tokens.

The hidden states of a token must not depend on later tokens, on padding or on the length of the batch. The logits must
equal states times head. Otherwise the ranks could look plausible and be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from rbptrack.base.errors import BadInput

_MULTIPLY_ADDS = 2e9  # the largest number of operations of one model's probes; they take a fraction of a second
_MAX_TOKENS = 64  # the largest number of tokens in half a probe
_MIN_TOKENS = 12
# A rounding error can make a mixture of experts send a token to another expert. This happens in some of the probes. A
# model that reads later tokens differs in every probe.
_PROBES = 3
# The largest allowed differences of states, as a share of their size. Products of one shape have equal rounding errors,
# products of different shapes do not.
_MAX_DIFFERENCE = 1e-6
_MAX_SHAPE_DIFFERENCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
_NOISE_FACTOR = 10  # a difference counts if it is more than 10 times the difference that rounding makes


def unmeasurable_error(name: str, reason: str) -> BadInput:
    """Return the error for a model that cannot be measured. The reason is a clause, such as "its head is missing"."""
    return BadInput(f"model {name} cannot be measured: {reason}")


def draw_probes(config: Any, *, rows: int, parameters: int, max_length: int | None) -> Iterator[Tensor]:
    """Yield three batches of random token ids (2, length), on which a model is checked.

    Ids that the config names for a special purpose, such as the token of an image, are left out.

    Args:
        config: the model's transformers config.
        rows: the number of entries of its vocabulary.
        parameters: the number of its parameters. Larger models get shorter probes.
        max_length: the maximum length of a sequence in tokens, or None.

    """
    length = 2 * int(min(_MAX_TOKENS, max(_MIN_TOKENS, _MULTIPLY_ADDS / (7 * max(parameters, 1))))) + 3
    length = max(4, min(length, (max_length or length) - 2))
    special_ids = set(_special_ids(config.to_dict()))
    plain_ids = torch.tensor([token_id for token_id in range(min(rows, 4096)) if token_id not in special_ids] or [0])
    generator = torch.Generator().manual_seed(0)
    for _ in range(_PROBES):
        yield plain_ids[torch.randint(len(plain_ids), (2, length), generator=generator)]


def _special_ids(values: dict[Any, Any]) -> Iterator[int]:
    """Yield every token id that a transformers config or one of its sections names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _special_ids(value)
        elif isinstance(key, str) and "token" in key and ("id" in key or "index" in key):
            ids = value if isinstance(value, list) else [value]
            yield from (token_id for token_id in ids if isinstance(token_id, int))


def check_states(name: str, backbone: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> None:
    """Check that a model's states do not depend on later tokens, on padding on the right, or on the batch's length.

    Args:
        name: the model's name, for the error message.
        backbone: computes states (batch, length, width) of token ids (batch, length).
        batches: batches of token ids (2, length) on the model's device.

    Raises:
        BadInput: the states depend on one of these in every batch. A difference in only some batches is a rounding
            error.

    """
    problem = ""
    for tokens in batches:
        problem = _find_dependence(backbone, tokens)
        if not problem:
            return
    raise unmeasurable_error(name, problem)


def _find_dependence(backbone: Callable[[Tensor], Tensor], tokens: Tensor) -> str:
    """Say what changes the states of the first half of the sequences (2, length). Return "" if nothing does."""
    half = tokens.shape[1] // 2
    padded = tokens[0].clone()
    padded[half:] = 0  # batches are padded with zeros
    # The states of one first half, (half, width), in five surroundings.
    before_tokens, before_padding = backbone(torch.stack([tokens[0], padded]))[:, :half]
    difference = _relative_difference(before_tokens, before_padding)
    if difference > _MAX_DIFFERENCE:
        # Products of one shape have equal rounding errors. The products of a mixture of experts are the exception:
        # their shapes depend on all tokens of the batch, so rounding alone changes the states in another batch.
        in_other_batch = backbone(tokens)[0, :half]
        if difference > _NOISE_FACTOR * _relative_difference(in_other_batch, before_tokens):
            return (
                "its output at a token depends on later tokens, so it is not a causal language model. If it should be "
                "one, look at is_causal, is_decoder and use_bidirectional_attention in its config.json"
            )
    alone = backbone(tokens[:1, :half])[0]
    difference = _relative_difference(before_padding, alone)
    if difference > _MAX_SHAPE_DIFFERENCE[alone.dtype]:
        in_pair = backbone(tokens[:, :half])[0]
        if difference > _NOISE_FACTOR * _relative_difference(in_pair, alone):
            return "its states depend on the length of the batch, so the ranks of a text would depend on other texts"
    return ""


def _relative_difference(states: Tensor, other: Tensor) -> float:
    """Return the root mean square of `states - other` divided by the root mean square of `other`. NaN count as 0."""
    difference = (states - other).float().nan_to_num()
    size = other.float().nan_to_num()
    return float(difference.square().mean().sqrt() / size.square().mean().sqrt().clamp(min=1e-9))


def check_head(name: str, head_logits: Tensor, model_logits: Tensor, *, dtype: torch.dtype) -> tuple[float, float]:
    """Check that a model's own logits equal its hidden states times its head.

    Args:
        name: the model's name, for the error message.
        head_logits: logits (tokens, vocabulary) from states and head, float32.
        model_logits: the model's own logits of the same tokens, (tokens, vocabulary).
        dtype: the type of the model's weights. Half precision rounds more, so more difference is allowed.

    Returns:
        The largest difference and the largest allowed difference, both as a share of the largest logit.

    Raises:
        BadInput: the difference is larger than allowed.

    """
    difference = largest_difference(head_logits, model_logits)
    allowed = 1e-3 if dtype in (torch.float64, torch.float32) else 5e-2
    if difference > allowed:
        raise unmeasurable_error(
            name,
            f"its logits are not its hidden states times its head (relative difference {difference:.2g}, at most "
            f"{allowed:g} is allowed), so its ranks would be wrong",
        )
    return difference, allowed


def largest_difference(head_logits: Tensor, model_logits: Tensor) -> float:
    """Return the largest difference of two tensors of logits, as a share of the largest logit in `model_logits`.

    A NaN counts as 0.
    """
    difference = (head_logits - model_logits.float()).abs().nan_to_num().max()
    return float(difference / model_logits.float().abs().nan_to_num().max().clamp(min=1e-6))
