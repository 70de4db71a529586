"""The distribution of the ranks of each size: candidates, the free lognormal, and how it changes with size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import FloatArray, RankHistogram
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval
from rbptrack.stats.linear import centred, estimate_error, inverse
from rbptrack.stats.spread import Spread

from .rank_distributions import Support
from .rank_fit import RankFit, fit_ranks, sampling_kl, vuong
from .rank_lognormal import fit_lognormal, information_covariance, log_sums


@dataclass(frozen=True)
class RanksOfSize:
    """The fits to the ranks of one size.

    Attributes:
        histogram: its ranks.
        fits: of every candidate.
        vuong: z of each candidate against the lognormal; empty without documents.
        floor: KL that sampling alone would give, nats per token.
        free: (beta, gamma), gamma free to be negative, (2,).
        draws: the same in bootstrap replicates, (replicates, 2).
        beta: with its interval.
        gamma: with its interval.
        ratio: the ends of the interval of mu/sigma.
        interval_from: where the intervals come from.

    """

    histogram: RankHistogram
    fits: dict[str, RankFit]
    vuong: dict[str, float]
    floor: float
    free: FloatArray
    draws: FloatArray
    beta: Interval
    gamma: Interval
    ratio: tuple[float, float]
    interval_from: str

    @property
    def limit(self) -> bool:
        """Whether gamma's interval reaches 0 or below, or is unknown: mu and sigma are not identifiable."""
        return not self.gamma.low > 0

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
    """Fit every candidate to the ranks of one size, and return (beta, gamma) of the lognormal with gamma free.

    Source: maximum likelihood (`fit_ranks`, `fit_lognormal`); intervals by bootstrap over documents, or from Fisher
    information where documents are unknown; none where they are fewer than 10.

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
    support = Support.nodes(histogram.vocab_size)
    fits = fits or fit_ranks(histogram)
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
    ends_of_both = np.percentile(draws, [tail, 100 - tail], axis=0)
    ratio = mu_over_sigma(draws[draws[:, 1] > 0])
    ends = tuple(np.percentile(ratio, [tail, 100 - tail])) if len(ratio) else (np.nan, np.nan)
    if few:
        ends_of_both = np.full((2, 2), np.nan)
        ends = (np.nan, np.nan)
    scores = {}
    if documents is not None:
        reference = fits["lognormal"]
        scores = {n: vuong(f, reference, documents, support) for n, f in fits.items() if n != "lognormal"}
    best = min(fits.values(), key=lambda fit: fit.aic)
    floor = sampling_kl(best, tokens=histogram.num_tokens)
    beta, gamma = (Interval(*map(float, bounds)) for bounds in np.vstack([free, ends_of_both]).T)
    ratio_ends = float(ends[0]), float(ends[1])
    return RanksOfSize(histogram, fits, scores, floor, free, draws, beta, gamma, ratio_ends, source)


@dataclass(frozen=True)
class LognormalTrend:
    """Lines of beta and gamma in ln S, and what they say of mu/sigma = (1 - beta)/sqrt(2 gamma).

    Attributes:
        beta: change of beta per unit of ln S.
        gamma: change of gamma per unit of ln S.
        mu_over_sigma: change of mu/sigma at the geometric mean of the sizes; None where gamma may be near 0 there (its
            interval reaches below half of it): Zipf's law has no mu and sigma.
        r2: of both lines, (2,).

    """

    beta: Interval
    gamma: Interval
    mu_over_sigma: Interval | None
    r2: FloatArray


def mu_over_sigma(theta: FloatArray) -> FloatArray:
    """Return mu/sigma = (1 - beta)/sqrt(2 gamma) of (beta, gamma), gamma > 0, (..., 2) to (...) (arXiv 2510.20387, eq.
    9).
    """
    return np.asarray((1 - theta[..., 0]) / np.sqrt(2 * theta[..., 1]))


def lognormal_trend(s: FloatArray, theta: FloatArray, draws: FloatArray, *, level: float) -> LognormalTrend:
    """Fit beta and gamma as lines in ln S to every size, identified or not.

    To leave some out would select by the answer. Least squares; what the sampling covariance of all sizes (paired by
    document) says of a slope is known, scatter between models is estimated from m - 2 residuals (`Spread`). mu/sigma's
    change, -beta'/sqrt(2 gamma) - (1 - beta) gamma'/(2 gamma)^(3/2), is linearised at the middle of the lines: it is
    the slope of one combination of (beta, gamma), moved by the error of another there.
    Source: the lognormal of arXiv 2510.20387, eq. 9, in natural parameters.

    Args:
        s: sizes S, (m,), m >= 3.
        theta: (beta, gamma) of each, gamma free to be negative, (m, 2).
        draws: the same in bootstrap replicates, (m, replicates, 2).
        level: nominal coverage of the intervals.

    """
    m = len(s)
    x = np.log(s)
    design = centred(x)
    middle, slope = inverse(design) @ theta  # beta and gamma each
    sampling = np.cov(np.moveaxis(draws, 1, 0).reshape(draws.shape[1], -1).T).reshape(m, 2, m, 2)

    def error(at: FloatArray, direction: FloatArray) -> Spread:
        """Return the error of at @ (intercept, slope) of the line through the combination theta @ of."""
        return estimate_error(
            at, centred(x), theta @ direction, np.einsum("iajb,a,b->ij", sampling, direction, direction)
        )

    level_at = np.array([1.0, 0.0])
    slope_at = np.array([0.0, 1.0])
    slopes = [
        Interval.around(float(b), error(slope_at, direction).half(level))
        for b, direction in zip(slope, np.eye(2), strict=True)
    ]
    ratio = None
    if middle[1] > 2 * error(level_at, np.eye(2)[1]).half(level):  # else it is too crooked for a straight line
        value, by_slope, by_middle = _change(middle, slope)
        solved = inverse(design)
        shared = np.einsum("i,iajb,j,a,b->", solved[0], sampling, solved[1], by_middle, by_slope)
        whole = (error(slope_at, by_slope) + error(level_at, by_middle)).minus_shared(-float(shared))
        ratio = Interval.around(value, whole.half(level))
    residual = theta - design @ np.stack([middle, slope])
    total = ((theta - theta.mean(axis=0)) ** 2).sum(axis=0)
    return LognormalTrend(slopes[0], slopes[1], ratio, 1 - (residual**2).sum(axis=0) / total)


def _change(middle: FloatArray, slope: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return d(mu/sigma)/d ln S at the middle of lines, and its derivatives by the lines' slopes and by their
    middles.
    """
    beta, gamma = middle
    beta_slope, gamma_slope = slope
    root = np.sqrt(2 * gamma)
    by_slope = np.array([-1 / root, -(1 - beta) / root**3])
    by_middle = np.array([gamma_slope / root**3, beta_slope / root**3 + 3 * (1 - beta) * gamma_slope / root**5])
    return float(by_slope @ slope), by_slope, by_middle
