"""Names of metrics and columns: `ce`, `rbp_10`, `rbp_10_se`; and the logged k."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import BadInput

IntArray = npt.NDArray[Any]
"""An array of whole numbers, as a type."""

FloatArray = npt.NDArray[Any]
"""An array of numbers, as a type."""

CE = "ce"
"""Cross-entropy as a metric and as a column."""

HEADLINE_KS = (1, 10, 100)
"""The k that summaries show, and that analyzers begin with."""

_RBP_NAME = re.compile(r"rbp_([1-9]\d{0,9})")  # longer ones are no k, and Python reads no number of 5,000 digits


def rbp_name(k: int) -> str:
    """RBP_k as a metric and as a column: `rbp_10`."""
    return f"rbp_{k}"


def se_name(metric: str) -> str:
    """A metric's standard error: `rbp_10_se`, `ce_se`."""
    return f"{metric}_se"


@lru_cache(maxsize=4096)  # a store has thousands of runs, and they have the same names
def parse_rbp_name(name: str) -> int | None:
    """The k of `rbp_<k>`; None for every other name, a standard error's (`rbp_10_se`) included."""
    matched = _RBP_NAME.fullmatch(name)
    return int(matched[1]) if matched else None


def rbp_ks(names: Iterable[str]) -> list[int]:
    """The k of every `rbp_<k>` among these names, ascending."""
    return sorted(k for name in names if (k := parse_rbp_name(name)) is not None)


def is_rbp_column(name: str) -> bool:
    """Whether a name is `rbp_<k>` or its standard error `rbp_<k>_se`."""
    return parse_rbp_name(name.removesuffix("_se")) is not None


def metric_label(metric: str) -> str:
    """A metric's name in tables and sentences: `CE`, `RBP_10`."""
    return metric.upper()


@lru_cache(maxsize=256)  # every measurement of a store asks for the same
def log_grid(largest: int, *, per_decade: int = 12) -> IntArray:
    """Integers from 1 to `largest`, about even in ln k: every one while they are sparse, both ends included."""
    steps = max(2, int(np.log10(max(largest, 2)) * per_decade) + 1)
    grid = np.unique(np.rint(np.geomspace(1, largest, steps)).astype(np.int64))
    grid.flags.writeable = False  # shared
    return grid


def check_k(k: object, vocab_size: int) -> int:
    """Return k if it is a whole number from 1 to |V|; BadInput otherwise."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= vocab_size:
        raise BadInput(f"k must be a whole number from 1 to {vocab_size}, the vocabulary's size; got {k!r:.40}")
    return int(k)
