"""Runs of successes: how often N consecutive scored tokens all have R <= k, counted per document.

A window is N consecutive scored tokens of one document; a masked token or the document's end breaks the run, which
positions tell (arXiv 2510.20387, eqs. 6 to 8).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats.segments import Segments


def count_runs(table: RankTable, segments: Segments, *, k: int, lengths: Sequence[int]) -> dict[str, IntArray]:
    """Return windows, successes and runs of each N, and hits that another hit follows, by document.

    Windows are counted from run lengths L: sum of max(L - N + 1, 0). `windows` and `successes` (all tokens have R <= k)
    are (documents, len(lengths)), as are `runs`, distinct runs of hits of length >= N; `both` is (documents,).

    Source: arXiv 2510.20387, eqs. 6 to 8.
    """
    begins = segments.begins
    document = segments.document
    size = segments.documents
    hit = table.rank <= k
    turns = begins.copy()  # where a stretch of hits or of misses begins; segments are never joined
    turns[1:] |= hit[1:] != hit[:-1]
    start = np.flatnonzero(turns)
    of_hits = hit[start]
    run_length = np.diff(start, append=len(hit))[of_hits]
    segment_start = np.flatnonzero(begins)
    segment_length = np.diff(segment_start, append=len(hit))
    run_document = document[start[of_hits]]
    successes, runs = _per_document(run_document, run_length, lengths, size)
    windows = _per_document(document[segment_start], segment_length, lengths, size)[0]
    both = np.bincount(run_document, weights=run_length - 1, minlength=size)
    return {"windows": windows, "successes": successes, "runs": runs, "both": both}


def _per_document(
    document: IntArray, length: IntArray, lengths: Sequence[int], size: int
) -> tuple[FloatArray, IntArray]:
    """Return windows of each N inside stretches of so many tokens, and stretches that long, by document, (size,
    lengths).
    """
    edges = np.sort(lengths)
    passed = np.searchsorted(edges, np.arange(edges[-1] + 1), side="right")  # how many N a stretch of a length has
    cell = document * (len(edges) + 1) + passed[np.minimum(length, edges[-1])]
    cells = size * (len(edges) + 1)

    def of_each(weights: IntArray | None) -> FloatArray:
        """Return sums over the stretches of at least N."""
        sums = np.bincount(cell, weights=weights, minlength=cells).reshape(size, -1)[:, :0:-1]
        return np.asarray(np.cumsum(sums, axis=1)[:, ::-1][:, np.searchsorted(edges, lengths)])

    stretches = of_each(None)
    return of_each(length) - (np.asarray(lengths) - 1) * stretches, stretches
