"""Compare computed numbers without regard to rounding errors, so that answers do not depend on the processor.

The order of additions differs between processors and libraries. Two sums of the same numbers can differ by a relative
error of about 1e-15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rbptrack.ranks import FloatArray

ROUNDING = 1e-13
"""Relative differences below this count as rounding errors."""

TIED = 1e-9
"""Relative differences below this count as no difference.

Fits end within about 1e-10 of the optimum, and a difference of 1e-9 has no practical meaning.
"""


def first_largest(values: FloatArray | Sequence[float]) -> int:
    """Return the index of the largest value, the first one if values are tied (within `TIED`). NaN are ignored.

    Raises ValueError if all values are NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    largest = array[int(np.nanargmax(array))]
    tied = array >= largest - TIED * abs(largest) if np.isfinite(largest) else array == largest
    return int(np.flatnonzero(tied)[0])


def first_smallest(values: FloatArray | Sequence[float]) -> int:
    """Return the index of the smallest value, the first one if values are tied (within `TIED`). NaN are ignored.

    Raises ValueError if all values are NaN.
    """
    return first_largest(-np.asarray(values, dtype=np.float64))


def all_equal(values: FloatArray | Sequence[float]) -> bool:
    """Return whether all values are equal up to rounding errors. The values must be finite."""
    array = np.asarray(values, dtype=np.float64)
    return bool(np.ptp(array) <= ROUNDING * np.abs(array).max())


def significant(values: FloatArray) -> FloatArray:
    """Round values to 12 significant digits.

    Values that differ only by rounding errors become equal, unless a boundary between two rounded values lies between
    them.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        magnitude = np.floor(np.log10(np.abs(values)))
        scale = 10.0 ** np.where(np.isfinite(magnitude), np.minimum(11 - magnitude, 300), 0.0)
        return np.asarray(np.round(values * scale) / scale)
