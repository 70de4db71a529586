"""Comparisons of computed numbers whose answer does not depend on the last bit, and so not on the processor.

Processors and libraries add in different orders. The same sums then differ by about 1e-15 of what is added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rbptrack.ranks import FloatArray

ROUNDING = 1e-13
"""Relative: smaller differences are rounding errors, such as those of sums in another order."""

TIED = 1e-9
"""Relative: numbers that differ by less count as equal if the first of the best is looked for.

Fits end within about 1e-10 of the optimum. Nobody reads a difference of 1e-9.
"""


def first_largest(values: FloatArray | Sequence[float]) -> int:
    """The index of the largest value: of values that are tied (within `TIED`) the first. NaN are left out.

    Raises:
        ValueError: all values are NaN.

    """
    array = np.asarray(values, dtype=np.float64)
    largest = array[int(np.nanargmax(array))]
    tied = array >= largest - TIED * abs(largest) if np.isfinite(largest) else array == largest
    return int(np.flatnonzero(tied)[0])


def first_smallest(values: FloatArray | Sequence[float]) -> int:
    """The index of the smallest value: of values that are tied (within `TIED`) the first. NaN are left out."""
    return first_largest(-np.asarray(values, dtype=np.float64))


def all_equal(values: FloatArray | Sequence[float]) -> bool:
    """Whether finite values differ by rounding errors only."""
    array = np.asarray(values, dtype=np.float64)
    return bool(np.ptp(array) <= ROUNDING * np.abs(array).max())


def significant(values: FloatArray, digits: int = 12) -> FloatArray:
    """The values to 12 significant digits, so that values which differ by rounding errors are equal."""
    with np.errstate(divide="ignore", invalid="ignore"):
        magnitude = np.floor(np.log10(np.abs(values)))
        scale = 10.0 ** np.where(np.isfinite(magnitude), np.minimum(digits - 1 - magnitude, 300), 0.0)
        return np.asarray(np.round(values * scale) / scale)
