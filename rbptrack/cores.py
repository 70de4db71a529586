"""How many cores this process may use."""

from __future__ import annotations


def cores() -> int:
    """The cores that this process may use: those that it is bound to, and no more than its container's share."""
    from joblib import cpu_count

    return int(cpu_count())
