"""Does a token's rank say more than its probability? Both of the same tokens, counted together.

At p(target) = p at most 1/p entries can have as much, so R <= 1/p; how far below that bound R lies, and whether that
changes with size, is what ranks add to cross-entropy (figures 1 and 2 of arXiv 2510.20387).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankTable
from rbptrack.stats.bootstrap import Weights, drawn_sums
from rbptrack.stats.segments import Segments
from rbptrack.stats.success_runs import count_runs

NATS_EDGES = np.concatenate([np.arange(0, 3, 0.25), np.arange(3, 8, 0.5), np.arange(8, 14.5, 1.0)])
"""Lower edges of the bins of -ln p."""

RANK_EDGES = np.array([1, 2, 3, 4, 6, 11, 21, 31, 51, 101, 201, 301, 501, 1001, 3001, 10001])
"""Lower edges of the bins of R: RBP_k is exact for every k just below one (1, 2, 3, 5, 10, 20, ...)."""

_TAILS = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class RankAndProbability(DocumentSums):
    """Tokens of one model by document, probability and rank, and its windows of consecutive tokens.

    Attributes:
        tokens: by bin of -ln p and bin of R, (documents, nats, ranks).
        nats: sum of -ln p by its bin, (documents, nats).
        lengths: the N of windows.
        windows: windows of N consecutive scored tokens, (documents, lengths).
        successes: those whose tokens all have R <= k, (documents, lengths, ks).
        likelihood: sum over windows of the product of their tokens' p, (documents, lengths).
        ks: the k.

    """

    SUMMED = ("tokens", "nats", "windows", "successes", "likelihood")

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
            nats=np.bincount(cells // shape[2], weights=nats, minlength=shape[0] * shape[1]).reshape(shape[:2]),
            lengths=tuple(lengths),
            windows=runs[0]["windows"].astype(np.int64),
            successes=np.stack([run["successes"] for run in runs], axis=2).astype(np.int64),
            likelihood=np.stack(likelihood, axis=1),
            ks=tuple(ks),
        )

    @property
    def ce(self) -> float:
        """Cross-entropy, nats per token."""
        return float(self.nats.sum() / self.tokens.sum())

    def rbp(self, k: int) -> float:
        """Return RBP_k, for a k of `countable_ks`."""
        return float(self.tokens[:, :, k >= RANK_EDGES].sum() / self.tokens.sum())

    def metric_sums(self) -> FloatArray:
        """Return tokens, nats, and tokens with R <= k of each of `ks`, by document, (documents, 2 + ks)."""
        tokens = self.tokens.sum(axis=(1, 2))
        hits = [self.tokens[:, :, k >= RANK_EDGES].sum(axis=(1, 2)) for k in self.ks]
        return np.column_stack([tokens, self.nats.sum(axis=1), *hits]).astype(np.float64)

    def success(self, n: int, k: int) -> float:
        """Share of windows of N tokens that all have R <= k (arXiv 2510.20387, eq. 6); NaN without windows."""
        place = self.lengths.index(n)
        column = self.ks.index(k)
        windows = self.windows[:, place].sum()
        return float(self.successes[:, place, column].sum() / windows) if windows else float("nan")

    def at_equal_p(self) -> dict[str, FloatArray]:
        """Return ranks in each bin of p that has tokens: its middle, tokens, largest possible rank, and 5, 50 and 95%.

        Source: figure 1 of arXiv 2510.20387; R <= 1/p because probabilities add up to 1.
        """
        tokens = self.tokens.sum(axis=0)
        upper = np.append(NATS_EDGES[1:], NATS_EDGES[-1] + 1)
        low, median, high = quantiles_by_bin(tokens, RANK_EDGES.astype(np.float64), _TAILS).T
        columns = {"p": np.exp(-(NATS_EDGES + upper) / 2), "tokens": tokens.sum(axis=1), "bound": np.exp(upper)}
        columns |= {"rank_low": low, "rank_median": median, "rank_high": high}
        return {name: values[tokens.any(axis=1)] for name, values in columns.items()}

    def at_equal_rank(self) -> dict[str, FloatArray]:
        """Return probabilities in each bin of ranks that has tokens: its first rank, tokens, and 5, 50 and 95% of p.

        Source: figure 2 of arXiv 2510.20387.
        """
        tokens = self.tokens.sum(axis=0).T[:, ::-1]  # p ascending
        low, median, high = quantiles_by_bin(tokens, np.exp(-NATS_EDGES[::-1]), _TAILS).T
        columns = {"rank": RANK_EDGES, "tokens": tokens.sum(axis=1), "p_low": low, "p_median": median, "p_high": high}
        return {name: values[tokens.any(axis=1)] for name, values in columns.items()}

    def whole_windows(self) -> dict[str, FloatArray]:
        """Return success of windows of each N: measured with R = 1, RBP_1^N, mean product of p, and exp(-N CE).

        Source: section 5.1 of arXiv 2510.20387.
        """
        windows = self.windows.sum(axis=0)
        n = np.array(self.lengths)
        there = windows > 0
        won = self.successes[:, :, self.ks.index(1)].sum(axis=0)
        likelihood = self.likelihood.sum(axis=0)
        return {
            "N": n[there],
            "measured": won[there] / windows[there],
            "independent": self.rbp(1) ** n[there],
            "likelihood": likelihood[there] / windows[there],
            "exp(-N CE)": np.exp(-n[there] * self.ce),
        }


PER_SIZE: Mapping[str, tuple[Callable[[RankAndProbability], dict[str, FloatArray]], Mapping[str, str]]] = {
    "windows": (
        RankAndProbability.whole_windows,
        {
            "N": "tokens in a row",
            "measured": "share of windows whose tokens all have R = 1: greedy decoding gives them",
            "independent": "RBP_1^N",
            "likelihood": "mean over windows of the product of their p: sampling gives them",
            "exp(-N CE)": "the likelihood if every token cost CE nats",
        },
    ),
    "at_equal_p": (
        RankAndProbability.at_equal_p,
        {
            "p": "middle of a bin of p(target)",
            "tokens": "tokens in it",
            "bound": "largest rank that this p allows: 1/p",
            "rank_low": "5% of their ranks are at most this",
            "rank_median": "half of them",
            "rank_high": "95%",
        },
    ),
    "at_equal_rank": (
        RankAndProbability.at_equal_rank,
        {
            "rank": "first rank of a bin",
            "tokens": "tokens in it",
            "p_low": "5% of their p(target) are at most this",
            "p_median": "half of them",
            "p_high": "95%",
        },
    ),
}
"""Tables of one measurement: what makes them, and the meanings of their columns."""


def countable_ks(ks: Sequence[int]) -> list[int]:
    """Return the k among these for which `RANK_EDGES` give RBP_k (arXiv 2510.20387) exactly."""
    return [k for k in ks if k + 1 in RANK_EDGES]


def quantiles_by_bin(counts: FloatArray, values: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Return quantiles of a binned quantity in every row of counts, (rows, len(levels)); NaN in empty rows.

    `values` stands for the bins, ascending, (bins,).

    Source: the inverse of the empirical distribution function.

    """
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        passed = np.cumsum(counts, axis=1) / total
    quantiles = np.full((len(counts), len(levels)), np.nan)
    for i in np.flatnonzero(total[:, 0]):
        quantiles[i] = values[np.searchsorted(passed[i], np.asarray(levels) - 1e-12).clip(max=len(values) - 1)]
    return quantiles


@dataclass(frozen=True)
class Rates:
    """How often tokens have R <= k at each -ln p, in replicates: arrays (replicates, nats).

    Attributes:
        share: of the tokens that lies in each bin of -ln p.
        rate: share of a bin's tokens with R <= k; NaN in a bin without tokens.
        nats: mean -ln p of a bin's tokens; NaN without tokens.

    """

    share: FloatArray
    rate: FloatArray
    nats: FloatArray

    @classmethod
    def of(cls, counts: RankAndProbability, weights: Weights) -> dict[int, Rates]:
        """Return, for each k of the counts, the sums of the documents as weighted, (replicates, documents).

        Source: RBP_k of arXiv 2510.20387 (R by its eq. 3) within bins of p(target).
        """
        up_to = np.cumsum(counts.tokens, axis=2)
        places = [*(np.searchsorted(RANK_EDGES, counts.ks, side="right") - 1), -1]
        *hits, every = np.moveaxis(drawn_sums(weights, up_to[:, :, places]), 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = every / every.sum(axis=1, keepdims=True)
            nats = drawn_sums(weights, counts.nats) / every
            return {k: cls(share, hit / every, nats) for k, hit in zip(counts.ks, hits, strict=True)}


def split_of_gain(first: Rates, second: Rates) -> FloatArray:
    """Split the gain in RBP_k of a second model over a first: (replicates, 2), mix and within.

    Mix: tokens move to higher p(target), as cross-entropy sees. Within: at equal p more of them have R <= k, which
    cross-entropy does not see. mix + within is the whole difference. Of a bin that both models share, what the second's
    tokens gain by their higher p inside it is mix, too: the slope of the rate over the bins, times how far the means of
    -ln p lie apart (without it a true 0 lies outside of the interval in up to 12%: studies/rank_and_ce.py).

    Source: Kitagawa, Journal of the American Statistical Association 50, 1955.
    """
    w = first.share
    w_b = second.share
    rate = np.nan_to_num(np.where(np.isnan(first.rate), second.rate, first.rate))  # a bin that one of them lacks
    rate_b = np.nan_to_num(np.where(np.isnan(second.rate), first.rate, second.rate))
    moved = np.nan_to_num(second.nats - first.nats) * _slope(first, second)
    within = ((w + w_b) / 2 * (rate_b - rate - moved)).sum(axis=1)
    whole = (w_b * rate_b - w * rate).sum(axis=1)
    return np.stack([whole - within, within], axis=1)


def _slope(first: Rates, second: Rates) -> FloatArray:
    """Return how the rate changes with -ln p at each bin that both models have, (nats,); 0 elsewhere. For all
    replicates.
    """
    both = [np.stack([getattr(rates, name) for rates in (first, second)]) for name in ("nats", "rate")]
    there = np.flatnonzero(np.isfinite(both[0]).all(axis=(0, 1)))
    slope = np.zeros(both[0].shape[2])
    if len(there) > 1:
        nats, rate = (values[:, :, there].mean(axis=(0, 1)) for values in both)
        slope[there] = np.gradient(rate, nats)
    return slope
