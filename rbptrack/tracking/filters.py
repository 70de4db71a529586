"""Filters of measurements in the words of MLflow's search, for servers, where nothing else can be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.schema import Tag

FILTERED = {"family": Tag.FAMILY, "size": Tag.SIZE, "dataset": Tag.DATASET}
"""The filters that are about a tag."""

_PLAIN = re.compile(r"[\w .:/+*?-]+")  # characters that mean nothing else in SQL's patterns than `fnmatch` means


def tags_like(chosen: FilterConfig) -> str:
    """Conditions that whatever passes the filters satisfies; empty where none can be said.

    MLflow joins conditions by `and` only, so a filter of several patterns is not among them. Its `%` and `_` match what
    `*` and `?` do; other runs may satisfy the conditions, too.
    """
    asked = [(tag, getattr(chosen, name)) for name, tag in FILTERED.items()]
    single = [(tag, patterns[0]) for tag, patterns in asked if len(patterns) == 1 and _PLAIN.fullmatch(patterns[0])]
    return " and ".join(f"tags.`{tag}` LIKE '{p.replace('*', '%').replace('?', '_')}'" for tag, p in single)


def run_is_in(run_ids: Sequence[str]) -> str:
    """The condition that a run is one of some hundreds."""
    return f"attributes.run_id IN ({', '.join(repr(run_id) for run_id in run_ids)})"
