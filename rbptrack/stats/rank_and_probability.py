"""Does a token's rank say more than its probability? Both of the same tokens, counted together.

At p(target) = p at most 1/p entries can have as much, so R <= 1/p; how far below that bound R lies, and whether that
changes with size, is what ranks add to cross-entropy (figures 1 and 2 of arXiv 2510.20387).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums
from rbptrack.stats.success_runs import Segments, count_runs

NATS_EDGES = np.concatenate([np.arange(0, 3, 0.25), np.arange(3, 8, 0.5), np.arange(8, 14.5, 1.0)])
"""Lower edges of the bins of -ln p."""

RANK_EDGES = np.array([1, 2, 3, 4, 6, 11, 21, 31, 51, 101, 201, 301, 501, 1001, 3001, 10001])
"""Lower edges of the bins of R: RBP_k is exact for every k just below one (1, 2, 3, 5, 10, 20, ...)."""


@dataclass(frozen=True)
class RankAndProbability:
    """Tokens of one model by document, probability and rank, and its windows of consecutive tokens.

    Attributes:
        tokens: by bin of -ln p and bin of R, (documents, nats, ranks).
        nats: sum of -ln p, (documents,).
        lengths: the N of windows.
        windows: windows of N consecutive scored tokens, (documents, lengths).
        successes: those whose tokens all have R <= k, (documents, lengths, ks).
        likelihood: sum over windows of the product of their tokens' p, (documents, lengths).
        ks: the k.

    """

    tokens: IntArray
    nats: FloatArray
    lengths: tuple[int, ...]
    windows: IntArray
    successes: IntArray
    likelihood: FloatArray
    ks: tuple[int, ...]

    @classmethod
    def of(cls, table: RankTable, *, lengths: Sequence[int], ks: Sequence[int]) -> RankAndProbability:
        """Count a rank table or a piece of whole documents, rows in text order; ks must be among `countable_ks`."""
        segments = Segments.of(table)
        nats = -table.column("logprob").astype(np.float64)
        # Looked up, which takes a tenth of the time of searching: every edge is a multiple of 0.25 nats.
        quarters = np.minimum(4 * np.maximum(nats, 0), 4 * NATS_EDGES[-1]).astype(np.int64)
        place = (np.searchsorted(4 * NATS_EDGES, np.arange(4 * NATS_EDGES[-1] + 1), side="right") - 1)[quarters]
        rank = (np.searchsorted(RANK_EDGES, np.arange(table.vocab_size + 1), side="right") - 1)[table.rank]
        shape = (segments.documents, len(NATS_EDGES), len(RANK_EDGES))
        cells = (segments.document * shape[1] + place) * shape[2] + rank
        tokens = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.int32)
        left = segments.left
        summed = np.concatenate([[0.0], np.cumsum(nats)])
        runs = [count_runs(table, segments, k=k, lengths=lengths) for k in ks]
        likelihood = []
        for n in lengths:
            product = np.exp(summed[:-n] - summed[n:])  # (tokens - n + 1,): of all places, then of those of a window
            product[left[: len(product)] < n] = 0.0
            weight = segments.document[: len(product)]
            likelihood.append(np.bincount(weight, weights=product, minlength=shape[0]))
        return cls(
            tokens=tokens,
            nats=np.bincount(segments.document, weights=nats, minlength=shape[0]),
            lengths=tuple(lengths),
            windows=runs[0].windows.astype(np.int64),
            successes=np.stack([one.successes for one in runs], axis=2).astype(np.int64),
            likelihood=np.stack(likelihood, axis=1),
            ks=tuple(ks),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[RankAndProbability]) -> RankAndProbability:
        """Join the counts of disjoint documents, given in their order."""
        return replace(
            parts[0],
            tokens=np.concatenate([part.tokens for part in parts]),
            nats=np.concatenate([part.nats for part in parts]),
            windows=np.concatenate([part.windows for part in parts]),
            successes=np.concatenate([part.successes for part in parts]),
            likelihood=np.concatenate([part.likelihood for part in parts]),
        )

    def __add__(self, other: RankAndProbability) -> RankAndProbability:
        """Two runs over the same documents, pooled."""
        return RankAndProbability(
            tokens=self.tokens + other.tokens,
            nats=self.nats + other.nats,
            lengths=self.lengths,
            windows=self.windows + other.windows,
            successes=self.successes + other.successes,
            likelihood=self.likelihood + other.likelihood,
            ks=self.ks,
        )

    @property
    def ce(self) -> float:
        """Cross-entropy, nats per token."""
        return float(self.nats.sum() / self.tokens.sum())

    def rbp(self, k: int) -> float:
        """RBP_k, for a k of `countable_ks`."""
        return float(self.tokens[:, :, k >= RANK_EDGES].sum() / self.tokens.sum())

    @property
    def told_by_p(self) -> float:
        """Share of the variance of ln R that bins of -ln p explain: 1 if rank followed from probability.

        Source: the correlation ratio (Pearson 1905).
        """
        return _correlation_ratio(self.tokens.sum(axis=0), _middles(RANK_EDGES))

    @property
    def told_by_rank(self) -> float:
        """Share of the variance of -ln p that bins of R explain. Source: as `told_by_p`."""
        return _correlation_ratio(self.tokens.sum(axis=0).T, NATS_EDGES + np.diff(NATS_EDGES, append=15.0) / 2)


def countable_ks(ks: Sequence[int]) -> list[int]:
    """The k among these for which `RANK_EDGES` give RBP_k (arXiv 2510.20387) exactly."""
    return [k for k in ks if k + 1 in RANK_EDGES]


def quantiles_by_bin(counts: FloatArray, values: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Quantiles of a binned quantity in every row of counts, (rows, len(levels)); NaN in empty rows.

    Args:
        counts: (rows, bins).
        values: what stands for each bin, ascending, (bins,).
        levels: between 0 and 1.

    Source: the inverse of the empirical distribution function.

    """
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        passed = np.cumsum(counts, axis=1) / total
    found = np.full((len(counts), len(levels)), np.nan)
    for i in np.flatnonzero(total[:, 0]):
        found[i] = values[np.searchsorted(passed[i], np.asarray(levels) - 1e-12).clip(max=len(values) - 1)]
    return found


def rates_by_bin(tokens: IntArray, weights: Weights, k: int) -> tuple[FloatArray, FloatArray]:
    """How a model's tokens spread over the bins of -ln p, and the share of each bin with R <= k, (replicates, nats).

    Source: the two factors of Kitagawa's split (`split_of_gain`); the share is NaN in a bin without tokens.

    Args:
        tokens: by document, bin of -ln p and bin of R, (documents, nats, ranks).
        weights: of the documents, (replicates, documents).
        k: of `countable_ks`.

    """
    every = drawn_sums(weights, tokens.sum(axis=2))
    hits = drawn_sums(weights, tokens[:, :, k >= RANK_EDGES].sum(axis=2))
    rate = np.divide(hits, every, out=np.full_like(hits, np.nan, dtype=np.float64), where=every > 0)
    return every / every.sum(axis=1, keepdims=True), rate


def split_of_gain(first: tuple[FloatArray, FloatArray], second: tuple[FloatArray, FloatArray]) -> FloatArray:
    """What makes RBP_k of a second model higher than that of a first: (replicates, 2), mix and within.

    Mix: tokens move to bins of higher p(target), as cross-entropy sees. Within: at equal p more of them have R <= k,
    which cross-entropy does not see. mix + within is the whole difference.

    Source: Kitagawa, Journal of the American Statistical Association 50, 1955.

    Args:
        first: `rates_by_bin` of one model.
        second: of the other, with the same weights of the same documents.

    """
    (w_a, r_a), (w_b, r_b) = first, second
    r_a, r_b = np.where(np.isnan(r_a), r_b, r_a), np.where(np.isnan(r_b), r_a, r_b)  # a bin that one of them lacks
    r_a, r_b = np.nan_to_num(r_a), np.nan_to_num(r_b)
    mix, within = (w_b - w_a) * (r_a + r_b) / 2, (w_a + w_b) / 2 * (r_b - r_a)
    return np.stack([mix.sum(axis=1), within.sum(axis=1)], axis=1)


def held_out_errors(x: FloatArray, y: FloatArray, groups: IntArray) -> FloatArray:
    """Error of y at each point, predicted by a line in x through the points of all other groups, (points,).

    Groups of one point each leave sizes out; groups of a family's points leave families out. NaN where the others hold
    fewer than 3 points or one x only.

    Source: cross-validation (Stone, Journal of the Royal Statistical Society B 36, 1974).
    """
    found = np.full(len(x), np.nan)
    for group in np.unique(groups):
        kept = groups != group
        if kept.sum() >= 3 and np.ptp(x[kept]) > 0:
            slope, level = np.polyfit(x[kept], y[kept], 1)
            found[~kept] = level + slope * x[~kept] - y[~kept]
    return found


def sign_flip_p(differences: FloatArray, *, draws: int = 9999) -> float:
    """P of a mean of 0 if each difference could as well have had the other sign; exact for up to 13 of them.

    Source: Fisher's randomisation test (The Design of Experiments, 1935, section 21).
    """
    n = len(differences)
    if n <= 13:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12))
    signs = np.random.default_rng(n).choice([-1, 1], size=(draws, n))
    return float((1 + np.sum(np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12)) / (draws + 1))


def _middles(edges: FloatArray) -> FloatArray:
    """Ln of what stands for each bin of ranks: the geometric middle of its first and last."""
    last = np.append(edges[1:] - 1, 3 * edges[-1])
    return np.asarray((np.log(edges) + np.log(last)) / 2)


def _correlation_ratio(counts: FloatArray, values: FloatArray) -> float:
    """Share of the variance of `values` (of the columns) that lies between the rows of counts."""
    total, rows = counts.sum(), counts.sum(axis=1)
    mean, square = float((counts @ values).sum() / total), float((counts @ values**2).sum() / total)
    means = np.divide(counts @ values, rows, out=np.zeros(len(rows)), where=rows > 0)
    variance = square - mean**2
    return float(rows @ (means - mean) ** 2 / total / variance) if variance > 0 else float("nan")
