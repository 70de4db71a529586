"""Windows of N consecutive scored tokens: how often all have R <= k, and what simpler processes predict.

Everything is counted per document, the unit that bootstraps resample (arXiv 2510.20387, eqs. 6 to 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import special

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable, sum_by
from rbptrack.stats.bootstrap import Weights, drawn_sums
from rbptrack.stats.segments import PositionBins, Segments, bin_of
from rbptrack.stats.success_runs import count_runs


@dataclass(frozen=True)
class WindowCounts(DocumentSums):
    """Counts per document for one k.

    Attributes:
        lengths: the N.
        windows: windows of each N, (documents, len(lengths)).
        successes: windows whose tokens all have R <= k, (documents, len(lengths)).
        tokens: scored tokens, (documents,).
        hits: tokens with R <= k, (documents,).
        followed: hits that another scored token follows, (documents,).
        both: hits that another hit follows, (documents,).
        runs: distinct runs of hits of length >= N, (documents, len(lengths)).
        position_hits: hits by document and bin of positions, (documents, bins).
        position_tokens: tokens by position.
        positions: the bins.

    """

    SUMMED = (
        "windows", "successes", "tokens", "hits", "followed", "both", "runs", "position_hits", "position_tokens",
    )  # fmt: skip

    lengths: tuple[int, ...]
    windows: IntArray
    successes: IntArray
    tokens: IntArray
    hits: IntArray
    followed: IntArray
    both: IntArray
    runs: IntArray
    position_hits: IntArray
    position_tokens: IntArray
    positions: PositionBins

    def in_groups(self, groups: Sequence[str]) -> WindowCounts:
        """Return the counts of each source; groups: that of each document, (documents,)."""
        grouped = replace(super().in_groups(groups), positions=self.positions.in_groups(groups))
        vars(grouped)["shuffled"] = sum_by(groups, self.shuffled)  # no function of a source's sums
        return grouped

    @cached_property
    def shuffled(self) -> FloatArray:
        """Successes if each document's hits fell anywhere in it, C(h_d, N)/C(n_d, N) a window: (documents, lengths)."""
        n = self.tokens[:, None]
        h = self.hits[:, None]
        length = np.asarray(self.lengths)
        possible = (length <= h) & (length <= n)
        h = np.where(possible, h, length)
        n = np.where(possible, n, length)
        log_share = _log_choose(h, length) - _log_choose(n, length)
        return np.asarray(np.where(possible, np.exp(log_share), 0.0) * self.windows)


def count_windows(
    table: RankTable, positions: PositionBins, *, ks: Sequence[int], lengths: Sequence[int]
) -> list[WindowCounts]:
    """Return `count_runs` for each k, and what the nulls of `ladder` need.

    Source: arXiv 2510.20387, eqs. 6 to 8.
    """
    segments = Segments.of(table)
    document = segments.document
    size = segments.documents
    tokens = np.bincount(document, minlength=size)
    last = np.flatnonzero(np.append(segments.begins[1:], True))  # of each segment
    shape = (size, len(positions.edges))
    cell = document * shape[1] + bin_of(table.column("position"), positions.edges)
    position_tokens = np.bincount(cell, minlength=size * shape[1]).reshape(shape)
    counts = []
    for k in ks:
        hit = table.rank <= k
        position_hits = np.bincount(cell[hit], minlength=size * shape[1]).reshape(shape).astype(np.float64)
        hits = position_hits.sum(axis=1)
        counts.append(
            WindowCounts(
                lengths=tuple(lengths),
                **count_runs(table, segments, k=k, lengths=lengths),
                tokens=tokens,
                hits=hits,
                followed=hits - np.bincount(document[last[hit[last]]], minlength=size),
                position_hits=position_hits,
                position_tokens=position_tokens,
                positions=positions,
            )
        )
    return counts


def ladder(counts: WindowCounts, weights: Weights) -> dict[str, FloatArray]:
    """Return ln p_N, `measured` and by each null, for each bootstrap replicate or once: arrays (replicates, lengths).

    `independent`: RBP_k^N; `position`: independent hits whose share drifts with the position in the document;
    `documents`: hits anywhere in their document, a mixture over documents; `markov`: RBP_k q^(N-1), q the share of hits
    among tokens that follow a hit, a first-order chain.

    Source: arXiv 2510.20387, eq. 6, for independent tokens; the other nulls are this project's.
    """
    width = len(counts.lengths)
    columns = np.column_stack(
        [counts.windows, counts.successes, counts.shuffled, counts.tokens, counts.hits, counts.followed, counts.both]
    )
    total = drawn_sums(weights, columns)
    windows = total[:, :width]
    successes = total[:, width : 2 * width]
    shuffled = total[:, 2 * width : 3 * width]
    tokens, hits, followed, both = total[:, 3 * width :].T
    n = np.asarray(counts.lengths)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(hits / tokens)[:, None]
        log_q = np.log(both / followed)[:, None]
        return {
            "measured": np.log(successes / windows),
            "independent": n * log_p,
            "position": counts.positions.log_shares(weights, counts.position_hits, counts.position_tokens),
            "documents": np.log(shuffled / windows),
            "markov": log_p + np.where(n > 1, (n - 1) * log_q, 0.0),
        }


def _log_choose(n: IntArray, k: IntArray) -> FloatArray:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))
