"""Figures 8b and 8c as the authors' code computes them (arXiv 2510.20387), and the measured values beside them.

8b: `powerlaw` 1.5 with `discrete=True, xmin=1` fits k**-alpha and a lognormal to the ranks and compares their
likelihoods. 8c: the lognormal's mu and sigma predict CE and -ln RBP_1, by continuous integrals, at each S. None of this
knows that ranks end at |V|; the analyzer `lognormal` has the exact sums on {1..V}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

from rbptrack.analysis import RankHistogram, Runs, Unreadable
from rbptrack.analysis.families import Family, read_families
from rbptrack.ranks import FloatArray, IntArray, sum_by
from rbptrack.stats.linear import straight_line

from .rows import PredictedLawRow, RankFitRow

_START = (0.0, 0.7)  # mu and ln sigma
_WIDEST = 20.0  # of ln sigma and |mu| / 5: beyond, the likelihood has no maximum and the lognormal is a power law


@dataclass(frozen=True)
class RankFit:
    """The two fits of figure 8b.

    Attributes:
        alpha: exponent of the power law.
        mu: of the lognormal, NaN where the likelihood has no maximum.
        sigma: of the lognormal.

    """

    alpha: float
    mu: float
    sigma: float

    def log_ratio(self, rank: IntArray) -> FloatArray:
        """Return ln p_power_law(k) - ln p_lognormal(k) of each rank, (ranks,)."""
        return log_power_law(rank, self.alpha) - log_lognormal(rank, self.mu, self.sigma)


def log_power_law(rank: IntArray, alpha: float) -> FloatArray:
    """Return ln of k**-alpha / zeta(alpha), k = 1, 2, ... without end.

    Source: Clauset, Shalizi and Newman, SIAM Review 51, 2009, eq. 3.5.
    """
    return np.asarray(-alpha * np.log(rank) - np.log(special.zeta(alpha)))


def log_lognormal(rank: IntArray, mu: float, sigma: float) -> FloatArray:
    """Return ln of the mass that a lognormal above 1/2 has between k - 1/2 and k + 1/2.

    Source: `powerlaw` 1.5, `discrete_approximation="round"`.
    """
    low = (np.log(rank - 0.5) - mu) / sigma
    high = (np.log(rank + 0.5) - mu) / sigma
    left = high < 0  # the tail in which the difference loses no digits
    larger = special.log_ndtr(np.where(left, high, -low))
    smaller = special.log_ndtr(np.where(left, low, -high))
    with np.errstate(divide="ignore"):
        mass = larger + np.log(-np.expm1(smaller - larger))
    return np.asarray(mass - special.log_ndtr((mu - np.log(0.5)) / sigma))


def fit_ranks(histogram: RankHistogram) -> RankFit:
    """Fit both distributions to all ranks.

    alpha = 1 + n / sum ln(2 R) is the estimate of `powerlaw` 1.5 for discrete data, not the maximum of the likelihood;
    mu and sigma are of maximum likelihood.

    Source: Clauset, Shalizi and Newman, SIAM Review 51, 2009, eq. 3.7; `powerlaw` 1.5.
    """
    rank = histogram.rank
    count = histogram.count
    tokens = histogram.num_tokens
    alpha = 1 + tokens / float(count @ np.log(2.0 * rank))

    def loss(parameters: FloatArray) -> float:
        mass = log_lognormal(rank, float(parameters[0]), float(np.exp(parameters[1])))
        value = -float(count @ mass) / tokens
        return value if np.isfinite(value) else 1e10

    options = {"xatol": 1e-8, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
    best = optimize.minimize(loss, _START, method="Nelder-Mead", options=options)
    mu, log_sigma = map(float, best.x)
    if not best.success or max(abs(mu) / 5, abs(log_sigma)) > _WIDEST:
        return RankFit(alpha, np.nan, np.nan)
    return RankFit(alpha, mu, float(np.exp(log_sigma)))


def likelihood_ratio(log_ratio: FloatArray, count: IntArray) -> tuple[float, float]:
    """Return `powerlaw`'s R = sum of ln(p_1/p_2) over tokens, and the two-sided p of its sign.

    R above 0 is for the power law. Each token counts as independent.

    Source: Vuong, Econometrica 57, 1989.
    """
    tokens = int(count.sum())
    total = float(count @ log_ratio)
    variance = float(count @ (log_ratio - total / tokens) ** 2) / tokens
    return total, float(special.erfc(abs(total) / np.sqrt(2 * tokens * variance)))


def document_p(ratios: FloatArray, tokens: FloatArray) -> float:
    """Return the p of the same R with documents as the independent units; NaN for fewer than 2.

    Args:
        ratios: sums of ln(p_1/p_2) by document, (documents,).
        tokens: how many tokens each has, (documents,).

    Source: Vuong, Econometrica 57, 1989, with the variance of a ratio of sums over documents.

    """
    documents = len(ratios)
    if documents < 2:
        return float("nan")
    total = float(ratios.sum())
    own = ratios - tokens * (total / float(tokens.sum()))
    variance = float(own @ own) * documents / (documents - 1)
    return float(special.erfc(abs(total) / np.sqrt(2 * variance)))


def predicted(mu: float, sigma: float) -> tuple[float, float]:
    """Return -ln RBP_1 and CE, nats, as the authors derive them from a lognormal of ranks.

    With m = mu/sigma and c = Phi(m) + phi(m)/(2 sigma): -ln RBP_1 = ln(sqrt(2 pi) sigma c) + m**2/2, and CE adds
    [Phi(m) (1/2 - m**2/2 + mu) + phi(m) (sigma - m/2)] / c.

    Source: arXiv 2510.20387, appendix B, with the authors' normaliser c.
    """
    m = mu / sigma
    below = float(special.ndtr(m))
    density = float(np.exp(-(m**2) / 2) / np.sqrt(2 * np.pi))
    c = below + density / (2 * sigma)
    neg_log_rbp = float(np.log(np.sqrt(2 * np.pi) * sigma * c)) + m**2 / 2
    return neg_log_rbp, neg_log_rbp + (below * (0.5 - m**2 / 2 + mu) + density * (sigma - m / 2)) / c


def rank_fit_rows(runs: Runs) -> Iterator[RankFitRow]:
    """Yield figure 8b's numbers for each size whose ranks are known, by family."""

    def load(family: Family, run_id: str) -> RankHistogram:
        family.require_ranks()
        return runs.histogram(run_id)

    for family, histograms in read_families(runs, load, []):
        for keys, run_ids, histogram in zip(family.size_keys, family.run_ids, histograms, strict=True):
            fit = fit_ranks(histogram)
            ratio, p = likelihood_ratio(fit.log_ratio(histogram.rank), histogram.count)
            neg_log_rbp, ce = predicted(fit.mu, fit.sigma)
            share = histogram.count / histogram.num_tokens
            yield RankFitRow(
                **keys,
                zipf=fit.alpha,
                mu=fit.mu,
                sigma=fit.sigma,
                ratio=ratio,
                p=p,
                p_documents=_p_of_documents(runs, run_ids, fit),
                neg_log_rbp_1=neg_log_rbp,
                neg_log_rbp_1_measured=-float(np.log(histogram.rbp(1))) if histogram.rbp(1) else np.nan,
                ce=ce,
                entropy_measured=-float(share @ np.log(share)),
                ce_measured=histogram.ce,
            )


def _p_of_documents(runs: Runs, run_ids: Sequence[str], fit: RankFit) -> float:
    numbers = list[IntArray]()
    sums = list[FloatArray]()
    try:
        for run_id in run_ids:
            for piece in runs.rank_pieces(run_id, version=1):
                present, document = piece.documents
                ratio = np.zeros(piece.vocab_size + 1)  # of each rank: far fewer than tokens
                ranks = np.flatnonzero(np.bincount(piece.rank))
                ratio[ranks] = fit.log_ratio(ranks)
                ratios = np.bincount(document, ratio[piece.rank], minlength=len(present))
                tokens = np.bincount(document, minlength=len(present))
                numbers.append(present)
                sums.append(np.column_stack([ratios, tokens]))
    except Unreadable:
        return float("nan")
    if not numbers:
        return float("nan")
    by_document = sum_by(np.concatenate(numbers).tolist(), np.concatenate(sums))
    return document_p(by_document[:, 0], by_document[:, 1])


def predicted_law_rows(rows: Sequence[RankFitRow]) -> Iterator[PredictedLawRow]:
    """Yield figure 8c's two lines for each family of at least 3 sizes, and the lines of the measured values."""
    for dataset, family in dict.fromkeys((row.dataset, row.family) for row in rows):
        sizes = [row for row in rows if (row.dataset, row.family) == (dataset, family)]
        if len(sizes) < 3:
            continue
        for quantity, pairs in {
            "ce": [(row.ce, row.ce_measured) for row in sizes],
            "rbp_1": [(row.neg_log_rbp_1, row.neg_log_rbp_1_measured) for row in sizes],
        }.items():
            values = np.array(pairs)
            if not (values > 0).all():
                continue
            log_s = np.log([row.S for row in sizes])
            theirs, measured = (straight_line(log_s, np.log(column)) for column in values.T)
            yield PredictedLawRow(
                dataset=dataset,
                family=family,
                metric=quantity,
                sizes=len(sizes),
                predicted=-theirs.slope,
                predicted_r2=theirs.r2,
                measured=-measured.slope,
                r2=measured.r2,
            )
