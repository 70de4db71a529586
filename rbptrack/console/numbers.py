"""Numbers and paths as short as people write them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import humanize

_UNKNOWN_SECONDS = 1e8


def compact(number: float) -> str:
    """341000 -> 341k, 1.4e9 -> 1.4B, as models' sizes are written; humanize writes `341 k` and `1.4 G`."""
    number = float(f"{number:.3g}") if number >= 1e3 else number  # before a suffix is chosen: 999,999 is 1M
    for limit, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{suffix}"
    return f"{number:.0f}"


def compact_bytes(number: float) -> str:
    """341,000,000 -> `341 MB`, in decimal units; nothing is `0`."""
    return humanize.naturalsize(float(f"{number:.3g}"), format="%.3g") if number else "0"


def duration(seconds: float) -> str:
    """`0:01:40`; what is not known is a question mark."""
    return str(timedelta(seconds=round(seconds))) if seconds < _UNKNOWN_SECONDS else "?"


def short_path(location: str) -> str:
    """A path below the working folder relative to it; anything else as it is."""
    path = Path(location)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else location
