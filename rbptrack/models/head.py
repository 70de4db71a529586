"""A model's output head as the scorer multiplies with it: weights, bias, scale and softcap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.models.architecture import text_config
from rbptrack.models.backbone import Unmeasurable
from rbptrack.models.device import resident
from rbptrack.models.probe import largest_difference
from rbptrack.models.quantised import is_matrix
from rbptrack.scoring.head import Head

_SOFTCAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
_ROUNDING = 1e-5  # of logits in float32, as a share of the largest


def head_of(output: nn.Module, config: Any, states: Tensor, whole: Tensor, *, candidates: int | None) -> Head:
    """The head of a model, with the scale and the softcap that its config names.

    Architectures read one key in different ways (Granite divides by `logits_scaling`, HyperCLOVA X multiplies by it):
    the way that gives the model's own logits is taken. Whether any does is for `probe.check_head` to say.

    Args:
        output: the model's output embeddings.
        config: the model's transformers config.
        states: what the head is given, (tokens, width).
        whole: the model's own logits of these tokens, (tokens, vocabulary).
        candidates: rank targets among the first so many rows; None: all that the model gives logits for.

    Raises:
        Unmeasurable: the head is not a matrix product with the vocabulary.

    """
    rows = min(whole.shape[-1], candidates or whole.shape[-1])  # some models drop padded rows after the product
    plain = _product(output, states, rows)
    heads = [replace(plain, scale=scale, softcap=softcap) for softcap in _softcaps(config) for scale in _scales(config)]
    if len(heads) == 1:
        return heads[0]
    product = plain.logits(states.to(plain.weight.device))
    whole = whole[:, :rows].to(product.device)
    ours = [replace(head, bias=None).finish(product.clone()) for head in heads]
    distances = [max(_ROUNDING, largest_difference(logits, whole)) for logits in ours]
    return heads[distances.index(min(distances))]


def _product(output: nn.Module, states: Tensor, rows: int) -> Head:
    """The head without scale and softcap: its first rows."""
    if hasattr(output, "base_layer"):
        raise Unmeasurable("its head has an adapter (LoRA): call merge_and_unload() and measure what that returns")
    weight = resident(output, "weight")
    bias = resident(output, "bias")
    width = getattr(output, "in_features", None)
    if weight is not None and not is_matrix(weight) and isinstance(width, int):
        entries = output(states[:1]).shape[-1]
        # Its numbers are packed: the module multiplies, and adds the bias; only shape and device of the weight count.
        shape = torch.zeros(1, 1, dtype=states.dtype, device=weight.device).expand(entries, width)
        return Head(weight=shape[:rows], product=output)
    if weight is None or weight.ndim != 2 or weight.shape[1] != states.shape[1] or weight.shape[0] < rows:
        raise Unmeasurable("its output embeddings are not one matrix")
    return Head(weight=weight[:rows], bias=None if bias is None else bias[:rows])


def _softcaps(config: Any) -> list[float | None]:
    """What may cap logits; first what the config says, for where logits are too small to tell."""
    return [*_named(config, _SOFTCAPS), None]


def _scales(config: Any) -> list[float]:
    named = list(_named(config, _SCALES))
    return [1.0, *named, *(1 / number for number in named)]


def _named(config: Any, names: tuple[str, ...]) -> Iterator[float]:
    """The numbers that a config, or its text part, gives for these keys."""
    text = text_config(config)
    for name in names:
        number = getattr(text, name, None)
        if isinstance(number, int | float) and number not in (0, 1):
            yield float(number)
