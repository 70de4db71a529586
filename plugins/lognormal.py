"""Are ranks lognormal? Exact fits of a lognormal and of Zipf's law on {1..V}, and how mu/sigma changes with size.

ln P(k) = const - beta ln k - gamma ln^2 k with beta = 1 - mu/sigma^2, gamma = 1/(2 sigma^2) (arXiv 2510.20387, eq. 9).
gamma = 0 is Zipf's law, where mu and sigma run away while the distribution does not; below 0 it is neither. So beta and
gamma come first, and mu and sigma only if gamma's interval lies above 0. Sums over all ranks are exact; an integral
of the paper's appendix stands beside one for comparison. Figures 8b to 8d of the paper are drawn.

The divergence of measured ranks from a distribution is not printed, because sampling alone makes it large: it was .07
nats a token where 170,000 ranks were drawn from the lognormal itself. Two numbers are printed instead. One is how much
better the lognormal describes the ranks than Zipf's law does, where this bias cancels. The other is the largest
difference of any RBP_k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import altair as alt
import numpy as np
import pandas as pd
from scipy import optimize
from scipy.special import log_ndtr

from rbptrack.analysis import (
    Analyzer,
    Family,
    Report,
    Runs,
    Term,
    counted,
    number,
    read_families,
    sentence,
    spanned,
    verdicts,
)
from rbptrack.figures import as_data, axis_of, by_colour, facets, legend_choice
from rbptrack.ranks import DocumentSums, FloatArray, RankHistogram
from rbptrack.stats import Estimate, estimate, fit, from_influences, influences

QUANTITIES = ("beta", "gamma", "mu_over_sigma")
MIN_RANKS = 8
"""Fewer different ranks do not tell the two distributions apart."""
MIN_DOCUMENTS = 200
"""Below, beta and gamma of a size have no intervals and no tests, and there are no mu and sigma: few documents decide
sums of ln^2 R. In simulation (studies/validity.csv) intervals of gamma cover 58 to 95% with 20 and 50 documents
and 83 to 96% with 200, and intervals of the gain over Zipf's law cover 79 to 95% with 200. The low values belong
to documents whose difficulty is skewed. The lines of beta and gamma over sizes have intervals, because they
include the scatter of sizes.
"""

NO_GAMMA = 1e-9
"""A gamma up to this is 0: it changes no ln P(k) by more than 1e-6, and maximum likelihood finds it no more exactly."""


@dataclass(frozen=True)
class RankSums(DocumentSums):
    """The sums that beta and gamma depend on: tokens, ln R and ln^2 R by document, (documents, 3)."""

    SUMMED = ("sums",)

    sums: FloatArray
    histogram: RankHistogram

    def __add__(self, other: Self) -> Self:
        return replace(super().__add__(other), histogram=self.histogram + other.histogram)


@dataclass(frozen=True)
class Fitted:
    """A lognormal and Zipf's law, fitted to the ranks of one size.

    Attributes:
        counts: its ranks.
        exponents: beta and gamma of maximum likelihood; gamma may be negative, (2,).
        information: the covariance of ln R and ln^2 R under that fit, (2, 2).
        lognormal: ln P(k) with gamma at least 0, k = 1..V, (V,).
        zipf: ln P(k) with gamma = 0, k = 1..V, (V,).

    """

    counts: RankSums
    exponents: FloatArray
    information: FloatArray
    lognormal: FloatArray
    zipf: FloatArray

    def quantities(self, totals: FloatArray) -> FloatArray:
        """Beta, gamma and mu/sigma of sums near those of all documents, (..., 3) -> (..., 3).

        A step of Newton's from the maximum gives beta and gamma; mu/sigma is NaN where gamma is not above `NO_GAMMA`.
        """
        sums = self.counts.sums.sum(axis=0)
        change = totals[..., 1:] / totals[..., :1] - sums[1:] / sums[0]  # of the means of ln R and ln^2 R
        beta, gamma = np.moveaxis(self.exponents - change @ np.linalg.inv(self.information), -1, 0)
        ratio = (1 - beta) / np.sqrt(2 * np.where(gamma > NO_GAMMA, gamma, np.nan))
        return np.stack([beta, gamma, ratio], axis=-1)

    @cached_property
    def influences(self) -> tuple[FloatArray, FloatArray]:
        """The `QUANTITIES`, (3,), and what each document adds to them, (documents, 3)."""
        return influences(self.counts, self.quantities)

    def estimate(self, quantity: str) -> Estimate:
        """One of the `QUANTITIES`, with an error from `MIN_DOCUMENTS` on."""
        values, u = self.influences
        i = QUANTITIES.index(quantity)
        number = from_influences(values[i], u[:, i])
        return number.without_error() if len(u) < MIN_DOCUMENTS else number

    @property
    def limit(self) -> str:
        """Whether gamma's interval reaches 0 (Zipf's limit): `yes`, `no` or `unknown`."""
        gamma = self.estimate("gamma")
        if not gamma.known:
            return "unknown"
        return "no" if gamma.interval()[0] > NO_GAMMA else "yes"

    @property
    def gain(self) -> Estimate:
        """Nats per token by which the lognormal describes the ranks better than Zipf's law; no interval at the limit.

        ln P(k) of either is a constant, a multiple of ln k and, of the lognormal, one of ln^2 k. So the difference is a
        sum over documents, and the parameters' errors do not change it to first order.
        """
        powers = np.log(np.arange(1, len(self.zipf) + 1))[:, None] ** np.arange(3)
        coefficients = np.linalg.lstsq(powers, self.lognormal - self.zipf, rcond=None)[0]
        gain = estimate(self.counts, lambda totals: totals @ coefficients / totals[..., 0])
        return gain if self.limit == "no" else gain.without_error()

    @property
    def mu_and_sigma(self) -> tuple[float, float]:
        """Return mu and sigma of the lognormal. Gamma must be above 0."""
        beta, gamma = self.exponents.tolist()
        return (1 - beta) / (2 * gamma), 1 / np.sqrt(2 * gamma)

    @property
    def determined(self) -> bool:
        """Whether it has mu and sigma: gamma's interval lies above 0."""
        return self.limit == "no"


def maximum_likelihood(means: FloatArray, vocab_size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit ln P(k) = const - beta ln k - gamma ln^2 k on {1..V}, a concave problem, with sums over every rank.

    Args:
        means: of ln R and ln^2 R over the tokens, (2,); of ln R alone for Zipf's law, (1,).
        vocab_size: V.

    Returns:
        The exponents, beta and gamma, or beta alone; the covariance of ln R and ln^2 R under the fit; and ln P(k) for
        k = 1..V.

    """
    powers = np.log(np.arange(1, vocab_size + 1))[None] ** np.arange(1, len(means) + 1)[:, None]  # (p, V)

    def log_pmf(exponents: FloatArray) -> FloatArray:
        values = -exponents @ powers
        values -= values.max()  # prevents overflow of the exponentials
        return np.asarray(values - np.log(np.exp(values).sum()))

    def loss(exponents: FloatArray) -> tuple[float, FloatArray]:
        of_ranks = log_pmf(exponents)
        return float(exponents @ means - of_ranks[0]), means - powers @ np.exp(of_ranks)

    def hessian(exponents: FloatArray) -> FloatArray:
        p = np.exp(log_pmf(exponents))
        mean = powers @ p
        return np.asarray((powers * p) @ powers.T - np.outer(mean, mean))

    start = np.eye(len(means))[0]  # Zipf's law with beta = 1
    exponents = optimize.minimize(loss, start, jac=True, hess=hessian, method="trust-exact").x
    # A last step of Newton's, where changes of the loss are below its rounding.
    exponents = exponents - np.linalg.solve(hessian(exponents), loss(exponents)[1])
    return exponents, hessian(exponents), log_pmf(exponents)


def fit_ranks(counts: RankSums) -> Fitted:
    """Fit both distributions by maximum likelihood to all ranks of one size."""
    sums = counts.sums.sum(axis=0)
    means = sums[1:] / sums[0]
    vocab_size = counts.histogram.vocab_size
    exponents, information, lognormal = maximum_likelihood(means, vocab_size)
    zipf = maximum_likelihood(means[:1], vocab_size)[2]
    if exponents[1] <= NO_GAMMA:
        lognormal = zipf  # the nearest one
    return Fitted(counts, exponents, information, lognormal, zipf)


def largest_difference(histogram: RankHistogram, log_pmf: FloatArray) -> float:
    """The largest difference of any RBP_k from a distribution's: the distance of Kolmogorov and Smirnov."""
    observed = histogram.rbp_curve(np.arange(1, len(log_pmf) + 1))
    return float(np.abs(np.cumsum(np.exp(log_pmf)) - observed).max())


def integral_of_p1(mu: float, sigma: float) -> float:
    """-ln p_1 by the integral over [1, inf) instead of the sum: ln[sigma Phi(m)/phi(m)], m = mu/sigma.

    Source: arXiv 2510.20387, appendix B. If the integral fails, the result is below 0 and p_1 above 1.
    """
    m = mu / sigma
    return float(np.log(sigma) + log_ndtr(m) + m**2 / 2 + np.log(2 * np.pi) / 2)


GLOSSARY = {
    "beta": Term("1 - mu/sigma^2, in ln P(k) = const - beta ln k - gamma ln^2 k; gamma may be negative", "β"),
    "gamma": Term("1/(2 sigma^2): above 0 as of a lognormal, 0 of Zipf's law, below 0 of neither", "γ", ".4f"),
    "mu_over_sigma": Term("of the lognormal, if gamma's interval lies above 0", "μ/σ"),
    "gain": Term(
        "nats per token by which the lognormal describes the ranks better than Zipf's law; no interval at Zipf's limit",
        "better than Zipf",
        ".4f",
    ),
    "slope": Term("change per unit of ln S, by a straight line"),
    "quantity": Term("what changes with S"),
    "limit": Term(
        "Zipf's limit: gamma's interval reaches 0, and mu and sigma are not determined; unknown without an interval"
    ),
    "ks_lognormal": Term("largest difference of any RBP_k from the lognormal's", "KS, lognormal"),
    "ks_zipf": Term("largest difference of any RBP_k from Zipf's law's", "KS, Zipf"),
    "mu": Term("of the lognormal, whose ranks have no mean of their own: mu may be far below 0", "μ"),
    "sizes": Term("how many"),
    "sigma": Term("of the lognormal", "σ"),
    "R2": Term("of the line in ln S", "R²"),
    "R2_in_S": Term("of a line in S instead", "R² in S"),
    "neg_log_p1": Term("-ln RBP_1, measured", "-ln RBP_1"),
    "neg_log_p1_lognormal": Term("-ln P(1) of the lognormal, by the exact sum", "-ln p_1, lognormal"),
    "neg_log_p1_integral": Term("the appendix's integral for it, which can fall below 0", "-ln p_1, integral"),
    "entropy": Term("of the measured ranks, nats; in a sample too low", "H(P)"),
    "entropy_lognormal": Term("of the lognormal, nats, by the exact sum", "H(P), lognormal"),
}


class Lognormal(Analyzer):
    """Are ranks lognormal? Exact fits of a lognormal and of Zipf's law on {1..V}, and mu/sigma against size."""

    cost: ClassVar[int] = 3

    def analyze(self, runs: Runs) -> Report:
        """Fit every measurement. Lines over sizes need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        implied = []
        most = 0  # documents of a measurement
        distributions = []
        reading = read_families(runs, partial(_read, runs))
        for family, sizes in reading:
            usable = [i for i, counts in enumerate(sizes) if len(counts.histogram.rank) >= MIN_RANKS]
            if len(usable) < len(sizes):
                few = ", ".join(label for i, label in enumerate(family.labels) if i not in usable)
                report.notes.append(f"{family}: {few} left out, fewer than {MIN_RANKS} different ranks occur.")
            fits = [fit_ranks(sizes[i]) for i in usable]
            for i, fitted in zip(usable, fits, strict=True):
                case = {**family.keys, "size": family.labels[i], "S": family.s[i]}
                _add_size(report, fitted, case)
                implied.append(case | _implied(fitted))
            fewest = min(len(counts.sums) for counts in sizes)
            most = max(most, *(len(counts.sums) for counts in sizes))
            if fewest < MIN_DOCUMENTS:
                few = f"it has {counted(fewest, 'document')}, and {MIN_DOCUMENTS} are needed"
                report.notes.append(f"{family}: no intervals of gamma, and no mu and sigma, because {few}.")
            if fits:
                largest = f"{family.models[usable[-1]]} on {family.dataset}"
                distributions.append(_distribution(largest, fits[-1]))
            if len(fits) > 1:
                _add_lines(report, family, family.s[usable], fits)
        report.notes += reading.notes
        if not implied:
            report.notes.append("No measurement has ranks that can be fitted.")
            return report
        report.tables["implied"] = pd.DataFrame(implied)
        report.headline = _headline(report, most)
        _draw(report, pd.concat(distributions))
        return report


def _read(runs: Runs, family: Family, run_id: str) -> RankSums:
    """The ranks of one run."""
    parts = []
    for piece in runs.rank_pieces(run_id, ["document", "rank"]):
        log_rank = np.log(np.arange(1, piece.vocab_size + 1))[piece.rank - 1]
        sums = [piece.sum_by_document(), piece.sum_by_document(log_rank), piece.sum_by_document(log_rank**2)]
        parts.append(np.column_stack(sums))
    return RankSums(np.concatenate(parts), runs.histogram(run_id))


def _add_size(report: Report, fitted: Fitted, case: dict[str, Any]) -> None:
    """Add beta, gamma, the gain over Zipf's law and, if it is determined, mu/sigma of one size.

    case: family, dataset, size and S.
    """
    histogram = fitted.counts.histogram
    misfit = {
        "ks_lognormal": largest_difference(histogram, fitted.lognormal),
        "ks_zipf": largest_difference(histogram, fitted.zipf),
    }
    report.add("beta", fitted.estimate("beta"), **case)
    report.add("gamma", fitted.estimate("gamma"), null=0.0, beside={"limit": fitted.limit}, **case)
    report.add("gain", fitted.gain, beside=misfit, **case)
    if fitted.determined:
        mu, sigma = fitted.mu_and_sigma
        report.add("mu_over_sigma", fitted.estimate("mu_over_sigma"), beside={"mu": mu, "sigma": sigma}, **case)


def _implied(fitted: Fitted) -> dict[str, float]:
    """-ln P(1) and the entropy of ranks, as measured and as the lognormal has them."""
    histogram = fitted.counts.histogram
    share = histogram.count / histogram.num_tokens
    first = histogram.rbp(1)
    return {
        "neg_log_p1": -np.log(first) if first else np.inf,
        "neg_log_p1_lognormal": -fitted.lognormal[0],
        "neg_log_p1_integral": integral_of_p1(*fitted.mu_and_sigma) if fitted.determined else np.nan,
        "entropy": -share @ np.log(share),
        "entropy_lognormal": -np.exp(fitted.lognormal) @ fitted.lognormal,
    }


def _add_lines(report: Report, family: Family, s: FloatArray, fits: Sequence[Fitted]) -> None:
    """Add how beta, gamma and, where every size has it, mu/sigma change with ln S."""
    determined = all(fitted.determined for fitted in fits)
    if not determined:
        report.notes.append(f"{family}: mu/sigma has no line in ln S, because it is not determined at every size.")
    for i, quantity in enumerate(QUANTITIES):
        if quantity == "mu_over_sigma" and not determined:
            continue
        values = np.array([fitted.influences[0][i] for fitted in fits])
        u = [fitted.influences[1][:, i] for fitted in fits]
        y = np.exp(values.mean() - values)
        law = fit(s, y, u)  # of exp(-value): its alpha is the slope of the value in ln S
        in_s = fit(np.exp(s / s.max()), y)
        beside = {"R2": law.r2, "R2_in_S": in_s.r2, "sizes": law.sizes}
        report.add("slope", law.alpha, null=0.0, beside=beside, quantity=quantity, **family.keys)


def _draw(report: Report, ranks: pd.DataFrame) -> None:
    """Draw figures 8b, 8c and 8d of the paper."""
    rank, share = "rank R, largest model of each family", "share of tokens"
    ranks = ranks.rename(columns={"rank": rank, "share": share})
    pick = legend_choice("distribution")
    axes = (axis_of(ranks[rank], alt.X, log=True), axis_of(ranks[share], alt.Y, log=True))
    chart = alt.Chart(as_data(ranks)).encode(*axes, **by_colour(ranks["distribution"], pick))
    laws = chart.transform_filter(alt.datum.distribution != "observed").mark_line()
    observed = chart.transform_filter(alt.datum.distribution == "observed").mark_point(size=20)
    observed = observed.encode(tooltip=[f"{rank}:Q", alt.Tooltip(f"{share}:Q", format=".3~g")])
    report.figures["distribution"] = alt.layer(laws, observed.add_params(pick)).facet("model:N", columns=3)
    names = {
        "neg_log_p1": ("-ln RBP_1", "as measured"),
        "neg_log_p1_lognormal": ("-ln RBP_1", "by the lognormal"),
        "entropy": ("entropy of ranks", "as measured"),
        "entropy_lognormal": ("entropy of ranks", "by the lognormal"),
    }
    long = report.tables["implied"].melt(["family", "dataset", "size", "S"], list(names), "column", "nats")
    long["panel"] = long["dataset"] + ": " + long["column"].map(lambda name: names[name][0])
    long["by"] = long["column"].map(lambda name: names[name][1])
    report.figures["implied"] = facets(long, x="S", y="nats", facet="panel", dash="by", log="xy")
    if "mu_over_sigma" in report.questions:
        ratio = report.frame("mu_over_sigma").rename(columns={"mu_over_sigma": "μ/σ"})
        report.figures["mu_over_sigma"] = facets(ratio, x="S", y="μ/σ", null=0.0)


def _distribution(model: str, fitted: Fitted) -> pd.DataFrame:
    """Observed ranks of one model in bins even in ln k, and both distributions: share of tokens per rank."""
    histogram = fitted.counts.histogram
    edges = np.unique(np.rint(np.geomspace(1, histogram.vocab_size + 1, 48)).astype(np.int64))
    observed = np.histogram(histogram.rank, bins=edges, weights=histogram.count / histogram.num_tokens)[0]
    shares = {"observed": observed}
    for name, log_pmf in {"lognormal": fitted.lognormal, "Zipf": fitted.zipf}.items():
        shares[name] = np.add.reduceat(np.exp(log_pmf), edges[:-1] - 1)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    frames = []
    for name, share in shares.items():
        of_one = pd.DataFrame({"model": model, "distribution": name, "rank": middle, "share": share / np.diff(edges)})
        frames.append(of_one[observed > 0])
    return pd.concat(frames)


def _headline(report: Report, documents: int) -> str:
    """Which way ranks curve, how much better the lognormal is than Zipf's law, and how far any RBP_k is off.

    Args:
        report: with its results.
        documents: of the measurement that has the most.

    """
    said = {"above": "ranks curve as a lognormal's do (gamma above 0)", "below": "ranks curve the other way"}
    tested = verdicts(
        report.frame("gamma"), said, noun="measurement", none="no curvature of ranks was found", power=True
    )
    gain = report.frame("gain")
    off = f"no RBP_k differs by more than {number(gain['ks_lognormal'].max(), '.3f')} from the lognormal's"
    known = gain[gain["low"].notna()]
    if len(known) == 1:
        row = known.iloc[0]
        gained, low, high = (number(row[name], ".3f") for name in ("gain", "low", "high"))
        better = f"the lognormal is better than Zipf's law by {gained} ({low} to {high}) nats a token"
    elif len(known):
        better = f"the lognormal is better than Zipf's law by {spanned(known['gain'], '.3f')} nats a token"
    else:
        better = ""
    too_few = f"too few documents to test gamma: {documents}, and {MIN_DOCUMENTS} are needed"
    return sentence(tested, better, off) if tested else sentence(off, too_few)
