"""Fit candidate distributions to a rank histogram by maximum likelihood, and say how far each is from the data.

The histogram (or its projection on a support's points) is all that a fit reads: its cost does not grow with the number
of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import FloatArray, IntArray, RankHistogram
from rbptrack.stats.newton import minimise

from .rank_distributions import CANDIDATES, Candidate, Support
from .rank_lognormal import log_features, maximum_likelihood

LEAST_RANKS = 8
"""Fewer different ranks than this do not distinguish candidates."""


@dataclass(frozen=True)
class RankFit:
    """One candidate fitted to one histogram; every number from exact sums over 1..V.

    Attributes:
        candidate: which.
        theta: the parameters as `Candidate.log_pmf` takes them.
        vocab_size: V.
        log_likelihood: of all tokens, nats.
        kl: KL divergence of the observed shares from the fit, nats per token.
        ks: max over k of |RBP_k fitted - RBP_k observed|, which is the discrete KS distance.
        ks_at: the k of that maximum.

    """

    candidate: Candidate
    theta: FloatArray
    vocab_size: int
    log_likelihood: float
    kl: float
    ks: float
    ks_at: int

    @property
    def aic(self) -> float:
        """2 * parameters - 2 ln L. Takes tokens for independent, which they are not: lead with `kl`."""
        return 2 * len(self.candidate.parameters) - 2 * self.log_likelihood

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters as reported, by name."""
        return dict(zip(self.candidate.parameters, self.candidate.report(self.theta), strict=True))

    @property
    def log_pmf(self) -> FloatArray:
        """Ln P(k) at k = 1..V, (V,); computed at each call, because many fits of large vocabularies fill a memory."""
        return self.candidate.log_pmf(self.theta, Support.exact(self.vocab_size))

    @property
    def entropy(self) -> float:
        """Entropy of the fitted distribution, nats."""
        log_pmf = self.log_pmf
        return float(-np.exp(log_pmf) @ log_pmf)


def fit_ranks(histogram: RankHistogram, names: Sequence[str] = tuple(CANDIDATES)) -> dict[str, RankFit]:
    """Fit candidates (all by default) by maximum likelihood on {1..V}.

    Source: `fit_all`.

    Raises:
        RbptrackError: fewer than 8 different ranks occur, too few to tell candidates apart.

    """
    if len(histogram.rank) < LEAST_RANKS:
        raise RbptrackError(
            f"only {len(histogram.rank)} different ranks occur; a distribution needs at least {LEAST_RANKS}"
        )
    return fit_all([histogram], names)[0]


def fit_all(histograms: Sequence[RankHistogram], names: Sequence[str] = tuple(CANDIDATES)) -> list[dict[str, RankFit]]:
    """Fit candidates to each of several histograms, such as those of a family's sizes, together.

    Source: Clauset, Shalizi and Newman, SIAM Review 51, 2009, section 3, with exact sums over 1..V.

    Returns:
        The fits of each by candidate; none where fewer than 8 different ranks occur.

    """
    fits: list[dict[str, RankFit]] = [{} for _ in histograms]
    enough = [i for i, histogram in enumerate(histograms) if len(histogram.rank) >= LEAST_RANKS]
    for vocab_size in dict.fromkeys(histograms[i].vocab_size for i in enough):
        same_size = [i for i in enough if histograms[i].vocab_size == vocab_size]
        support = Support.nodes(vocab_size)
        data = np.stack(
            [
                support.project(histogram.rank, histogram.count) / histogram.num_tokens
                for histogram in (histograms[i] for i in same_size)
            ]
        )
        for name in names:
            for i, theta in zip(same_size, _estimate(name, data, support), strict=True):
                fits[i][name] = _assess(CANDIDATES[name], theta, histograms[i])
    return fits


def sampling_kl(fit: RankFit, *, tokens: int, seed: int = 20251020) -> float:
    """Return KL per token that a sample of so many independent tokens from the fit itself would show (one draw): the
    floor.

    Source: the Kullback-Leibler divergence (1951) of an empirical distribution from the one that it was drawn from.
    """
    p = np.exp(fit.log_pmf)
    share = np.random.default_rng(seed).multinomial(tokens, p / p.sum()) / tokens
    there = share > 0
    return float(share[there] @ (np.log(share[there]) - fit.log_pmf[there]))


def vuong(first: RankFit, second: RankFit, documents: FloatArray, support: Support) -> float:
    """Return Vuong's z of two fits, above 0 where the first is better; documents' weights of the points, (documents,
    points).

    z = sum_d l_d / sqrt(sum_d (l_d - mean)^2), l_d the document's log-likelihood ratio.

    Source: Vuong, Econometrica 57, 1989.
    """
    ratio = first.candidate.log_pmf(first.theta, support) - second.candidate.log_pmf(second.theta, support)
    per_document = documents @ ratio
    spread = float(np.sqrt(((per_document - per_document.mean()) ** 2).sum()))
    return float(per_document.sum() / spread) if spread > 0 else 0.0


def _assess(candidate: Candidate, theta: FloatArray, histogram: RankHistogram) -> RankFit:
    log_pmf = candidate.log_pmf(theta, Support.exact(histogram.vocab_size))
    n = histogram.num_tokens
    share = histogram.count / n
    at = log_pmf[histogram.rank - 1]
    observed = np.zeros(histogram.vocab_size)
    observed[histogram.rank - 1] = share
    gap = np.abs(np.cumsum(np.exp(log_pmf)) - np.cumsum(observed))
    return RankFit(
        candidate=candidate,
        theta=theta,
        vocab_size=histogram.vocab_size,
        log_likelihood=float(histogram.count @ at),
        kl=float(share @ (np.log(share) - at)),
        ks=float(gap.max()),
        ks_at=int(gap.argmax()) + 1,
    )


def _estimate(name: str, data: FloatArray, support: Support) -> FloatArray:
    """Return maximum likelihood for each row of data, shares at the support's points, (samples, points): (samples,
    p).
    """
    if name == "zipf":
        return _zipf(data, support, support.weight)
    if name == "lognormal":
        return _constrained(data, support, support.weight)
    if name == "point_mass_lognormal":
        return _point_mass(data, support)
    starts, log_pmf = _starts(name, data, support), CANDIDATES[name].log_pmf  # (starts, samples, p)
    several, samples, count = starts.shape

    def loss(thetas: FloatArray, which: IntArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            values = -np.einsum("rnp,rp->rn", log_pmf(thetas, support), data[which % samples])
        return np.where(np.isfinite(values), values, 1e3)

    ends, values = minimise(loss, starts.reshape(-1, count))
    best = values.reshape(several, samples).argmin(axis=0)
    return np.asarray(ends.reshape(several, samples, count)[best, np.arange(samples)])


def _constrained(data: FloatArray, support: Support, weight: FloatArray) -> FloatArray:
    """Return (beta, gamma) with gamma >= 0: where the free optimum is outside, the best on the border is Zipf's law."""
    features = log_features(support)
    fitted = maximum_likelihood(features, data @ features.T, weight)
    border = np.insert(_zipf(data, support, weight), 1, 0.0, axis=1)  # of all: to the last bit what Zipf's law is given
    return np.where(fitted[:, 1:] < 0, border, fitted)


def _zipf(data: FloatArray, support: Support, weight: FloatArray) -> FloatArray:
    feature = -support.log[None]
    return maximum_likelihood(feature, data @ feature.T, weight)


def _point_mass(data: FloatArray, support: Support) -> FloatArray:
    """Fit a free mass at 1 and a lognormal on {2..V}; a mass below 0 means that the plain lognormal is best."""
    rest = data.copy()
    weight = support.weight.copy()
    rest[:, 0] = weight[0] = 0.0
    body = _constrained(rest / rest.sum(axis=1, keepdims=True), support, weight)
    at_one = np.exp(CANDIDATES["lognormal"].log_pmf(body, support)[:, 0])
    mass = (data[:, 0] - at_one) / (1 - at_one)
    plain = _constrained(data, support, support.weight)
    return np.where(mass[:, None] < 0, np.insert(plain, 0, 0.0, axis=1), np.insert(body, 0, mass, axis=1))


def _starts(name: str, data: FloatArray, support: Support) -> FloatArray:
    """Return the starts of searches, from the data's moments, (starts, samples, p); two if the likelihood has two
    maxima.
    """
    beta, gamma = _constrained(data, support, support.weight).T
    slope = _zipf(data, support, support.weight)[:, 0]
    none = np.zeros(len(data))
    mean = np.maximum(data @ support.x, 1.5)
    log_gamma = np.log(np.maximum(gamma, 1e-3))
    single_starts = {
        "lognormal_cdfdiff": [beta, log_gamma],
        "zipf_mandelbrot": [slope, none],
        "weibull": [none - 1.5, none + np.log(0.5)],
        "negative_binomial": [none + np.log(0.2), np.log(0.2 / mean)],
        "shifted_cutoff": [slope, none, -np.log(mean) - 2],
    }
    if name in single_starts:
        return np.stack(single_starts[name], axis=1)[None]
    mean_log = data @ support.log
    spread = np.sqrt(np.maximum(data @ support.log**2 - mean_log**2, 0.1))

    def component(mu: FloatArray, sigma: FloatArray) -> list[FloatArray]:
        return [1 - mu / sigma**2, -np.log(2 * sigma**2)]

    hills = [
        [none, *component(none, 0.7 * spread), *component(mean_log + spread, spread)],
        [none - 0.5, *component(mean_log - spread / 2, spread / 2), *component(mean_log, 1.5 * spread)],
    ]
    return np.stack([np.stack(hill, axis=1) for hill in hills])
