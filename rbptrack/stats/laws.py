"""A law over the sizes of a family: y = A S^-alpha, by least squares of ln y on ln S.

The squared half width of an interval is t(d)^2 w' Sigma w + t(m-2)^2 s^2 w'w. w are the weights of ln y in the number.
Sigma is the covariance of ln y between the m sizes, over the documents that they share. d is the degrees of freedom
over documents (`documents.degrees_of_freedom`). s^2 is the variance of the models around the law. A simulation in
docs/explanation/validity.md shows how often such intervals contain the true value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, nan

import numpy as np
import scipy

from rbptrack.base.words import counted
from rbptrack.ranks import CE, DocumentCounts, FloatArray, log_grid, rbp_name
from rbptrack.stats.documents import (
    MIN_UNITS,
    Statistic,
    Summed,
    ce_and_missed,
    combined,
    covariance,
    deciding,
    degrees_of_freedom,
    estimate,
    influences,
    missed,
    only_totals,
)
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.misses import ks_with_enough_misses
from rbptrack.stats.rounding import ROUNDING

FLOOR = "E+A*S**-alpha"
"""The usual form with a floor E, which no size removes. `rbptrack.stats.forms` fits it."""


@dataclass(frozen=True)
class Law:
    """A line ln y = ln A - alpha ln S through at least 2 sizes. `fit` and `laws` create it.

    With 2 sizes the models' scatter is unknown, and no number has an interval.

    Attributes:
        s: the sizes S, ascending, (m,).
        y: positive values, (m,).
        sigma: covariance of ln y over documents, (m, m); 0 for numbers imported without ranks, NaN if the documents
            are too few.
        u: influences of documents on ln y, (documents, m); None if single documents are unknown.

    """

    s: FloatArray
    y: FloatArray
    sigma: FloatArray
    u: FloatArray | None = None

    @property
    def sizes(self) -> int:
        """The number of sizes m."""
        return len(self.s)

    @cached_property
    def alpha(self) -> Estimate:
        """The exponent."""
        return self._of_line(self.alpha_weights)

    @property
    def alpha_weights(self) -> FloatArray:
        """Weights of ln y in alpha, (m,)."""
        return self._weights(0.0, -1.0)

    def alpha_given(self, scatter: float, df: float) -> Estimate:
        """Return the exponent with an error from a given `scatter` (variance of ln y around the law) and its `df`."""
        weights = self.alpha_weights
        return self._estimate(weights, scatter * float(weights @ weights), df)

    def over(self, other: Law) -> Law:
        """Return the law of y / other.y, if `other` is the law of the same models on other documents.

        Its exponent is the difference of both exponents. The scatter that the models have in both laws cancels. The
        errors over both sets of documents are independent and add.
        """
        u = [part for part in (self.u, None if other.u is None else -other.u) if part is not None]
        return Law(self.s, self.y / other.y, self.sigma + other.sigma, np.concatenate(u) if u else None)

    @cached_property
    def ln_a(self) -> Estimate:
        """Ln A."""
        return self._of_line(self._weights(1.0, 0.0))

    @property
    def a(self) -> float:
        """The factor A."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.ln_a.value))

    @property
    def r2(self) -> float:
        """Share of the variance of ln y that the line explains; NaN if y is constant or the law has 2 sizes."""
        off = self._ln_y - self._ln_y.mean()
        total = float((self._unless_rounding(off) ** 2).sum())
        if self.sizes < 3 or not total > 0:
            return nan
        return 1 - float(self.residuals @ self.residuals) / total

    @property
    def misses(self) -> float:
        """The largest abs(measured / law - 1) over the sizes; NaN if the law has 2 sizes."""
        if self.sizes < 3:
            return nan
        return float(np.abs(np.expm1(self.residuals)).max())

    def at(self, s: float) -> float:
        """Return the law's y at a size S."""
        return exp(float(self._weights(1.0, np.log(s)) @ self._ln_y))

    def predict(self, s: float) -> Estimate:
        """Predict ln y of one more model of size S.

        Its error includes the error of the law at S and the scatter of one model around the law.
        """
        return self._of_line(self._weights(1.0, np.log(s)), models=1)

    def held_out(self) -> Estimate:
        """Return ln(measured / predicted) at the largest size, predicted by the law of all smaller sizes.

        It has an interval from 4 sizes on. `numpy.expm1` converts it and its ends to relative errors.
        """
        smaller = Law(self.s[:-1], self.y[:-1], self.sigma[:-1, :-1])
        weights = np.append(-smaller._weights(1.0, np.log(self.s[-1])), 1.0)
        return self._estimate(weights, smaller.scatter * float(weights @ weights), df=smaller.sizes - 2)

    def bend(self) -> Estimate:
        """Return the square term c of ln y = a + b ln S + c (ln S)^2.

        The law flattens if c is above 0, and steepens if c is below 0. It needs at least 5 sizes: 4 leave one degree of
        freedom.
        """
        x = np.log(self.s) - np.log(self.s).mean()
        design = np.column_stack([np.ones(self.sizes), x, x**2])
        if np.linalg.matrix_rank(design) < 3:
            return Estimate(nan, df=nan)
        solve = np.linalg.pinv(design)
        residual = self._unless_rounding(self._ln_y - design @ (solve @ self._ln_y))
        df = self.sizes - 3
        weights = solve[2]
        scatter = float(residual @ residual) / df if df > 0 else nan
        return self._estimate(weights, scatter * float(weights @ weights), df=df)

    @cached_property
    def _ln_y(self) -> FloatArray:
        return np.log(self.y)

    @cached_property
    def _solve(self) -> FloatArray:
        """Weights of ln y in ln A and in -alpha, (2, m)."""
        x = np.log(self.s)
        mean = x.mean()
        slope = (x - mean) / ((x - mean) ** 2).sum()
        return np.array([1 / len(x) - mean * slope, slope])

    def _weights(self, *of: float) -> FloatArray:
        """Weights of ln y, (m,), in a combination of ln A and -alpha."""
        return np.asarray(np.array(of) @ self._solve)

    @cached_property
    def residuals(self) -> FloatArray:
        """Ln y minus the law, (m,)."""
        ln_a, slope = self._solve @ self._ln_y
        return self._unless_rounding(self._ln_y - ln_a - slope * np.log(self.s))

    def _unless_rounding(self, off: FloatArray) -> FloatArray:
        """Deviations of ln y, (m,), without those that are rounding errors: of ln y itself, or of y before ln."""
        return np.where(np.abs(off) > 10 * ROUNDING * (1 + np.abs(self._ln_y).max()), off, 0.0)

    @cached_property
    def scatter(self) -> float:
        """Variance of ln y around the law; NaN with 2 sizes."""
        df = self.sizes - 2
        return float(self.residuals @ self.residuals) / df if df > 0 else nan

    def _of_line(self, weights: FloatArray, models: int = 0) -> Estimate:
        """A number of the line, or of `models` more models around it."""
        return self._estimate(weights, self.scatter * (float(weights @ weights) + models), df=self.sizes - 2)

    def _estimate(self, weights: FloatArray, scatter: float, df: float) -> Estimate:
        """A weighted sum of ln y with its error over documents, and what the models' scatter adds."""
        value = float(weights @ self._ln_y)
        if abs(value) <= ROUNDING * float(np.abs(weights) @ (1 + np.abs(self._ln_y))):
            value = 0.0
        sampling = float(weights @ self.sigma @ weights)
        if self.u is None:
            return Estimate(value, sampling, scatter, df)
        u = combined(self.u, weights)
        return Estimate(value, sampling, scatter, df, float(degrees_of_freedom(u)), float(deciding(u)))


def fit(s: FloatArray, y: FloatArray, u: Sequence[FloatArray] | None = None) -> Law:
    """Fit a law to points.

    Args:
        s: sizes S, in any order, (m,), at least 2 distinct ones. Points of one size count as independent. Seeds are not
            (docs/explanation/validity.md): sum them first, as `read_families` does.
        y: positive values, (m,).
        u: influences of documents on ln y, m arrays of (documents,). They are paired if all have equal length. Without
            them, intervals cover the models' scatter only.

    """
    order = np.argsort(s, kind="stable")
    s = np.asarray(s, dtype=np.float64)[order]
    y = np.asarray(y, dtype=np.float64)[order]
    if u is None:
        return Law(s, y, np.zeros((len(s), len(s))))
    u = [u[i] for i in order]
    if len({len(of_size) for of_size in u}) == 1:
        together = np.array(u).T
        return Law(s, y, covariance(together), together)
    apart = scipy.linalg.block_diag(*(of_size[:, None] for of_size in u))
    return Law(s, y, scipy.linalg.block_diag(*(covariance(of_size[:, None]) for of_size in u)), apart)


def huber_alpha(s: FloatArray, y: FloatArray) -> float:
    """Return the exponent by Huber's method: residuals beyond 1.345 standard deviations count linearly, not squared.

    Source: Huber, Annals of Mathematical Statistics 35, 1964. The standard deviation is 1.4826 times the median
    absolute residual, computed anew after each fit.
    """
    x = np.log(s) - np.log(s).mean()
    ln_y = np.log(y)
    line = np.polyfit(x, ln_y, 1)
    for _ in range(20):
        scale = 1.4826 * float(np.median(np.abs(np.polyval(line, x) - ln_y)))
        if not scale > 1e-12:  # more than half of the points lie on the line
            break
        fitted = scipy.optimize.least_squares(
            lambda line: np.polyval(line, x) - ln_y, line, loss="huber", f_scale=1.345 * scale
        )
        moved = np.abs(fitted.x - line).max()
        line = fitted.x
        if moved < 1e-9:
            break
    return -float(line[0])


def laws_by_metric(s: FloatArray, counts: Sequence[DocumentCounts]) -> dict[str, Law]:
    """Return the law of cross-entropy as `ce`, and the law of -ln RBP_k as `rbp_<k>` for each k of the counts.

    A metric has no law if its value is not positive and finite at every size. Such metrics are left out.
    """
    names = [CE, *map(rbp_name, counts[0].ks)]
    of_metrics = zip(names, laws(s, counts, ce_and_missed), strict=True)
    return {name: law for name, law in of_metrics if law is not None}


def laws(s: FloatArray, sizes: Sequence[Summed], statistic: Statistic) -> list[Law | None]:
    """Fit a law to each value of a statistic of sums over documents.

    Args:
        s: sizes S, (m,), at least 2.
        sizes: the sums of each size, m of them, all over the same documents.
        statistic: function from sums to positive values, (...) or (..., values). `missed` is one: it returns a value
            for each k of the counts.

    Returns:
        A law for each value; None if the value is not positive and finite at every size.

    """

    def ln(totals: FloatArray) -> FloatArray:
        return np.log(np.asarray(statistic(totals), dtype=np.float64))

    totals = any(map(only_totals, sizes))
    of_sizes = [influences(of_size, ln) for of_size in sizes]
    values = np.stack([np.atleast_1d(ln_y) for ln_y, _ in of_sizes])
    u = [influence.reshape(len(influence), -1) for _, influence in of_sizes]
    of_values: list[Law | None] = []
    for i in range(values.shape[1]):
        if not np.isfinite(values[:, i]).all():
            of_values.append(None)
            continue
        of_values.append(fit(s, np.exp(values[:, i]), None if totals else [of_size[:, i] for of_size in u]))
    return of_values


def why_no_interval(counts: Sequence[DocumentCounts]) -> str:
    """Say why a law over sizes has no interval: a clause without a full stop."""
    if len(counts) == 2:
        return "2 sizes show no scatter around it"
    few = [of_size for of_size in counts if len(of_size.document) < MIN_UNITS]
    return _too_few(few[0]) if few else "without a single one of its documents it would be 0 or 1 at some size"


def _too_few(counts: DocumentCounts) -> str:
    unit = "group" if counts.grouped else "document"
    return f"{counted(len(counts.document), unit)}, and at least {MIN_UNITS} are needed"


MIN_KS = 3
"""k that a law in k needs."""


def ks_of_law_in_k(counts: DocumentCounts, largest: int) -> list[int]:
    """The k of one model's law: even in ln k up to the largest, RBP_k above 0, and enough tokens miss."""
    possible = set(ks_with_enough_misses([counts])) & set(log_grid(largest).tolist())
    hits = counts.hits.sum(axis=0)
    between = (hits > 0) & (hits < counts.tokens.sum())
    return [k for k, is_between in zip(counts.ks, between, strict=True) if is_between and k in possible]


def law_in_k(counts: DocumentCounts) -> tuple[Estimate, Law] | None:
    """Fit the law -ln RBP_k = B k^-beta of one model by least squares of ln(-ln RBP_k) on ln k.

    Args:
        counts: the counts of the model at the k of the fit, ascending, as `ks_of_law_in_k` chooses them.

    Returns:
        Beta with its error over documents, and the line. The line's `s` are the k; its `a` is B. None if RBP_k is 0 or
        1 at some k, or if there are fewer than `MIN_KS` of them.

    """
    if len(counts.ks) < MIN_KS:
        return None
    totals = counts.sums.sum(axis=0)
    if not ((totals[2:] > 0) & (totals[2:] < totals[0])).all():
        return None
    line = fit(np.array(counts.ks), missed(totals))
    weights = line._weights(0.0, -1.0)
    return estimate(counts, lambda sums: np.asarray(np.log(missed(sums)) @ weights)), line


def why_no_interval_in_k(counts: DocumentCounts) -> str:
    """Say why the law in k of one model has no interval: a clause without a full stop."""
    if only_totals(counts):
        return "imported without ranks, so nothing is known of single documents"
    if len(counts.document) < MIN_UNITS:
        return _too_few(counts)
    return "without a single one of its documents RBP_k would be 0 or 1 at some k"
