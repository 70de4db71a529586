"""Set a model to evaluation mode and full precision for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from rbptrack.models.precision import float32_products


@contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Set a caller's model to evaluation mode and full precision for a block. Restore every setting afterwards.

    Within the block the model computes in the precision of its weights. Autocast is off, including the autocast that
    accelerate wraps around the forward pass of a model that it trains in mixed precision. TF32 is off even if the
    process has switched it on (Trainer does this with tf32=True), because the measurement is recorded as float32.

    Each part gets its own mode back: a frozen part is often in evaluation mode within a model that trains.
    """
    modes = [(part, part.training) for part in module.modules()]
    # RWKV divides its weights by powers of two before it evaluates, and multiplies them before it trains.
    rwkv_parts = [part for part in module.modules() if getattr(part, "layers_are_rescaled", None) is False]
    # accelerate replaces `forward` by a wrapper, and keeps the model's own function as `_original_forward`.
    wrapped_forward = vars(module).get("forward")
    original_forward = vars(module).get("_original_forward")
    is_wrapped = wrapped_forward is not None and original_forward is not None
    try:
        module.eval()
        if is_wrapped:
            module.forward = original_forward
        device = next(module.parameters()).device.type
        with torch.autocast(device, enabled=False), float32_products():
            yield
    finally:
        if is_wrapped:
            module.forward = wrapped_forward
        for part in rwkv_parts:
            part.training = True
            part._rescale_layers()
        for part, training in modes:
            part.training = training
