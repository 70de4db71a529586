"""Read the output head of a model: weight, bias, scale and softcap."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from rbptrack.models.architecture import text_config
from rbptrack.models.backbone import Unmeasurable
from rbptrack.models.config_file import LOGIT_SCALES, LOGIT_SOFTCAPS
from rbptrack.models.device import parameter_on_device
from rbptrack.models.probe import largest_difference
from rbptrack.models.quantised import is_matrix
from rbptrack.scoring.head import Head

_ROUNDING = 1e-5  # rounding error of float32 logits, as a share of the largest logit


def read_head(
    output: nn.Module, config: Any, states: Tensor, model_logits: Tensor, *, num_candidates: int | None
) -> Head:
    """Return the head of a model, with the scale and the softcap that the model's config names.

    Architectures read one key of a config in different ways: Granite divides by `logits_scaling`, HyperCLOVA X
    multiplies by it. The function returns the head whose logits are closest to the model's own. It does not check that
    they are close enough (`probe.check_head` does).

    Args:
        output: the model's output embeddings.
        config: the model's transformers config.
        states: the head's input of a few tokens, (tokens, width).
        model_logits: the model's own logits of these tokens, (tokens, vocabulary).
        num_candidates: the number of rows, from the first, among which targets are ranked. None means all rows for
            which the model returns logits.

    Raises:
        Unmeasurable: the head is not a matrix product with the vocabulary, or has an adapter.

    """
    rows = model_logits.shape[-1]  # fewer than the head has, if the model drops padded rows after the product
    if num_candidates:
        rows = min(rows, num_candidates)
    plain_head = _read_plain_head(output, states, rows)
    # If the logits of the probe are too small to tell softcaps apart, the first one is taken: that of the config.
    softcaps = [*_config_numbers(config, LOGIT_SOFTCAPS), None]
    scales = _config_numbers(config, LOGIT_SCALES)
    scales = [1.0, *scales, *(1 / scale for scale in scales)]
    heads = [replace(plain_head, scale=scale, softcap=softcap) for softcap, scale in product(softcaps, scales)]
    if len(heads) == 1:
        return heads[0]
    plain_logits = plain_head.logits(states.to(plain_head.weight.device))
    model_logits = model_logits[:, :rows].to(plain_logits.device)
    head_logits = [replace(head, bias=None).finish(plain_logits.clone()) for head in heads]
    # Heads whose logits differ by rounding only are equally close. The first of them is returned.
    distances = [max(_ROUNDING, largest_difference(logits, model_logits)) for logits in head_logits]
    return heads[distances.index(min(distances))]


def _read_plain_head(output: nn.Module, states: Tensor, rows: int) -> Head:
    """Return the first rows of a head, without scale and softcap."""
    if hasattr(output, "base_layer"):
        raise Unmeasurable("its head has an adapter (LoRA): call merge_and_unload() and measure the model it returns")
    weight = parameter_on_device(output, "weight")
    bias = parameter_on_device(output, "bias")
    width = getattr(output, "in_features", None)
    if weight is not None and not is_matrix(weight) and isinstance(width, int):
        head_rows = output(states[:1]).shape[-1]
        # The weight is packed, so the module itself multiplies and adds the bias. The placeholder takes no memory. Only
        # its shape and device are used.
        placeholder = torch.zeros(1, 1, dtype=states.dtype, device=weight.device).expand(head_rows, width)
        return Head(weight=placeholder[:rows], product=output)
    if weight is None or weight.ndim != 2 or weight.shape[1] != states.shape[1] or weight.shape[0] < rows:
        raise Unmeasurable("its output embeddings are not one matrix")
    return Head(weight=weight[:rows], bias=None if bias is None else bias[:rows])


def _config_numbers(config: Any, names: tuple[str, ...]) -> list[float]:
    """Return the numbers that a config's text part has under some names, without 0 and 1, which mean no change."""
    numbers = [getattr(text_config(config), name, None) for name in names]
    return [float(number) for number in numbers if isinstance(number, int | float) and number not in (0, 1)]
