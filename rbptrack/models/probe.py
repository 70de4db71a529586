"""What must hold of a model before it is measured: states that depend on earlier tokens only, and the model's own head.

A model that reads later tokens, or padding, or whose states depend on how long a batch is, gives ranks that look good
and are wrong. Each is tried on a few tokens when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rbptrack.base.errors import BadInput

_WORK = 2e9  # multiply-adds that the probes of one model may take: a fraction of a second
_MAX_TOKENS = 64  # of half a probe
_MIN_TOKENS = 12
_DRAWS = 3  # a mixture of experts may send a token elsewhere for a rounding error: a leak shows in every draw
# How far states may be apart, as a share of their size: where products of one shape round alike, and of several shapes.
_SAME = 1e-6
_CLOSE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 1e-2}
_NOISE = 10  # times what rounding alone makes of them


def refused(name: str, why: str) -> BadInput:
    """Make the error for a model whose ranks would be wrong."""
    return BadInput(f"model {name} cannot be measured: {why}")


def probes(config: Any, *, rows: int, parameters: int, longest: int | None) -> Iterator[Tensor]:
    """Yield token ids (2, length) for a few probes: none that the config gives a meaning of its own, such as an
    image's.

    Args:
        config: the model's transformers config.
        rows: entries of its vocabulary.
        parameters: how many it has; larger models are given fewer tokens.
        longest: the most tokens that it reads, or None.

    """
    length = 2 * int(min(_MAX_TOKENS, max(_MIN_TOKENS, _WORK / (7 * max(parameters, 1))))) + 3
    length = max(4, min(length, (longest or length) - 2))
    special = set(_named_tokens(config.to_dict()))
    plain = torch.tensor([i for i in range(min(rows, 4096)) if i not in special] or [0])
    generator = torch.Generator().manual_seed(0)
    for _ in range(_DRAWS):
        yield plain[torch.randint(len(plain), (2, length), generator=generator)]


def _named_tokens(values: dict[Any, Any]) -> Iterator[int]:
    """Yield every token id that a transformers config names, in its sections too."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _named_tokens(value)
        elif isinstance(key, str) and "token" in key and ("id" in key or "index" in key):
            ids = value if isinstance(value, list) else [value]
            yield from (number for number in ids if isinstance(number, int))


def check_states(name: str, backbone: Callable[[Tensor], Tensor], draws: Iterator[Tensor]) -> None:
    """Refuse a model whose earlier states change with later tokens, with padding on the right or with batch length.

    Args:
        name: of the model.
        backbone: token ids (batch, length) to states (batch, length, width).
        draws: token ids (2, length) on the model's device; what differs in one draw only is rounding.

    """
    dependence = ""
    for tokens in draws:
        dependence = _dependence(backbone, tokens)
        if not dependence:
            return
    raise refused(name, dependence)


def _dependence(backbone: Callable[[Tensor], Tensor], tokens: Tensor) -> str:
    """Say which other inputs change the states of the first half of a sequence; empty if none does."""
    half = tokens.shape[1] // 2
    padded = tokens[0].clone()
    padded[half:] = 0  # as batches are padded
    followed, by_padding = backbone(torch.stack([tokens[0], padded]))[:, :half]  # (half, width)
    moved = _distance(followed, by_padding)
    if moved > _SAME:
        # In one shape the same products round alike, but for experts, whose shares of a batch depend on all its tokens.
        again = backbone(tokens)[0, :half]
        if moved > _NOISE * _distance(again, followed):
            return (
                "its output at a token depends on later tokens: it cannot predict the next one (it is not a causal "
                "language model, or its config says so: is_causal, is_decoder, use_bidirectional_attention)"
            )
    alone = backbone(tokens[:1, :half])[0]
    moved = _distance(by_padding, alone)
    if moved > _CLOSE[alone.dtype]:
        beside_another = backbone(tokens[:, :half])[0]
        if moved > _NOISE * _distance(beside_another, alone):
            return "its states depend on the length of the batch: a text's ranks would depend on other texts"
    return ""


def _distance(states: Tensor, other: Tensor) -> float:
    """Root mean square of the difference of states (tokens, width), as a share of theirs; a NaN does not count."""
    difference = (states - other).float().nan_to_num()
    size = other.float().nan_to_num()
    return float(difference.square().mean().sqrt() / size.square().mean().sqrt().clamp(min=1e-9))


def check_head(name: str, ours: Tensor, whole: Tensor, *, dtype: torch.dtype) -> tuple[float, float]:
    """Refuse a model whose own logits are not states times head, (tokens, vocabulary).

    Returns the largest difference, as a share of the largest logit, and what it may be.

    Args:
        name: of the model.
        ours: logits from the split model, float32.
        whole: the model's, of the same tokens.
        dtype: of its weights: half precision rounds otherwise.

    """
    worst = largest_difference(ours, whole)
    allowed = 1e-3 if dtype == torch.float32 else 5e-2
    if worst > allowed:
        raise refused(
            name,
            f"its logits are not its hidden states times its head (relative difference {worst:.2g}, at most "
            f"{allowed:g} may be), so its ranks would be wrong",
        )
    return worst, allowed


def largest_difference(ours: Tensor, whole: Tensor) -> float:
    """The largest difference of logits, as a share of the largest logit of the whole model; a NaN does not count."""
    difference = (ours - whole.float()).abs().nan_to_num().max()
    return float(difference / whole.float().abs().nan_to_num().max().clamp(min=1e-6))
