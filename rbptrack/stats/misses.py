"""Choose the k at which enough tokens have a rank above k. At larger k, -ln RBP_k depends on a few tokens only."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.ranks import DocumentCounts
from rbptrack.stats.documents import only_totals

MIN_MISSES = 10
"""The smallest number of tokens with a rank above k that every model of a fit must have."""


def ks_with_enough_misses(counts: Sequence[DocumentCounts]) -> list[int]:
    """Return the k at which at least `MIN_MISSES` tokens of every model have a rank above k.

    A k is left out if one of the counts does not hold it. Counts that hold only totals (metrics imported without ranks)
    are not checked.

    Args:
        counts: the counts of each model, at least one.

    """
    ks = set(counts[0].ks)
    for model_counts in counts:
        misses = model_counts.tokens.sum() - model_counts.hits.sum(axis=0)
        enough = misses >= (0 if only_totals(model_counts) else MIN_MISSES)
        ks &= {k for k, is_enough in zip(model_counts.ks, enough, strict=True) if is_enough}
    return sorted(ks)
