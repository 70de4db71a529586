"""The one pass over logits (`rbptrack.scoring.one_pass`), on the threads that torch would use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_LEAST_ROWS = 8  # of a thread


@cache
def available() -> bool:
    """Return whether numba is installed and works here; its import takes a fraction of a second."""
    if find_spec("numba") is None:
        return False
    try:
        _compiled()
    except ImportError:  # as of a numpy that is newer than numba knows
        return False
    return True


class OnePass:
    """Reduces logits with the calling thread's number of torch threads; one thread at a time calls it."""

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads, "rbptrack-rows") if self._threads > 1 else None

    def __call__(self, logits: Tensor, own: Tensor, *out: Tensor) -> None:
        """Write the `Sums` of logits (rows, vocabulary), given the targets' logits (rows,); ties count the target."""
        arrays = [tensor.numpy() for tensor in (logits.float().contiguous(), own, *out)]
        rows = len(own)
        if self._pool is None or rows < 2 * _LEAST_ROWS:
            _compiled().reduce(*arrays)
            return
        step = max(_LEAST_ROWS, -(-rows // self._threads))
        pieces = [slice(low, low + step) for low in range(0, rows, step)]
        list(self._pool.map(lambda piece: _compiled().reduce(*(array[piece] for array in arrays)), pieces))


@cache
def _compiled() -> Any:
    return import_module("rbptrack.scoring.one_pass")  # numba loads only where many tokens are scored
