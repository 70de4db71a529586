"""Where a grid of k ends: so few tokens miss beyond that -ln RBP_k is noise."""

from __future__ import annotations

from rbptrack.ranks import DocumentCounts
from rbptrack.stats.documents import only_totals

MIN_MISSES = 10
"""Tokens that must miss at the best model, or at the one model that is fitted; above, -ln RBP_k is noise."""


def ks_with_enough_misses(counts: DocumentCounts) -> list[int]:
    """The k at which enough tokens of one model miss; all of them where only totals are known."""
    if only_totals(counts):
        return list(counts.ks)
    misses = counts.tokens.sum() - counts.hits.sum(axis=0)
    return [k for k, missing in zip(counts.ks, misses, strict=True) if missing >= MIN_MISSES]
