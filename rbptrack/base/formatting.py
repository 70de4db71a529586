"""Format numbers, counts and paths for sentences and tables."""

from __future__ import annotations

import codecs
import math
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def counted(number: int, noun: str) -> str:
    """Return a number and a noun: `1 size`, `1,200 sizes`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(items: Sequence[str]) -> str:
    """Join texts as an English list: `a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def number(value: float, form: str) -> str:
    """Format a value by a form such as `.3f`, `+.3f` or `.0%`. Zero never has a minus sign (`-0.000`)."""
    sign = form[:1] if form[:1] in ("+", "-", " ") else ""
    return format(float(value), f"{sign}z{form[len(sign) :]}")


def compact(value: float) -> str:
    """Format a number by three digits and a suffix, as in sizes of models.

    Examples:
        >>> [compact(value) for value in (341_000, 1.4e9, 0.25, 1e-5, -2.5e-5)]
        ['341k', '1.4B', '0.25', '10⁻⁵', '-2.5·10⁻⁵']

    """
    value = float(f"{value:.3g}")  # before a suffix is chosen: 999,999 is 1M
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


def compact_bytes(value: float) -> str:
    """Format a number of bytes in decimal units: `341 MB`. Zero bytes are `0`."""
    value = float(f"{value:.3g}")
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:.0f} bytes" if value else "0"


def short_hash(identity: str) -> str:
    """Return the first 8 characters of a hash, without the repository or kind before it.

    The name of a GGUF file after the hash is kept.

    Examples:
        >>> [short_hash(text) for text in ("org/model@a1b2c3d4e5/q4.gguf", "sha256:0123456789")]
        ['a1b2c3d4/q4.gguf', '01234567']

    """
    revision, slash, file = identity.rpartition("@")[2].removeprefix("sha256:").partition("/")
    return f"{revision[:8]}{slash}{file}"


def duration(seconds: float) -> str:
    """Format a duration: `0:01:40`. An unknown duration is a question mark."""
    if not math.isfinite(seconds) or seconds > 1e8:
        return "?"
    return str(timedelta(seconds=round(seconds)))


def readable(text: str) -> str:
    r"""Return the text of tokens with U+FFFD in place of bytes that are not a character.

    A token may be a part of a character. Its text then holds that part as lone surrogates (`surrogateescape`). Joined,
    the texts of consecutive tokens give the whole character.

    Examples:
        >>> [readable(text) for text in ("\udcc3" + "\udca9", "\udcc3")]
        ['é', '�']

    """
    return bytes_of(text).decode("utf-8", "replace")


def spans(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    r"""Join the texts of tokens that share a character.

    A token may be a part of a character, which its text holds as lone surrogates (`surrogateescape`).

    Returns:
        The text of each span, and how many tokens it has. Bytes that are no character in any span are U+FFFD.

    Examples:
        >>> spans(["a", "\udcc3", "\udca9"])
        (['a', 'é'], [1, 2])

    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    joined: list[str] = []
    sizes: list[int] = []
    waiting = False
    for text in texts:
        piece = decoder.decode(bytes_of(text))
        if waiting:
            joined[-1] += piece
            sizes[-1] += 1
        else:
            joined.append(piece)
            sizes.append(1)
        waiting = bool(decoder.getstate()[0])
    if waiting:
        joined[-1] += decoder.decode(b"", final=True)
    return joined, sizes


def bytes_of(text: str) -> bytes:
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
