"""Time the operations of a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Speed:
    """The speed of a device: FLOPs of matrix products per second, and elements per second of other operations."""

    flops: float
    elements: float


GPU_SPEED = Speed(flops=1e14, elements=5e11)
"""The speed that is assumed for a GPU that this process does not have: about half of an A100's."""

_TIMED_SECONDS = 0.03  # shortest time of the computations that are timed


@cache
def measure_speed(device: Any, dtype: str) -> Speed:
    """Time matrix products and exponentials on a device, once for each device and precision."""
    import torch

    rows = 512
    width = 1024
    states = torch.ones(rows, width, device=device, dtype=getattr(torch, dtype))
    weight = torch.ones(4 * width, width, device=device, dtype=getattr(torch, dtype))
    logits = torch.zeros(rows, 4 * width, device=device)

    def rate(compute: Callable[[], Any]) -> float:
        """Return how often a computation can be made in a second."""
        number = 1
        while True:
            began = time.perf_counter()
            for _ in range(number):
                result = compute()
            float(result[0, 0])  # reading a number waits until the device has finished
            seconds = time.perf_counter() - began
            # The first time is not used, because it includes initialisation. The start of one product takes longer than
            # its computation on a GPU. Many products compute while others start.
            if number > 1 and seconds >= _TIMED_SECONDS:
                return number / seconds
            number *= 2

    products = rate(lambda: states @ weight.T)
    exponentials = rate(lambda: torch.exp(logits, out=logits).zero_())
    return Speed(2.0 * rows * width * 4 * width * products, 2.0 * logits.numel() * exponentials)
