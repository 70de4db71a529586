"""Numbers in sentences: counts with their noun, and several values that nobody takes for an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

_LISTED = 3  # values: so many are said one by one


def number(value: float, form: str) -> str:
    """The value in a form such as `.3f`, `+.3f` or `.0%`; never `-0.000`, which is no number."""
    sign = form[:1] if form[:1] in "+- " else ""
    return format(float(value), f"{sign}z{form[len(sign) :]}")


def at_least(value: float, digits: int) -> str:
    """A lower bound, rounded down: an R^2 of 0.99996 is `0.9999`, and `1.0000` only where it is 1."""
    return f"{np.floor(float(value) * 10**digits) / 10**digits:.{digits}f}"


def p_in_words(p: float) -> str:
    """`p = 0.16`, `p = 0.004`; `p < 0.001` and `p > 0.99` where rounding would make it 0 or 1."""
    if p < 0.001:
        return "p < 0.001"
    return "p > 0.99" if p > 0.99 else f"p = {p:.2g}"


def be(number: int) -> str:
    """The verb of so many: `is` or `are`."""
    return "is" if number == 1 else "are"


def counted(number: int, noun: str) -> str:
    """`1 size`, `1,200 sizes`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def some_of(number: int, total: int, noun: str) -> str:
    """`none of 24 cases`, `3 of 24 cases`, `all 24 cases`; `the one case` where there is no other."""
    if number == total:
        return f"all {counted(total, noun)}" if total > 1 else f"the one {noun}"
    return f"{f'{number:,}' if number else 'none'} of {counted(total, noun)}"


def tallied(counts: Mapping[str, int]) -> str:
    """`larger in 1 and undecided in 2`: what occurs, without what does not."""
    return listed([f"{word} in {number:,}" for word, number in counts.items() if number])


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def spread(values: npt.ArrayLike, form: str, names: Sequence[str] = (), *, unit: str = "") -> str:
    """Several values in a few words: `0.112`, `0.112 (wiki) and 0.157 (c4)`, `between 0.112 and 0.157 (24 values)`.

    Up to three values are listed, and more are counted: `0.112 to 0.157` alone would read as an interval.

    Args:
        values: one or more numbers.
        form: how to print one, such as `.3f` or `.0%`.
        names: what each is of, where a reader would ask.
        unit: said after the last of them.

    """
    said = f" {unit}" if unit else ""
    every = np.asarray(values, dtype=np.float64)
    if len(every) <= _LISTED:
        texts = [number(value, form) for value in every]
        if len(set(texts)) == 1:
            return texts[0] + said
        return listed([f"{text} ({name})" for text, name in zip(texts, names, strict=True)] if names else texts) + said
    low, high = number(every.min(), form), number(every.max(), form)
    return low + said if low == high else f"between {low} and {high}{said} ({len(every)} values)"
