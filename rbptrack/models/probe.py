"""Checks on a few tokens that a model can be measured, when it is loaded.

The hidden states of a token must not depend on later tokens, on padding or on the length of the batch. The logits must
equal states times head. Otherwise the ranks could look good and be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rbptrack.base.errors import BadInput

_WORK = 2e9  # multiply-adds that the probes of one model may take, which is a fraction of a second
_MAX_TOKENS = 64  # in half a probe
_MIN_TOKENS = 12
# A rounding error can make a mixture of experts send a token to another expert. That happens in some of the draws, but
# a model that reads later tokens differs in every draw.
_PROBES = 3
# The largest allowed difference of states, as a share of their size. Products of one shape round alike (_SAME); those
# of different shapes do not (_CLOSE).
_SAME = 1e-6
_CLOSE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
_NOISE = 10  # a difference counts if it is more than 10 times the difference that rounding makes


def not_measurable(name: str, why: str) -> BadInput:
    """Return the error for a model that cannot be measured.

    Args:
        name: the model's name.
        why: the reason, as a clause such as "its head is missing".

    """
    return BadInput(f"model {name} cannot be measured: {why}")


def probes(config: Any, *, rows: int, parameters: int, longest: int | None) -> Iterator[Tensor]:
    """Yield three batches of random token ids (2, length), on which a model is checked.

    Ids that the config names for a special purpose, such as the token of an image, are left out.

    Args:
        config: the model's transformers config.
        rows: the number of entries of its vocabulary.
        parameters: the number of its parameters. Larger models get shorter probes.
        longest: the maximum length of a sequence in tokens, or None.

    """
    length = 2 * int(min(_MAX_TOKENS, max(_MIN_TOKENS, _WORK / (7 * max(parameters, 1))))) + 3
    length = max(4, min(length, (longest or length) - 2))
    special = set(_named_tokens(config.to_dict()))
    plain = torch.tensor([i for i in range(min(rows, 4096)) if i not in special] or [0])
    generator = torch.Generator().manual_seed(0)
    for _ in range(_PROBES):
        yield plain[torch.randint(len(plain), (2, length), generator=generator)]


def _named_tokens(values: dict[Any, Any]) -> Iterator[int]:
    """Yield every token id that a transformers config or one of its sections names."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _named_tokens(value)
        elif isinstance(key, str) and "token" in key and ("id" in key or "index" in key):
            ids = value if isinstance(value, list) else [value]
            yield from (number for number in ids if isinstance(number, int))


def check_states(name: str, backbone: Callable[[Tensor], Tensor], draws: Iterator[Tensor]) -> None:
    """Check that a model's states do not depend on later tokens, on padding on the right, or on the batch's length.

    Args:
        name: the model's name, for the error message.
        backbone: computes states (batch, length, width) of token ids (batch, length).
        draws: batches of token ids (2, length) on the model's device.

    Raises:
        BadInput: the states differ in every draw. A difference in some draws only is a rounding error.

    """
    dependence = ""
    for tokens in draws:
        dependence = _dependence(backbone, tokens)
        if not dependence:
            return
    raise not_measurable(name, dependence)


def _dependence(backbone: Callable[[Tensor], Tensor], tokens: Tensor) -> str:
    """Return a message on what changes the states of the first half of a sequence. Empty if nothing does."""
    half = tokens.shape[1] // 2
    padded = tokens[0].clone()
    padded[half:] = 0  # batches are padded with zeros
    followed, by_padding = backbone(torch.stack([tokens[0], padded]))[:, :half]  # (half, width)
    moved = _distance(followed, by_padding)
    if moved > _SAME:
        # Products of one shape round alike. Experts are the exception: the shapes of their products depend on all
        # tokens of the batch.
        again = backbone(tokens)[0, :half]
        if moved > _NOISE * _distance(again, followed):
            return (
                "its output at a token depends on later tokens, so it is not a causal language model. If it should be "
                "one, look at is_causal, is_decoder and use_bidirectional_attention in its config.json"
            )
    alone = backbone(tokens[:1, :half])[0]
    moved = _distance(by_padding, alone)
    if moved > _CLOSE[alone.dtype]:
        beside_another = backbone(tokens[:, :half])[0]
        if moved > _NOISE * _distance(beside_another, alone):
            return "its states depend on the length of the batch, so the ranks of a text would depend on other texts"
    return ""


def _distance(states: Tensor, other: Tensor) -> float:
    """Return the root mean square of `states - other` divided by that of `other`. A NaN counts as 0."""
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
    worst = largest_difference(head_logits, model_logits)
    allowed = 1e-3 if dtype == torch.float32 else 5e-2
    if worst > allowed:
        raise not_measurable(
            name,
            f"its logits are not its hidden states times its head (relative difference {worst:.2g}, at most "
            f"{allowed:g} is allowed), so its ranks would be wrong",
        )
    return worst, allowed


def largest_difference(head_logits: Tensor, model_logits: Tensor) -> float:
    """Return the largest difference of two tensors of logits, as a share of the largest logit in `model_logits`.

    A NaN counts as 0.
    """
    difference = (head_logits - model_logits.float()).abs().nan_to_num().max()
    return float(difference / model_logits.float().abs().nan_to_num().max().clamp(min=1e-6))
