"""One pass over logits on a CPU: counts, maximum, exponentials and entropy while a stretch of a row is in the cache.

Compiled by numba where that is installed (the extra `fast`). Counts and the largest entry are exact; sums are float32
in stretches, float64 across them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

Function = Callable[..., Any]
_STRETCH = 2048  # entries, 8 kB: they stay in the innermost cache while they are read three times
_LOG2_E = np.float32(1.4426950408889634)
_MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: added, it leaves a float32's nearest integer in its lowest bits
_LEAST = np.float32(-126.0)  # 2^-126 is the smallest normal number: what entries of -inf, as a mask gives them, add
_INT_MAX = np.int32(0x7FFFFFFF)


def _compiled(*, reorder: bool = False) -> Callable[[Function], Function]:
    """Return a decorator: machine code, cached on disk, that runs beside other threads; `reorder`: sums in any
    order.
    """
    fastmath = {"contract", *(("reassoc", "nsz") if reorder else ())}  # NaN and infinity keep their meaning
    compiler: Callable[[Function], Function] = njit(nogil=True, cache=True, fastmath=fastmath)
    return compiler


@_compiled()
def _power(y: Any) -> Any:
    """Return 2^y for y at most 0, to 1e-7; the polynomial is that of Cephes' exp2f. NaN for a NaN."""
    y = _LEAST if y < _LEAST else y
    shifted = np.float32(y + _MAGIC)
    f = y - (shifted - _MAGIC)
    p = np.float32(1.535336188319500e-4)
    p = p * f + np.float32(1.339887440266574e-3)
    p = p * f + np.float32(9.618437357674640e-3)
    p = p * f + np.float32(5.550332471162809e-2)
    p = p * f + np.float32(2.402264791363012e-1)
    p = p * f + np.float32(6.931472028550421e-1)
    p = p * f + np.float32(1.0)
    exponent = np.int32((shifted.view(np.int32) + np.int32(127)) << np.int32(23))
    return p * exponent.view(np.float32)


@_compiled(reorder=True)
def _compared(row: Any, own: Any) -> Any:
    """Count the entries above `own`, and those equal to it."""
    greater = np.int32(0)
    equal = np.int32(0)
    for i in range(len(row)):
        greater += np.int32(row[i] > own)
        equal += np.int32(row[i] == own)
    return greater, equal


@_compiled(reorder=True)
def _largest(row: Any) -> Any:
    """Return the largest entry. Floats are compared as integers in the same order, which vectorises and is exact."""
    largest = np.int32(-2147483648)
    for i in range(len(row)):
        bits = np.float32(row[i]).view(np.int32)
        largest = np.int32(max(largest, np.int32(bits ^ ((bits >> np.int32(31)) & _INT_MAX))))
    return np.int32(largest ^ ((largest >> np.int32(31)) & _INT_MAX)).view(np.float32)


@_compiled(reorder=True)
def _summed(row: Any, highest: Any) -> Any:
    """Return the sums of e^(x - highest) and of (x - highest) e^(x - highest)."""
    total = np.float32(0)
    weighted = np.float32(0)
    for i in range(len(row)):
        y = row[i] - highest
        y = _LEAST if y < _LEAST else y  # a NaN stays one
        power = _power(y * _LOG2_E)
        total += power
        weighted += power * y
    return total, weighted


@_compiled()
def reduce(logits: Any, own: Any, greater: Any, equal: Any, top: Any, highest: Any, total: Any, weighted: Any) -> None:
    """Write the sums of logits (rows, vocabulary), float32, C-contiguous; see `Sums`.

    A row that holds a NaN or an infinity above all, or nothing but -inf, has the total NaN.
    """
    for r in range(logits.shape[0]):
        row = logits[r]
        vocabulary = logits.shape[1]
        count_greater = 0
        count_equal = 0
        begin = 0
        largest = np.float32(-np.inf)
        sum_powers = 0.0
        sum_weighted = 0.0
        for low in range(0, vocabulary, _STRETCH):
            stretch = row[low : min(low + _STRETCH, vocabulary)]
            above, same = _compared(stretch, own[r])
            count_greater += above
            count_equal += same
            here = _largest(stretch)
            if here > largest:
                shift = np.float64(largest) - np.float64(here)
                if shift == -np.inf:  # nothing but -inf until now
                    sum_powers = sum_powers * 0.0
                    sum_weighted = 0.0
                else:
                    factor = np.exp(shift)
                    sum_weighted = (sum_weighted + shift * sum_powers) * factor
                    sum_powers *= factor
                largest = here
                begin = low
            powers, products = _summed(stretch, np.float32(0) if largest == -np.inf else largest)
            sum_powers += powers
            sum_weighted += products
        i = begin
        while i < vocabulary - 1 and row[i] != largest:
            i += 1
        greater[r] = count_greater
        equal[r] = count_equal
        top[r] = i
        highest[r] = largest
        total[r] = np.nan if largest == -np.inf else sum_powers
        weighted[r] = sum_weighted
