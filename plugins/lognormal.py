"""Fit a lognormal distribution and Zipf's law on {1..V} to ranks, and show how mu/sigma changes with size.

A lognormal distribution of ranks is ln P(k) = const - beta ln k - gamma ln^2 k, with beta = 1 - mu/sigma^2 and gamma =
1/(2 sigma^2) (arXiv 2510.20387, eq. 9). gamma = 0 is Zipf's law. As gamma approaches 0, mu and sigma become infinite,
but beta and the distribution do not. If gamma is below 0, no lognormal exists, and no number of it is reported. The
analyzer therefore fits beta and gamma, and reports mu and sigma only if the interval of gamma lies above 0. The
analyzer sums over all ranks exactly. The report draws figures 8b to 8d of the paper.

The report does not contain the divergence of the measured ranks from a distribution, because sampling alone makes it
large: it was 0.07 nats per token for 170,000 ranks drawn from the lognormal itself. The report contains two other
numbers. The gain says by how many nats per token the lognormal describes the ranks better than Zipf's law. It is a
difference of two divergences, in which the bias of sampling cancels. The KS distance is the largest difference between
a measured RBP_k and that of the distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import altair as alt
import numpy as np
import pandas as pd
from scipy import optimize

from rbptrack.analysis import (
    Analyzer,
    Family,
    Glossary,
    Report,
    Runs,
    Term,
    counted,
    format_number,
    join_clauses,
    listed,
    range_text,
    read_families,
    verdict_clause,
)
from rbptrack.figures import axis_encoding, by_colour, facets, inline_data, legend_selection
from rbptrack.ranks import DocumentSums, FloatArray, RankHistogram, RankTable
from rbptrack.stats import (
    Estimate,
    estimate,
    estimates,
    fit,
    why_no_interval,
)

QUANTITIES = ("beta", "gamma", "mu_over_sigma")
MIN_RANKS = 8
"""The fewest different ranks of a size. With fewer, the two distributions cannot be distinguished."""

MIN_DOCUMENTS = 200
"""The fewest documents for intervals of beta and gamma of a size, and for mu and sigma.

A few documents often decide sums of ln^2 R, and intervals are then too narrow, above all if the distribution of
difficulty is skewed (docs/explanation/validity.md). Slopes of beta and gamma over sizes have intervals from 5
documents on, because these also include the scatter of sizes.
"""

ZERO_GAMMA = 1e-9
"""The largest gamma that counts as 0. It changes no ln P(k) by more than 1e-6, which is the precision of the fit."""


@dataclass(frozen=True)
class LogRankSums(DocumentSums):
    """The sums by document from which beta and gamma are computed.

    Attributes:
        sums: the number of tokens, and the sums of ln R and of ln^2 R, (documents, 3).
        histogram: how often each rank occurs.

    """

    SUMMED = ("sums",)
    TOTALS = ("histogram",)

    sums: FloatArray
    histogram: RankHistogram


def rank_sums(pieces: Iterable[RankTable], histogram: RankHistogram) -> LogRankSums:
    """Compute the sums by document of one run.

    Args:
        pieces: the rank table of the run in pieces of whole documents.
        histogram: the histogram of the same run.

    """
    rows = []
    for piece in pieces:
        ln_rank = np.log(np.arange(1, piece.vocab_size + 1))[piece.rank - 1]
        columns = [piece.sum_by_document(), piece.sum_by_document(ln_rank), piece.sum_by_document(ln_rank**2)]
        rows.append(np.column_stack(columns))
    return LogRankSums(np.concatenate(rows), histogram)


@dataclass(frozen=True)
class Fitted:
    """A lognormal distribution and Zipf's law that were fitted to the ranks of one size.

    Attributes:
        counts: the ranks.
        exponents: beta and gamma by maximum likelihood, (2,). gamma may be negative.
        information: the covariance of ln R and ln^2 R in the fitted distribution, (2, 2).
        lognormal: ln P(k) of the lognormal for k = 1..V, (V,); None if gamma is at most `ZERO_GAMMA`, because no
            lognormal exists then.
        zipf: ln P(k) of Zipf's law for k = 1..V, (V,).

    """

    counts: LogRankSums
    exponents: FloatArray
    information: FloatArray
    lognormal: FloatArray | None
    zipf: FloatArray

    def quantities(self, totals: FloatArray) -> FloatArray:
        """Return beta, gamma and mu/sigma for sums that are close to those of all documents, (..., 3).

        beta and gamma are computed by one Newton step from the fit to all documents. mu/sigma is NaN if gamma is at
        most `ZERO_GAMMA`.

        Args:
            totals: the number of tokens, and the sums of ln R and of ln^2 R, (..., 3).

        """
        sums = self.counts.sums.sum(axis=0)
        change = totals[..., 1:] / totals[..., :1] - sums[1:] / sums[0]  # change of the means of ln R and ln^2 R
        beta, gamma = np.moveaxis(self.exponents - change @ np.linalg.inv(self.information), -1, 0)
        ratio = (1 - beta) / np.sqrt(2 * np.where(gamma > ZERO_GAMMA, gamma, np.nan))
        return np.stack([beta, gamma, ratio], axis=-1)

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """The `QUANTITIES` with their errors over documents, also if there are fewer than `MIN_DOCUMENTS`."""
        return dict(zip(QUANTITIES, estimates(self.counts, self.quantities), strict=True))

    def estimate(self, quantity: str) -> Estimate:
        """Return one of the `QUANTITIES`. It has an error if there are at least `MIN_DOCUMENTS` documents."""
        number = self.estimates[quantity]
        return number.without_error() if len(self.counts.sums) < MIN_DOCUMENTS else number

    @property
    def limit(self) -> str:
        """Whether mu and sigma are undetermined: `no`, `yes` (Zipf's limit), `no lognormal` or `unknown`."""
        if self.lognormal is None:
            return "no lognormal"
        gamma = self.estimate("gamma")
        if not gamma.has_interval:
            return "unknown"
        return "no" if gamma.interval()[0] > ZERO_GAMMA else "yes"

    @property
    def gain(self) -> Estimate:
        """The mean of ln P(R) of the lognormal minus that of Zipf's law, in nats per token; NaN without a lognormal.

        It has an interval only if the interval of gamma lies above 0.

        ln P(k) of both distributions is a linear combination of 1, ln k and ln^2 k. Their difference is therefore a
        linear function of the sums of each document. To first order, errors of the fitted parameters do not change it.
        """
        if self.lognormal is None:
            return Estimate(np.nan, df=np.nan)
        powers = powers_of_ln_k(len(self.zipf))
        coefficients = np.linalg.lstsq(powers.T, self.lognormal - self.zipf, rcond=None)[0]
        gain = estimate(self.counts, lambda totals: totals @ coefficients / totals[..., 0])
        return gain if self.has_mu_and_sigma else gain.without_error()

    @property
    def mu_and_sigma(self) -> tuple[float, float]:
        """Mu and sigma of the lognormal. They exist only if gamma is above 0."""
        beta, gamma = self.exponents.tolist()
        return (1 - beta) / (2 * gamma), 1 / np.sqrt(2 * gamma)

    @property
    def has_mu_and_sigma(self) -> bool:
        """Whether the data determine mu and sigma: the interval of gamma lies above 0."""
        return self.limit == "no"


@lru_cache(maxsize=1)  # most measurements have the same |V|
def powers_of_ln_k(vocab_size: int) -> FloatArray:
    """Return 1, ln k and ln^2 k for k = 1..V, (3, V)."""
    return np.asarray(np.log(np.arange(1, vocab_size + 1)) ** np.arange(3)[:, None])


def maximum_likelihood(means: FloatArray, vocab_size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit ln P(k) = const - beta ln k - gamma ln^2 k on {1..V} by maximum likelihood.

    The likelihood is concave. Sums over all V ranks are exact.

    Args:
        means: the means of ln R and ln^2 R over the tokens, (2,). For Zipf's law (gamma = 0), only that of ln R, (1,).
        vocab_size: V.

    Returns:
        The exponents beta and gamma, (2,), or beta alone, (1,); the covariance of ln R and ln^2 R (or the variance of
        ln R) in the fitted distribution; and ln P(k) for k = 1..V, (V,).

    """
    powers = powers_of_ln_k(vocab_size)[1 : 1 + len(means)]

    @lru_cache(maxsize=1)  # the optimizer asks for loss and Hessian of the same exponents, one after the other
    def distribution(*exponents: float) -> tuple[FloatArray, FloatArray]:
        """Return ln P(k) and P(k) for k = 1..V, (V,) each."""
        values = -np.array(exponents) @ powers
        values -= values.max()  # prevents overflow of the exponentials
        log_p = values - np.log(np.exp(values).sum())
        return log_p, np.exp(log_p)

    def loss(exponents: FloatArray) -> tuple[float, FloatArray]:
        log_p, p = distribution(*exponents)
        return float(exponents @ means - log_p[0]), means - powers @ p

    def hessian(exponents: FloatArray) -> FloatArray:
        _, p = distribution(*exponents)
        mean = powers @ p
        return np.asarray((powers * p) @ powers.T - np.outer(mean, mean))

    start = np.eye(len(means))[0]  # Zipf's law with beta = 1
    exponents = optimize.minimize(loss, start, jac=True, hess=hessian, method="trust-exact").x
    # One more Newton step, because the optimizer stops when changes of the loss are below its rounding errors.
    exponents = exponents - np.linalg.solve(hessian(exponents), loss(exponents)[1])
    return exponents, hessian(exponents), distribution(*exponents)[0]


def fit_ranks(counts: LogRankSums) -> Fitted:
    """Fit a lognormal and Zipf's law by maximum likelihood to all ranks of one size."""
    sums = counts.sums.sum(axis=0)
    means = sums[1:] / sums[0]
    vocab_size = counts.histogram.vocab_size
    exponents, information, log_pmf = maximum_likelihood(means, vocab_size)
    zipf = maximum_likelihood(means[:1], vocab_size)[2]
    return Fitted(counts, exponents, information, log_pmf if exponents[1] > ZERO_GAMMA else None, zipf)


def largest_difference(rbp: FloatArray, log_pmf: FloatArray) -> float:
    """Return the largest difference between a measured RBP_k and that of a distribution (Kolmogorov and Smirnov).

    Args:
        rbp: the measured RBP_k for k = 1..V, (V,).
        log_pmf: ln P(k) of the distribution for k = 1..V, (V,).

    """
    return float(np.abs(np.cumsum(np.exp(log_pmf)) - rbp).max())


GLOSSARY: Glossary = {
    "beta": Term("1 - mu/sigma^2, in ln P(k) = const - beta ln k - gamma ln^2 k", "β"),
    "gamma": Term("1/(2 sigma^2); above 0 for a lognormal, 0 for Zipf's law; below 0 no lognormal exists", "γ", ".4f"),
    "mu_over_sigma": Term("mu/sigma of the lognormal, if the interval of gamma lies above 0", "μ/σ"),
    "gain": Term(
        "nats per token by which the lognormal describes the ranks better than Zipf's law; no interval at Zipf's limit",
        "better than Zipf",
        ".4f",
    ),
    "slope": Term("change of the quantity per unit of ln S, by a straight line"),
    "quantity": Term("the quantity that changes with S"),
    "limit": Term(
        "whether mu and sigma are undetermined (Zipf's limit): no if the interval of gamma lies above 0, otherwise "
        "yes; no lognormal if gamma is below 0; unknown without an interval"
    ),
    "ks_lognormal": Term("largest difference of any RBP_k from that of the lognormal", "KS, lognormal"),
    "ks_zipf": Term("largest difference of any RBP_k from that of Zipf's law", "KS, Zipf"),
    "mu": Term("mu of the lognormal; it is not a mean of ln R and may be far below 0", "μ"),
    "sizes": Term("number of sizes"),
    "sigma": Term("sigma of the lognormal", "σ"),
    "R2": Term("share of the variance that the line in ln S explains", "R²"),
    "R2_in_S": Term("share of the variance that a line in S explains", "R² in S"),
    "neg_log_p1": Term("-ln RBP_1, measured", "-ln RBP_1"),
    "neg_log_p1_lognormal": Term("-ln P(1) of the lognormal, by the exact sum", "-ln p_1, lognormal"),
    "entropy": Term("entropy of the measured ranks, nats; too low in a sample", "H(P)"),
    "entropy_lognormal": Term("entropy of the lognormal, nats, by the exact sum", "H(P), lognormal"),
}


class Lognormal(Analyzer):
    """Exact fits of a lognormal distribution and of Zipf's law on {1..V} to ranks, and mu/sigma against size."""

    cost: ClassVar[int] = 3

    def analyze(self, runs: Runs) -> Report:
        """Fit every measurement. Lines over sizes need 2 sizes; their intervals need 3."""
        report = Report(GLOSSARY)
        implied = []
        most_documents = 0  # of a measurement
        distributions = []

        def load(family: Family, run_id: str) -> LogRankSums:
            return rank_sums(runs.rank_pieces(run_id, ["document", "rank"]), runs.histogram(run_id))

        reading = read_families(runs, load)
        for family, sizes in reading:
            usable = [i for i, counts in enumerate(sizes) if len(counts.histogram.rank) >= MIN_RANKS]
            if len(usable) < len(sizes):
                left_out = [label for i, label in enumerate(family.labels) if i not in usable]
                report.notes.append(
                    f"{family}: left out {listed(left_out)}, because fewer than {MIN_RANKS} different ranks occur."
                )
            fits = [fit_ranks(sizes[i]) for i in usable]
            for i, fitted in zip(usable, fits, strict=True):
                case = {**family.keys, "size": family.labels[i], "S": family.s[i]}
                _add_size(report, fitted, case)
                implied.append(case | _implied_numbers(fitted))
            documents = [len(counts.sums) for counts in sizes]
            most_documents = max(most_documents, *documents)
            if min(documents) < MIN_DOCUMENTS:
                report.notes.append(
                    f"{family}: no intervals of gamma, and no mu and sigma, because there are "
                    f"{counted(min(documents), 'document')}, and at least {MIN_DOCUMENTS} are needed."
                )
            if fits:
                largest = f"{family.models[usable[-1]]} on {family.dataset}"
                distributions.append(_distributions(largest, fits[-1]))
            if len(fits) > 1:
                _add_lines(report, family, family.s[usable], fits)
        report.notes += reading.notes
        if not implied:
            return report
        report.tables["implied"] = pd.DataFrame(implied)
        report.headline = _headline(report, most_documents)
        _draw(report, pd.concat(distributions))
        return report


def _add_size(report: Report, fitted: Fitted, case: dict[str, Any]) -> None:
    """Add the results of one size: beta, gamma, the gain over Zipf's law and, if it is determined, mu/sigma."""
    histogram = fitted.counts.histogram
    rbp = histogram.rbp_curve(np.arange(1, histogram.vocab_size + 1))
    report.add("beta", fitted.estimate("beta"), **case)
    distance = {"limit": fitted.limit, "ks_zipf": largest_difference(rbp, fitted.zipf)}
    report.add("gamma", fitted.estimate("gamma"), null=0.0, beside=distance, **case)
    if fitted.lognormal is not None:
        report.add("gain", fitted.gain, beside={"ks_lognormal": largest_difference(rbp, fitted.lognormal)}, **case)
    if fitted.has_mu_and_sigma:
        mu, sigma = fitted.mu_and_sigma
        report.add("mu_over_sigma", fitted.estimate("mu_over_sigma"), beside={"mu": mu, "sigma": sigma}, **case)


def _implied_numbers(fitted: Fitted) -> dict[str, float]:
    """Return -ln P(1) and the entropy of ranks, as measured and as the lognormal implies them (NaN without one)."""
    histogram = fitted.counts.histogram
    share = histogram.count / histogram.num_tokens
    rbp_1 = histogram.rbp(1)
    lognormal = fitted.lognormal
    return {
        "neg_log_p1": float(-np.log(rbp_1)) if rbp_1 else np.inf,
        "neg_log_p1_lognormal": np.nan if lognormal is None else float(-lognormal[0]),
        "entropy": float(-share @ np.log(share)),
        "entropy_lognormal": np.nan if lognormal is None else float(-np.exp(lognormal) @ lognormal),
    }


def _add_lines(report: Report, family: Family, s: FloatArray, fits: Sequence[Fitted]) -> None:
    """Add the slopes of beta and gamma over ln S. The slope of mu/sigma is added if every size has mu and sigma."""
    all_have_ratio = all(fitted.has_mu_and_sigma for fitted in fits)
    has_enough_documents = all(len(fitted.counts.sums) >= MIN_DOCUMENTS for fitted in fits)  # if not, a note says so
    if has_enough_documents and len(fits) == 2:
        report.notes.append(f"{family}: no intervals of slopes: {why_no_interval([fitted.counts for fitted in fits])}.")
    if has_enough_documents and not all_have_ratio:
        report.notes.append(f"{family}: mu/sigma has no line in ln S, because it is not determined at every size.")
    for quantity in QUANTITIES:
        if quantity == "mu_over_sigma" and not all_have_ratio:
            continue
        numbers = [fitted.estimates[quantity] for fitted in fits]
        values = np.array([number.value for number in numbers])
        documents = [number.documents for number in numbers if number.documents is not None]
        # A law of exp(-value) is a straight line of the value in ln S. Its alpha is the slope of the value.
        y = np.exp(values.mean() - values)
        law = fit(s, y, documents)
        line_in_s = fit(np.exp(s / s.max()), y)
        beside = {"R2": law.r2, "R2_in_S": line_in_s.r2, "sizes": law.sizes}
        report.add("slope", law.alpha, null=0.0, beside=beside, quantity=quantity, **family.keys)


def _draw(report: Report, ranks: pd.DataFrame) -> None:
    """Draw figures 8b, 8c and 8d of the paper. ranks: the rows of `_distributions` for every family."""
    rank, share = "rank R, largest model of each family", "share of tokens"
    ranks = ranks.rename(columns={"rank": rank, "share": share})
    selection = legend_selection("distribution")
    axes = (axis_encoding(ranks[rank], alt.X, log=True), axis_encoding(ranks[share], alt.Y, log=True))
    chart = alt.Chart(inline_data(ranks)).encode(*axes, **by_colour(ranks["distribution"], selection))
    laws = chart.transform_filter(alt.datum.distribution != "observed").mark_line()
    observed = chart.transform_filter(alt.datum.distribution == "observed").mark_point(size=20)
    observed = observed.encode(tooltip=[f"{rank}:Q", alt.Tooltip(f"{share}:Q", format=".3~g")])
    report.figures["distribution"] = alt.layer(laws, observed.add_params(selection)).facet("model:N", columns=3)
    names = {
        "neg_log_p1": ("-ln RBP_1", "as measured"),
        "neg_log_p1_lognormal": ("-ln RBP_1", "by the lognormal"),
        "entropy": ("entropy of ranks", "as measured"),
        "entropy_lognormal": ("entropy of ranks", "by the lognormal"),
    }
    points = report.tables["implied"].melt(["family", "dataset", "size", "S"], list(names), "column", "nats").dropna()
    points["panel"] = points["dataset"] + ": " + points["column"].map(lambda name: names[name][0])
    points["by"] = points["column"].map(lambda name: names[name][1])
    report.figures["implied"] = facets(points, x="S", y="nats", facet="panel", dash="by", log="xy")
    if "mu_over_sigma" in report.questions:
        ratio = report.frame("mu_over_sigma").rename(columns={"mu_over_sigma": "μ/σ"})
        report.figures["mu_over_sigma"] = facets(ratio, x="S", y="μ/σ", null=0.0)


def _distributions(model: str, fitted: Fitted) -> pd.DataFrame:
    """Return the share of tokens per rank, observed and by the distributions, in bins evenly spaced in ln k."""
    histogram = fitted.counts.histogram
    edges = np.unique(np.rint(np.geomspace(1, histogram.vocab_size + 1, 48)).astype(np.int64))
    observed = np.histogram(histogram.rank, bins=edges, weights=histogram.count / histogram.num_tokens)[0]
    shares = {"observed": observed}
    for name, log_pmf in {"lognormal": fitted.lognormal, "Zipf": fitted.zipf}.items():
        if log_pmf is not None:
            shares[name] = np.add.reduceat(np.exp(log_pmf), edges[:-1] - 1)
    middle = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    frames = []
    for name, share in shares.items():
        rows = pd.DataFrame({"model": model, "distribution": name, "rank": middle, "share": share / np.diff(edges)})
        frames.append(rows[observed > 0])
    return pd.concat(frames)


def _headline(report: Report, most_documents: int) -> str:
    """Return the headline: the sign of gamma, the gain over Zipf's law, and the largest difference of any RBP_k.

    most_documents: the largest number of documents of a measurement.
    """
    gamma = report.frame("gamma")
    texts = {
        "above": "ranks curve as a lognormal's do (gamma above 0)",
        "below": "gamma is below 0, so no lognormal fits",
    }
    tested = verdict_clause(gamma, texts, noun="measurement", none="no curvature of ranks was found")
    better = deviation = ""
    if "gain" in report.questions:
        gain = report.frame("gain")
        largest = format_number(gain["ks_lognormal"].max(), ".3f")
        where = "" if len(gain) == len(gamma) else f" in the {counted(len(gain), 'measurement')} with gamma above 0"
        deviation = f"no RBP_k differs by more than {largest} from that of the lognormal{where}"
        better = _gain_clause(gain[gain["low"].notna()])
    elif not tested:
        deviation = "gamma is below 0 in every measurement, so no lognormal fits"
    if tested:
        return join_clauses(tested, better, deviation)
    if most_documents < MIN_DOCUMENTS:
        reason = f"the test needs {MIN_DOCUMENTS} documents, and no measurement has more than {most_documents}"
    else:
        reason = "a few documents decide it"
    return join_clauses(deviation, f"gamma was not tested, because {reason}")


def _gain_clause(rows: pd.DataFrame) -> str:
    """Return by how much the lognormal is better than Zipf's law. rows: those of `gain` with an interval."""
    if rows.empty:
        return ""
    gained = range_text(rows["gain"], ".3f")
    if len(rows) == 1:
        low, high = (format_number(rows[name].iloc[0], ".3f") for name in ("low", "high"))
        gained = f"{gained} ({low} to {high})"
    return f"the lognormal is better than Zipf's law by {gained} nats a token"
