"""The end of a grid of k. Beyond it so few tokens miss that -ln RBP_k is noise."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.ranks import DocumentCounts
from rbptrack.stats.documents import only_totals

MIN_MISSES = 10
"""The fewest tokens that must miss at every model of a fit."""


def ks_with_enough_misses(counts: Sequence[DocumentCounts]) -> list[int]:
    """Return the k that all counts have and at which enough tokens of each model miss.

    Counts that hold only totals are not checked.
    """
    ks = set(counts[0].ks)
    for of_model in counts:
        misses = of_model.tokens.sum() - of_model.hits.sum(axis=0)
        enough = misses >= (0 if only_totals(of_model) else MIN_MISSES)
        ks &= {k for k, is_enough in zip(of_model.ks, enough, strict=True) if is_enough}
    return sorted(ks)
