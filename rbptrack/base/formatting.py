"""Format numbers, counts and paths for sentences and tables."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

_MAX_DIGITS = 6  # digits after the decimal point of a number with its error
_MIN_SHOWN_ERROR = 1e-6  # the smallest standard error that these digits can show
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def counted(number: int, noun: str) -> str:
    """Return a number and a noun: `1 size`, `1,200 sizes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: Sequence[str]) -> str:
    """Join texts as an English list: `a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def format_number(value: float, form: str) -> str:
    """Format a value with a format such as `.3f`, `+.3f` or `.0%`. Zero never gets a minus sign, as in `-0.000`."""
    sign = form[:1] if form[:1] in ("+", "-", " ") else ""
    return format(float(value), f"{sign}z{form[len(sign) :]}")


def compact(value: float) -> str:
    """Format a number with three significant digits, and with a suffix or a power of ten if it is large or small.

    Examples:
        >>> [compact(value) for value in (341_000, 1.4e9, 0.25, 1e-5, -2.5e-5)]
        ['341k', '1.4B', '0.25', '10⁻⁵', '-2.5·10⁻⁵']

    """
    value = float(f"{value:.3g}")  # rounded before the suffix is chosen, so that 999,999 becomes 1M
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    if 0 < abs(value) < 0.9e-3:
        mantissa, exponent = f"{value:.2e}".split("e")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"
        if abs(float(mantissa)) == 1:
            return f"-{power}" if value < 0 else power
        return f"{float(mantissa):g}·{power}"
    return f"{value:.3g}"


def number_text(value: float, form: str = "", like: float | None = None) -> str:
    """Write a number by a format specification. NaN gives an empty text if there is no format.

    Without a format, or with one that ends in `g`, the number has as many decimals as `like` (by default, the number
    itself) with three significant digits. Very large and very small numbers are written in a short form.
    """
    if form and not form.endswith("g"):
        return format_number(value, form)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        text = "∞" if value > 0 else "-∞"
    else:
        estimate = value if like is None else like
        magnitude = 0
        if estimate and math.isfinite(estimate):
            magnitude = int(f"{estimate:.2e}".partition("e")[2])  # after rounding: 9.999 is written as 10.0
        outside = magnitude > 5 or magnitude < -4
        text = compact(value) if outside else format_number(value, f",.{max(0, 2 - magnitude)}f")
    return f"+{text}" if form.startswith("+") and value > 0 else text


def estimate_text(value: float, low: float = math.nan, high: float = math.nan, form: str = "") -> str:
    """Write an estimate and its interval, such as `0.231 (0.219 to 0.243)`.

    Args:
        value: the estimate. If it is NaN, the text is empty.
        low: the lower end of the interval. If it is NaN, only the estimate is written.
        high: the upper end of the interval. If it is NaN, only the estimate is written.
        form: a format specification, such as `+.1%`. If it is empty, the estimate has three significant digits.

    """
    if math.isnan(value):
        return ""
    estimate = number_text(value, form)
    if math.isnan(low) or math.isnan(high):
        return estimate
    return f"{estimate} ({number_text(low, form, value)} to {number_text(high, form, value)})"


def number_with_error(value: float, error: float | None) -> str:
    """Write a number and its standard error, such as `3.086 ± 0.025`. An error that is unknown or 0 is left out."""
    if error is None or not error > 0:
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.1f}".removesuffix(".0")
    if error < _MIN_SHOWN_ERROR / 2:
        return f"{value:.{_MAX_DIGITS}f} ± <{_MIN_SHOWN_ERROR:.{_MAX_DIGITS}f}"
    magnitude = int(f"{error:.1e}".partition("e")[2])  # after rounding: 0.0996 is written as 0.10
    digits = min(max(1 - magnitude, 0), _MAX_DIGITS)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def p_text(p: float) -> str:
    """Write a p-value with three decimals, such as `p = 0.009`, or as `p < 0.001`. If p is NaN, the text is empty."""
    if math.isnan(p):
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {format_number(p, '.3f')}"


def plain_json(value: object) -> Any:
    """Return a value as it would be read from JSON. NaN and infinities, which JSON does not have, become None.

    Objects of other types than those of JSON become texts.
    """
    return json.loads(json.dumps(value, default=str), parse_constant=lambda _: None)


def compact_bytes(value: float) -> str:
    """Format a number of bytes with a decimal unit: `341 MB`. Zero is formatted as `0`."""
    value = float(f"{value:.3g}")
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} bytes" if value else "0"


def short_hash(identity: str) -> str:
    """Return the first 8 characters of the hash in an identity such as `repository@commit` or `sha256:hash`.

    If the name of a GGUF file follows the hash, it is kept.

    Examples:
        >>> [short_hash(text) for text in ("org/model@a1b2c3d4e5/q4.gguf", "sha256:0123456789")]
        ['a1b2c3d4/q4.gguf', '01234567']

    """
    revision, slash, file = identity.rpartition("@")[2].removeprefix("sha256:").partition("/")
    return f"{revision[:8]}{slash}{file}"


def duration(seconds: float) -> str:
    """Format a duration: `0:01:40`. A duration that is not finite or above 10⁸ seconds is formatted as `?`."""
    if not math.isfinite(seconds) or seconds > 1e8:
        return "?"
    return str(timedelta(seconds=round(seconds)))


def readable_text(text: str) -> str:
    r"""Return the joined texts of tokens with U+FFFD in place of bytes that do not form a character.

    A token may hold only some bytes of a character. Its text then holds each byte as a lone surrogate
    (`surrogateescape`). If the texts of consecutive tokens are joined first, the bytes form the whole character.

    Examples:
        >>> [readable_text(text) for text in ("\udcc3" + "\udca9", "\udcc3")]
        ['é', '�']

    """
    return _token_bytes(text).decode("utf-8", "replace")


def character_spans(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    r"""Split tokens into the shortest spans that hold whole characters, and join the texts of each span.

    A token may hold only some bytes of a character. Its text then holds each byte as a lone surrogate
    (`surrogateescape`).

    Returns:
        The text of each span, and the number of its tokens. Bytes that do not form a character become U+FFFD.

    Examples:
        >>> character_spans(["a", "\udcc3", "\udca9"])
        (['a', 'é'], [1, 2])

    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    span_texts: list[str] = []
    span_sizes: list[int] = []
    character_is_open = False
    for text in texts:
        decoded = decoder.decode(_token_bytes(text))
        if character_is_open:
            span_texts[-1] += decoded
            span_sizes[-1] += 1
        else:
            span_texts.append(decoded)
            span_sizes.append(1)
        character_is_open = bool(decoder.getstate()[0])
    if character_is_open:
        span_texts[-1] += decoder.decode(b"", final=True)
    return span_texts, span_sizes


def _token_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of a token's text. Lone surrogates (`surrogateescape`) stand for single bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "replace")


def short_path(location: str | Path) -> str:
    """Return a path below the working folder relative to that folder. Other paths are returned unchanged."""
    path = Path(location)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return str(location)
