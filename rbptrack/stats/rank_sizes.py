"""The distribution of the ranks of one size: every candidate's fit, the free lognormal, and its intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import FloatArray, RankHistogram
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.intervals import LEAST_DOCUMENTS
from rbptrack.stats.lognormal_sizes import mu_over_sigma
from rbptrack.stats.rank_distributions import Support
from rbptrack.stats.rank_fit import RankFit, fit_ranks, sampling_kl, vuong
from rbptrack.stats.rank_lognormal import fit_lognormal, information_covariance, log_sums


@dataclass(frozen=True)
class RanksOfSize:
    """What is fitted to the ranks of one size.

    Attributes:
        histogram: its ranks.
        fits: of every candidate.
        vuong: z of each candidate against the lognormal; empty without documents.
        floor: KL that sampling alone would give, nats per token.
        free: (beta, gamma), gamma free to be negative, (2,).
        draws: the same in bootstrap replicates, (replicates, 2).
        low: lower ends of their intervals, (2,).
        high: upper ends, (2,).
        ratio: interval of mu/sigma.
        interval_from: where the intervals come from.

    """

    histogram: RankHistogram
    fits: dict[str, RankFit]
    vuong: dict[str, float]
    floor: float
    free: FloatArray
    draws: FloatArray
    low: FloatArray
    high: FloatArray
    ratio: tuple[float, float]
    interval_from: str

    @property
    def limit(self) -> bool:
        """Whether gamma's interval reaches 0 or below, or is not known: mu and sigma are not identifiable."""
        return not self.low[1] > 0

    @property
    def best(self) -> RankFit:
        """The candidate with the lowest AIC."""
        return min(self.fits.values(), key=lambda fit: fit.aic)


def fit_size(
    histogram: RankHistogram,
    documents: FloatArray | None,
    fits: dict[str, RankFit],
    *,
    effect: float,
    seed: int,
    level: float,
    replicates: int,
) -> RanksOfSize:
    """What every candidate is to the ranks of one size, and (beta, gamma) of the lognormal with gamma free.

    Source: maximum likelihood (`fit_ranks`, `fit_lognormal`); intervals by bootstrap over documents, or from Fisher
    information where documents are not known; none where they are fewer than 10.

    Args:
        histogram: the ranks.
        documents: each document's tokens as weights of the points of `Support.nodes`, (documents, points); None where
            only the histogram is known.
        fits: of every candidate, of `fit_all`.
        effect: how many times the variance of independent tokens theirs is, for Fisher's information.
        seed: of the draws from that.
        level: nominal coverage of the intervals.
        replicates: of the bootstrap.

    Raises:
        RbptrackError: too few ranks to fit anything to.

    """
    support, fits = Support.nodes(histogram.vocab_size), fits or fit_ranks(histogram)
    free = fit_lognormal(log_sums(support.project(histogram.rank, histogram.count), support), support)
    few = documents is not None and len(documents) < LEAST_DOCUMENTS
    if documents is not None and not few:
        weights = document_weights(len(documents), replicates=replicates)
        draws = fit_lognormal(drawn_sums(weights, log_sums(documents, support)), support, start=free)
        source = "documents"
    else:
        covariance = effect * information_covariance(free, support, tokens=histogram.num_tokens)
        draws = np.random.default_rng([0, seed]).multivariate_normal(free, covariance, size=replicates)
        source = "" if few else f"likelihood, design effect {effect:.1f}"
    tail = 50 * (1 - level)
    low, high = np.percentile(draws, [tail, 100 - tail], axis=0)
    ratio = mu_over_sigma(draws[draws[:, 1] > 0])
    ends = tuple(np.percentile(ratio, [tail, 100 - tail])) if len(ratio) else (np.nan, np.nan)
    if few:
        low, high, ends = np.full(2, np.nan), np.full(2, np.nan), (np.nan, np.nan)
    scores = {}
    if documents is not None:
        reference = fits["lognormal"]
        scores = {n: vuong(f, reference, documents, support) for n, f in fits.items() if n != "lognormal"}
    best = min(fits.values(), key=lambda fit: fit.aic)
    floor = sampling_kl(best, tokens=histogram.num_tokens)
    return RanksOfSize(histogram, fits, scores, floor, free, draws, low, high, (float(ends[0]), float(ends[1])), source)
