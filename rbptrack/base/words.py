"""Numbers, counts and paths as people write them, in sentences and in tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import humanize

_LISTED = 3  # values: so many are listed one by one
_UNKNOWN_SECONDS = 1e8
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MARKDOWN = re.compile(r"[\\|`*\[\]<>&~]|(?<!\w)_|_(?!\w)")  # an underscore inside a word is none
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, form: str) -> str:
    """Return the value in a form such as `.3f`, `+.3f` or `.0%`; never `-0.000`, which is no number."""
    sign = form[:1] if form[:1] in "+- " else ""
    return format(float(value), f"{sign}z{form[len(sign) :]}")


def at_least(value: float, digits: int) -> str:
    """Return a lower bound, rounded down: an R^2 of 0.99996 is `0.9999`, and `1.0000` only where it is 1."""
    return f"{math.floor(float(value) * 10**digits) / 10**digits:.{digits}f}"


def p_in_words(p: float) -> str:
    """Return `p = 0.16`, `p = 0.004`; `p < 0.001` and `p > 0.99` where rounding would make it 0 or 1."""
    if p < 0.001:
        return "p < 0.001"
    return "p > 0.99" if p > 0.99 else f"p = {p:.2g}"


def be(number: int) -> str:
    """Return the verb of so many: `is` or `are`."""
    return "is" if number == 1 else "are"


def counted(number: int, noun: str) -> str:
    """Return `1 size`, `1,200 sizes`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def some_of(number: int, total: int, noun: str) -> str:
    """Return `none of 24 cases`, `3 of 24 cases`, `all 24 cases`; `the one case` if it is the only one."""
    if number == total:
        return f"all {counted(total, noun)}" if total > 1 else f"the one {noun}"
    return f"{f'{number:,}' if number else 'none'} of {counted(total, noun)}"


def listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def spread(values: Iterable[float], form: str, names: Sequence[str] = (), *, unit: str = "") -> str:
    """Return several values in a few words: `0.112`, `0.112 (wiki) and 0.157 (c4)`, `between 0.112 and 0.157 (24
    values)`.

    Up to three values are listed, and more are counted: `0.112 to 0.157` alone would read as an interval.

    Args:
        values: one or more numbers.
        form: how to print one, such as `.3f` or `.0%`.
        names: what each is of, where a reader would ask.
        unit: said after the last of them.

    """
    ending = f" {unit}" if unit else ""
    every = [float(value) for value in values]
    if len(every) <= _LISTED:
        texts = [number(value, form) for value in every]
        if len(set(texts)) == 1:
            return texts[0] + ending
        return (
            listed([f"{text} ({name})" for text, name in zip(texts, names, strict=True)] if names else texts) + ending
        )
    low = number(min(every), form)
    high = number(max(every), form)
    return low + ending if low == high else f"between {low} and {high}{ending} ({len(every)} values)"


def compact(number: float) -> str:
    """Return 341000 -> 341k, 1.4e9 -> 1.4B, as models' sizes are written; humanize writes `341 k` and `1.4 G`."""
    return short_number(float(f"{number:.0f}"))


def compact_bytes(number: float) -> str:
    """Return 341,000,000 -> `341 MB`, in decimal units; nothing is `0`."""
    return humanize.naturalsize(float(f"{number:.3g}"), format="%.3g") if number else "0"


def duration(seconds: float) -> str:
    """Return `0:01:40`; a question mark if unknown."""
    return str(timedelta(seconds=round(seconds))) if seconds < _UNKNOWN_SECONDS else "?"


def short_path(location: str) -> str:
    """Return a path below the working folder relative to it; anything else as it is."""
    path = Path(location)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else location


def short_number(value: float, _: object = None) -> str:
    """Return 1500000 -> 1.5M; 0.00001 -> 10⁻⁵."""
    value = float(f"{value:.3g}")  # before a suffix is chosen: 999,999 is 1M
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    if 0 < value < 0.9e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
        return power if float(mantissa) == 1 else f"{float(mantissa):g}·{power}"
    return f"{value:.3g}"


def for_spreadsheets(text: str) -> str:
    """Return a text as a cell of a CSV: with a quote before it where a spreadsheet would take it for a formula.

    `=1+1` is `'=1+1`; a number such as `-0.5` stays one.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def for_markdown(text: str) -> str:
    r"""Return a text as a cell of a Markdown table, in which nothing is markup: `a|b` is `a\|b`, `<b>` is
    `&lt;b&gt;`.
    """
    return _MARKDOWN.sub(lambda sign: _ENTITIES.get(sign[0]) or f"\\{sign[0]}", " ".join(text.split()))


def from_spreadsheet(text: str) -> str:
    """Return the text that `for_spreadsheets` made into a cell."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
