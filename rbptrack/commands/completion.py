"""What Tab completes."""

from __future__ import annotations

from rbptrack.config.keys import keys
from rbptrack.config.patterns import families
from rbptrack.config.words import config_names

_GROUPS = {"model": "model", "dataset": "dataset", "reference": "model", "k": "k", "protocol": "protocol"}


def words(incomplete: str) -> list[str]:
    """Words of `measure` and `plan`: keys, and the models and datasets that have configs."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        options = [*_GROUPS, "launch", *(name for name in keys() if not name.startswith("reference."))]
        return [f"{option}=" for option in options if option.startswith(incomplete)]
    if key not in (*_GROUPS, "launch"):
        return []
    group = _GROUPS.get(key, key)
    before, comma, last = value.rpartition(",")
    options = [*config_names(group), *(f"{family}/*" for family in families(config_names(group)))]
    return [f"{key}={before}{comma}{option}" for option in options if option.startswith(last)]


def analyzers(incomplete: str) -> list[str]:
    """Names of analyzers."""
    from rbptrack.analysis.discovery import ANALYZERS, find

    return [name for name in find(ANALYZERS).names if name.startswith(incomplete)]
