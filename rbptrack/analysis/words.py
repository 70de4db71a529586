"""Numbers in sentences: counts with their noun, and several values that nobody takes for an interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def counted(number: int, noun: str) -> str:
    """`1 size`, `1,200 sizes`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def spread(values: npt.ArrayLike, form: str) -> str:
    """Several values in a few words: `0.112`, `0.112 and 0.157`, `from 0.112 to 0.157 (24 values)`.

    Two values are joined by `and`, and more are counted: `0.112 to 0.157` alone would read as an interval.

    Args:
        values: one or more numbers.
        form: how to print one, such as `.3f` or `.0%`.

    """
    every = np.sort(np.asarray(values, dtype=np.float64))
    texts = list(dict.fromkeys(format(float(value), form) for value in every))
    if len(texts) <= 2:
        return " and ".join(texts)
    return f"from {texts[0]} to {texts[-1]} ({len(every)} values)"
