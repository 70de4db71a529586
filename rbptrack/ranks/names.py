"""Make and parse the names of metrics (`ce`, `rbp_10`, `rbp_10_se`), and choose and check values of k."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import BadInput

IntArray = npt.NDArray[Any]
"""The type of an array of whole numbers."""

FloatArray = npt.NDArray[Any]
"""The type of an array of floating-point numbers."""

CE = "ce"
"""The name of cross-entropy as a metric and as a column."""

HEADLINE_KS = (1, 10, 100)
"""The k that summaries show and that analyzers use by default."""

_RBP_NAME = re.compile(r"rbp_([1-9]\d{0,9})")  # at most 10 digits: k is never larger, and int() refuses 5,000 digits


def rbp_name(k: int) -> str:
    """Return the name of RBP_k as a metric and as a column, such as `rbp_10`."""
    return f"rbp_{k}"


def se_name(metric: str) -> str:
    """Return the name of a metric's standard error, such as `rbp_10_se`."""
    return f"{metric}_se"


@lru_cache(maxsize=4096)  # a store has thousands of runs with the same names
def parse_rbp_name(name: str) -> int | None:
    """Return the k of a name `rbp_<k>`. Return None for any other name, such as `rbp_10_se`."""
    match = _RBP_NAME.fullmatch(name)
    return int(match[1]) if match else None


def rbp_ks(names: Iterable[str]) -> list[int]:
    """Return the k of all names `rbp_<k>` in a list of names, ascending."""
    return sorted(k for name in names if (k := parse_rbp_name(name)) is not None)


def is_rbp_column(name: str) -> bool:
    """Return whether a name is `rbp_<k>` or its standard error `rbp_<k>_se`."""
    return parse_rbp_name(name.removesuffix("_se")) is not None


def metric_label(metric: str) -> str:
    """Return a metric's name for tables and sentences, such as `CE` or `RBP_10`."""
    return metric.upper()


@lru_cache(maxsize=256)  # all measurements of a store ask for the same grid
def log_grid(largest: int, *, per_decade: int = 12) -> IntArray:
    """Return integers from 1 to `largest`, both included, that are about evenly spaced in ln k.

    Small integers are all included.
    """
    steps = max(2, int(np.log10(max(largest, 2)) * per_decade) + 1)
    grid = np.unique(np.rint(np.geomspace(1, largest, steps)).astype(np.int64))
    grid.flags.writeable = False  # the cache returns the same array to all callers
    return grid


def check_k(k: object, vocab_size: float = inf) -> int:
    """Return k as an int. Raises BadInput if it is not a whole number from 1 to |V|, or of at least 1 without |V|."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= vocab_size:
        allowed = "of at least 1" if vocab_size == inf else f"from 1 to {vocab_size}, the vocabulary's size"
        raise BadInput(f"k must be a whole number {allowed}; got {k!r:.40}")
    return int(k)


def check_ks(ks: object) -> list[int]:
    """Return one k or several as a list of int. Raises BadInput if a k is not a whole number of at least 1."""
    return [check_k(k) for k in (ks if isinstance(ks, Iterable) else [ks])]
