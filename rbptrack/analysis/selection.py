"""Measurements chosen by what they are called: filters of the command line and of notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rbptrack.base.errors import BadInput, nearest, shortened
from rbptrack.config.patterns import size_key


def names_of(row: Mapping[Any, Any], key: str) -> list[str]:
    """Return the names that a filter over a column is matched against; a model has two: `nano-6k` and `nano/6k`."""
    names = [str(row[key] or "")]
    return [*names, f"{row['family']}/{row['size']}"] if key == "model" else names


def none_passes(key: str, patterns: Sequence[str], there: Iterable[str]) -> BadInput:
    """Return the error for a filter that no measurement passes: the names nearest to it, then those that exist."""
    names = sorted(set(there), key=size_key)
    near = dict.fromkeys(name for pattern in patterns for name in nearest(pattern, names))
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return BadInput(f"no measurement has {key}={','.join(patterns)}.{meant} The store has {shortened(names)}")
