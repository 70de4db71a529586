"""Paired contrasts: whether two laws in size have the same exponent, told from the ratio of their values.

Two metrics of the same models over the same documents share most of their error: the same models scatter the same way,
and the same documents are easy or hard. Their ratio is free of what they share, so it tells alpha_a - alpha_b far more
sharply than two intervals beside each other:

    ln(y_a / y_b) = (ln A_a - ln A_b) - (alpha_a - alpha_b) ln S + e

Families are other models, perhaps of other sizes: they share the documents only. Each keeps its own law, and the
sampling covariance of the two laws, from the same draws of documents, is taken off the error of their difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import lines
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.size_laws import LawValues, fit_law
from rbptrack.stats.spread import Spread


@dataclass(frozen=True)
class Contrast:
    """alpha_a - alpha_b, tested for difference and for equivalence.

    Attributes:
        difference: alpha_a - alpha_b.
        se: standard error, scatter between models included.
        p_different: two-sided p of alpha_a = alpha_b.
        margin: how far apart exponents may lie that count as the same.
        p_equivalent: p of |alpha_a - alpha_b| >= margin (two one-sided tests).
        size: the level of both tests, 1 - level of the interval.

    """

    difference: Interval
    se: float
    p_different: float
    margin: float
    p_equivalent: float
    size: float

    @property
    def verdict(self) -> str:
        """By these two p alone (`verdict_of`)."""
        return verdict_of(self.p_different, self.p_equivalent, size=self.size)


def verdict_of(p_different: float, p_equivalent: float, *, size: float) -> str:
    """Return `equivalent`, `different`, `different, but within the margin`, or `undecided`: of two tests, each of this
    size.

    Source: two one-sided tests beside one of difference (Schuirmann 1987).
    """
    different = p_different < size
    equivalent = p_equivalent < size
    if different and equivalent:
        return "different, but within the margin"
    if different or equivalent:
        return "different" if different else "equivalent"
    return "undecided"


def ratio_law(
    s: npt.ArrayLike,
    y_a: npt.ArrayLike,
    y_b: npt.ArrayLike,
    draws_a: FloatArray,
    draws_b: FloatArray,
    *,
    level: float = 0.95,
) -> PowerLawFit | None:
    """Return the law of y_a / y_b in S; its alpha is alpha_a - alpha_b (negative where b falls faster).

    Sizes and values of the same models, (m,), and the same draws of documents for both, (m, replicates).

    Source: the difference of two laws ln y = ln A - alpha ln S (arXiv 2510.20387).

    Returns:
        The fit; None as in `fit_law`.

    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(y_a, dtype=np.float64) / np.asarray(y_b, dtype=np.float64)
        draws = np.asarray(draws_a / draws_b)
    return fit_law(s, ratio, draws, level=level)


def ratio_laws(s: npt.ArrayLike, values: LawValues, base: str, *, level: float = 0.95) -> dict[str, PowerLawFit]:
    """Return `ratio_law` of every other metric over one of them, over sizes s, (m,): of those that have one, by metric.

    Source: `ratio_law`.
    """
    y, draws = values.of(base)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = LawValues(values.metrics, values.values / y[:, None], values.draws / draws[..., None])
    rest = [metric for metric in values.metrics if metric != base]
    return ratios.only(rest).fit_each(s, level=level)


def contrast(difference: float, spread: Spread, *, margin: float, level: float = 0.95) -> Contrast:
    """Test alpha_a - alpha_b for difference from 0 and for equivalence with 0.

    The equivalence test is two one-sided tests (Schuirmann 1987): equivalent at 5% exactly where the 90% interval of
    alpha_a - alpha_b lies within -margin..margin.

    Raises:
        RbptrackError: a margin that is not above 0.

    """
    if not margin > 0:
        raise RbptrackError(f"an equivalence margin must be above 0; got {margin}")
    equivalent = spread.p_beyond(margin - abs(difference))  # the larger of the two one-sided p
    interval = Interval.around(difference, spread.half(level))
    different = spread.p(abs(difference))
    return Contrast(interval, spread.se, different, margin, equivalent, round(1 - level, 12))


@dataclass(frozen=True)
class Apart:
    """How the laws of two families (or datasets) differ.

    Attributes:
        a: the law of the one.
        b: of the other.
        at: the size at which their levels are compared: the middle of the sizes that both have, or else between them.
        level: ln(y_a / y_b) at that size.
        level_spread: its error.
        alpha: alpha_a - alpha_b.
        alpha_spread: its error.

    """

    a: PowerLawFit
    b: PowerLawFit
    at: float
    level: float
    level_spread: Spread
    alpha: float
    alpha_spread: Spread


def laws_apart(
    first: tuple[FloatArray, LawValues],
    second: tuple[FloatArray, LawValues],
    metric: str,
    *,
    same_texts: bool,
    level: float = 0.95,
) -> Apart | None:
    """Return two laws against each other: their ratio at one size, and the difference of their exponents.

    Over the same sizes it is the law of the ratio. Else errors add, scatter between models included, less the sampling
    covariance that both have from reading the same documents.

    Source: `ratio_law`; the variance of a difference, degrees of freedom by Welch, Biometrika 34, 1947.

    Args:
        first: sizes S, (m,), and the values measured at them.
        second: the same of the second, with the same number of replicates.
        metric: `ce` or `rbp_<k>`.
        same_texts: whether both read the same documents, which were then drawn jointly.
        level: of the intervals of both laws.

    Returns:
        None where a side has no law.

    """
    s_a, values_a = first
    s_b, values_b = second
    a = values_a.fit(metric, s_a, level=level)
    b = values_b.fit(metric, s_b, level=level)
    low = max(s_a.min(), s_b.min())
    high = min(s_a.max(), s_b.max())
    if a is None or b is None:
        return None
    at = float(np.sqrt(low * high))
    y_a, draws_a = values_a.of(metric)
    y_b, draws_b = values_b.of(metric)
    if not same_texts:
        draws_b = np.roll(draws_b, 1, axis=1)  # corpora of equally many documents share their draws
    if np.array_equal(s_a, s_b):
        law = ratio_law(s_a, y_a, y_b, draws_a, draws_b, level=level)
        if law:
            return Apart(a, b, at, float(np.log(law.predict(at))), law.spread_at(at), law.alpha, law.spread)
    covariance = [0.0, 0.0]
    if same_texts:
        pairs = zip(line_draws(s_a, draws_a, at=at), line_draws(s_b, draws_b, at=at), strict=True)
        covariance = [float(np.cov(line, theirs)[0, 1]) for line, theirs in pairs]
    gap = float(np.log(a.predict(at) / b.predict(at)))
    gap_spread = (a.spread_at(at) + b.spread_at(at)).minus_shared(covariance[0])
    return Apart(a, b, at, gap, gap_spread, a.alpha - b.alpha, (a.spread + b.spread).minus_shared(covariance[1]))


def at_equal(values: LawValues, by: str) -> tuple[FloatArray, LawValues]:
    """Return the laws of the other metrics in one metric instead of S: for `laws_apart` at equal cross-entropy.

    In each bootstrap replicate both move; the rest of the other metric's error is that around its law in this one:
    y* (x* / x)^-b, b the slope of ln y over ln x.

    Args:
        values: measured at each size.
        by: the metric, such as `ce`.

    Returns:
        Its values, (m,), and the other metrics with such replicates; where a logarithm does not exist, NaN.

    """
    x, x_draws = values.of(by)
    rest = tuple(metric for metric in values.metrics if metric != by)
    y, draws = zip(*(values.of(metric) for metric in rest), strict=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.stack(y, axis=1))
        moved = np.log(x_draws / x[:, None])
        slopes = lines(np.log(x), logs)[1]
        left = np.exp(np.log(np.stack(draws, axis=2)) - slopes * moved[:, :, None])
    return x, LawValues(rest, np.stack(y, axis=1), left)


def line_draws(s: npt.ArrayLike, draws: FloatArray, *, at: float) -> tuple[FloatArray, FloatArray]:
    """Return the law's ln y at size `at`, and its exponent, of every bootstrap replicate: each (replicates,).

    `draws` is (m, replicates).

    Source: least squares on logarithms, as `fit_power_law`.
    """
    level, slope = lines(np.log(np.asarray(s, dtype=np.float64)) - np.log(at), np.log(draws))
    return level, -slope


def holm(p: npt.ArrayLike) -> FloatArray:
    """Return p-values corrected for their number, (tests,): each is the smallest size at which its test rejects.

    Source: Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    corrected = np.empty(len(values))
    raised = values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(raised), 1.0)
    return corrected
