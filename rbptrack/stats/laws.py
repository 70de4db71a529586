"""A law over the sizes of a family: y = A S^-alpha, by least squares of ln y on ln S.

Every number of a law is a weighted sum of ln y. The squared half width of its interval is
t(d)^2 w' Sigma w + t(m-2)^2 s^2 w'w:

- w are the weights of ln y in the number, (m,) for m sizes.
- Sigma is the covariance of ln y between the sizes, over documents, (m, m).
- d is the degrees of freedom over documents (`documents.degrees_of_freedom`).
- s^2 is the variance of the models around the law.

docs/explanation/validity.md shows how often such intervals contain the true value in simulations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, nan

import numpy as np
import scipy

from rbptrack.base.formatting import counted
from rbptrack.ranks import CE, DocumentCounts, FloatArray, log_grid, rbp_name
from rbptrack.stats.documents import (
    MIN_UNITS,
    DocumentInfluences,
    Statistic,
    SumsLike,
    ce_and_neg_log_rbp,
    combined_influences,
    covariance,
    deciding_documents,
    degrees_of_freedom,
    estimate,
    influences,
    neg_log_rbp,
    only_totals,
    shares_of_tokens,
)
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.misses import ks_with_enough_misses
from rbptrack.stats.rounding import ROUNDING

FLOOR = "E+A*S**-alpha"
"""The law with a floor E: y approaches E, not 0, as S grows. `rbptrack.stats.forms` fits it."""


@dataclass(frozen=True)
class Law:
    """A law y = A S^-alpha: the least-squares line of ln y on ln S through at least 2 sizes.

    `fit` and `laws` create it. With 2 sizes the scatter of the models is unknown, and no number has an interval.

    Attributes:
        s: the sizes S, ascending, (m,).
        y: the measured values, positive, (m,).
        sigma: covariance of ln y over documents, (m, m). It is 0 if single documents are unknown, and NaN if there are
            fewer than `documents.MIN_UNITS` documents.
        documents: influences of documents on ln y, (documents, m); None if single documents are unknown.

    """

    s: FloatArray
    y: FloatArray
    sigma: FloatArray
    documents: DocumentInfluences | None = None

    @property
    def sizes(self) -> int:
        """The number of sizes m."""
        return len(self.s)

    @cached_property
    def alpha(self) -> Estimate:
        """The exponent alpha with its error."""
        return self._line_estimate(self.alpha_weights)

    @property
    def alpha_weights(self) -> FloatArray:
        """Weights of ln y in alpha, (m,)."""
        return self._weights(0.0, -1.0)

    def alpha_with_scatter(self, scatter: float, df: float) -> Estimate:
        """Return the exponent alpha with an error that uses another variance of the models.

        Args:
            scatter: the variance of ln y around the law, for example pooled over several laws.
            df: the degrees of freedom of `scatter`.

        """
        weights = self.alpha_weights
        return self._estimate(weights, scatter * float(weights @ weights), df)

    def over(self, other: Law) -> Law:
        """Return the law of the ratio y / other.y.

        Its exponent is the exponent of this law minus that of the other. A deviation that a model has from both laws
        cancels. The errors over documents are added as independent errors.

        Args:
            other: the law of the same models on other documents.

        """
        parts = []
        if self.documents is not None:
            parts.append(self.documents)
        if other.documents is not None:
            parts.append(DocumentInfluences(-other.documents.u, other.documents.shares))
        both = None
        if parts:
            u = np.concatenate([part.u for part in parts])
            both = DocumentInfluences(u, np.concatenate([part.shares for part in parts]))
        return Law(self.s, self.y / other.y, self.sigma + other.sigma, both)

    @cached_property
    def ln_a(self) -> Estimate:
        """The logarithm of the factor A with its error."""
        return self._line_estimate(self._weights(1.0, 0.0))

    @property
    def a(self) -> float:
        """The factor A."""
        with np.errstate(over="ignore"):
            return float(np.exp(self._value(self._weights(1.0, 0.0))))

    @property
    def r2(self) -> float:
        """Share of the variance of ln y that the line explains; NaN if y is constant or the law has 2 sizes."""
        off = self._ln_y - self._ln_y.mean()
        total = float((self._unless_rounding(off) ** 2).sum())
        if self.sizes < 3 or not total > 0:
            return nan
        return 1 - float(self.residuals @ self.residuals) / total

    @property
    def largest_deviation(self) -> float:
        """The largest abs(measured / law - 1) over the sizes; NaN if the law has 2 sizes."""
        if self.sizes < 3:
            return nan
        return float(np.abs(np.expm1(self.residuals)).max())

    def at(self, s: float) -> float:
        """Return the value A s^-alpha of the law at a size s."""
        return exp(float(self._weights(1.0, np.log(s)) @ self._ln_y))

    def predict(self, s: float) -> Estimate:
        """Predict ln y of one more model of size s.

        The error includes the error of the law at s and the scatter of one model around the law.
        """
        return self._line_estimate(self._weights(1.0, np.log(s)), models=1)

    def held_out(self) -> Estimate:
        """Return ln(measured / predicted) at the largest size. The prediction is the law of all smaller sizes.

        It has an interval if there are at least 4 sizes. `numpy.expm1` converts the value and the ends of the interval
        to relative errors.
        """
        smaller = Law(self.s[:-1], self.y[:-1], self.sigma[:-1, :-1])
        weights = np.append(-smaller._weights(1.0, np.log(self.s[-1])), 1.0)
        return self._estimate(weights, smaller.scatter * float(weights @ weights), df=smaller.sizes - 2)

    def bend(self) -> Estimate:
        """Return the coefficient c of ln y = a + b ln S + c (ln S)^2, with its error.

        A falling law flattens with size if c is above 0, and steepens if c is below 0. It is NaN with fewer than 3
        sizes. Use it with at least 5 sizes: with 4, the error has one degree of freedom.
        """
        x = np.log(self.s) - np.log(self.s).mean()
        square = x**2
        curved = square - square.mean() - (self._solve[1] @ square) * x  # what remains of (ln S)^2 after a line
        if np.abs(curved).max() <= ROUNDING * square.max():
            return Estimate(nan, df=nan)
        weights = curved / (curved @ curved)
        residual = self._unless_rounding(self.residuals - (weights @ self._ln_y) * curved)
        df = self.sizes - 3
        scatter = float(residual @ residual) / df if df > 0 else nan
        return self._estimate(weights, scatter * float(weights @ weights), df=df)

    @cached_property
    def _ln_y(self) -> FloatArray:
        return np.log(self.y)

    @cached_property
    def _solve(self) -> FloatArray:
        """The weights of ln y in ln A (first row) and in -alpha (second row), (2, m)."""
        x = np.log(self.s)
        mean = x.mean()
        slope = (x - mean) / ((x - mean) ** 2).sum()
        return np.array([1 / len(x) - mean * slope, slope])

    def _weights(self, ln_a: float, slope: float) -> FloatArray:
        """Return the weights of ln y in the combination ln_a * ln A + slope * (-alpha), (m,)."""
        return np.asarray(np.array([ln_a, slope]) @ self._solve)

    @cached_property
    def residuals(self) -> FloatArray:
        """The deviations of ln y from the law, (m,)."""
        ln_a, slope = self._solve @ self._ln_y
        return self._unless_rounding(self._ln_y - ln_a - slope * np.log(self.s))

    def _unless_rounding(self, off: FloatArray) -> FloatArray:
        """Set deviations of ln y to 0 if they may be rounding errors of y or of ln y. off: the deviations, (m,)."""
        return np.where(np.abs(off) > 10 * ROUNDING * (1 + np.abs(self._ln_y).max()), off, 0.0)

    @cached_property
    def scatter(self) -> float:
        """The variance of ln y around the law; NaN with 2 sizes."""
        df = self.sizes - 2
        return float(self.residuals @ self.residuals) / df if df > 0 else nan

    def _value(self, weights: FloatArray) -> float:
        """Return a weighted sum of ln y; 0 if it may be a rounding error. weights: the weights of ln y, (m,)."""
        value = float(weights @ self._ln_y)
        if abs(value) <= ROUNDING * float(np.abs(weights) @ (1 + np.abs(self._ln_y))):
            return 0.0
        return value

    def _line_estimate(self, weights: FloatArray, models: int = 0) -> Estimate:
        """Return a weighted sum of ln y with its error.

        Args:
            weights: the weights of ln y, (m,).
            models: how often the variance of one model around the law is added to the error.

        """
        return self._estimate(weights, self.scatter * (float(weights @ weights) + models), df=self.sizes - 2)

    def _estimate(self, weights: FloatArray, scatter: float, df: float) -> Estimate:
        """Return a weighted sum of ln y with its error.

        Args:
            weights: the weights of ln y, (m,). They determine the error over documents.
            scatter: the variance of the sum that comes from the scatter of the models.
            df: the degrees of freedom of `scatter`.

        """
        value = self._value(weights)
        sampling = float(weights @ self.sigma @ weights)
        if self.documents is None:
            return Estimate(value, sampling, scatter, df)
        u = combined_influences(self.documents.u, weights)
        sampling_df = float(degrees_of_freedom(u, self.documents.shares))
        return Estimate(value, sampling, scatter, df, sampling_df, float(deciding_documents(u)))


def fit(s: FloatArray, y: FloatArray, documents: Sequence[DocumentInfluences] | None = None) -> Law:
    """Fit the law y = A S^-alpha to points.

    Args:
        s: sizes S, in any order, (m,), at least 2 distinct ones. Points of equal size count as independent. Models that
            differ only in their seed are not independent (docs/explanation/validity.md). Sum them into one point first,
            as `read_families` does.
        y: positive values, (m,).
        documents: the influences of documents on ln y at each size, m of them. If all have the same number of
            documents, element i of each must belong to the same document. Otherwise the sizes count as measured on
            different documents. If None, intervals include only the scatter of the models.

    """
    order = np.argsort(s, kind="stable")
    s = np.asarray(s, dtype=np.float64)[order]
    y = np.asarray(y, dtype=np.float64)[order]
    if documents is None:
        return Law(s, y, np.zeros((len(s), len(s))))
    u = [documents[i].u for i in order]
    shares = [documents[i].shares for i in order]
    if len({len(size_u) for size_u in u}) == 1:
        paired = np.array(u).T
        return Law(s, y, covariance(paired), DocumentInfluences(paired, np.mean(shares, axis=0)))
    unpaired = scipy.linalg.block_diag(*(size_u[:, None] for size_u in u))
    sigma = scipy.linalg.block_diag(*(covariance(size_u[:, None]) for size_u in u))
    return Law(s, y, sigma, DocumentInfluences(unpaired, np.concatenate(shares)))


def huber_alpha(s: FloatArray, y: FloatArray) -> float:
    """Return the exponent alpha of a fit with Huber's loss, which gives outliers less weight than least squares does.

    Residuals of ln y within 1.345 standard deviations count squared, larger ones linearly. The standard deviation is
    1.4826 times the median absolute residual, and is computed anew after each fit. Source: Huber, Annals of
    Mathematical Statistics 35, 1964.

    Args:
        s: sizes S, (m,).
        y: positive values, (m,).

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

    A metric is left out if its value is not positive and finite at every size.

    Args:
        s: sizes S, (m,).
        counts: the counts of each size, m of them, with the same k and over the same documents.

    """
    names = [CE, *map(rbp_name, counts[0].ks)]
    by_name = zip(names, laws(s, counts, ce_and_neg_log_rbp), strict=True)
    return {name: law for name, law in by_name if law is not None}


def laws(s: FloatArray, sizes: Sequence[SumsLike], statistic: Statistic) -> list[Law | None]:
    """Fit a law to each value of a statistic of sums over documents.

    Args:
        s: sizes S, (m,), at least 2.
        sizes: the sums of each size, m of them, all over the same documents.
        statistic: a function that takes sums, (..., columns), and returns positive values, (...) or (..., values). An
            example is `neg_log_rbp`, which returns a value for each k.

    Returns:
        The law of each value, in the order of the values. It is None if the value is not positive and finite at every
        size.

    """

    def ln(totals: FloatArray) -> FloatArray:
        return np.log(np.asarray(statistic(totals), dtype=np.float64))

    totals = any(map(only_totals, sizes))
    by_size = [influences(size_sums, ln) for size_sums in sizes]
    values = np.stack([np.atleast_1d(ln_y) for ln_y, _ in by_size])
    u = [size_u.reshape(len(size_u), -1) for _, size_u in by_size]
    shares = [shares_of_tokens(size_sums) for size_sums in sizes]
    by_value: list[Law | None] = []
    for i in range(values.shape[1]):
        if not np.isfinite(values[:, i]).all():
            by_value.append(None)
            continue
        documents = [DocumentInfluences(u[j][:, i], shares[j]) for j in range(len(sizes))]
        by_value.append(fit(s, np.exp(values[:, i]), None if totals else documents))
    return by_value


def why_no_interval(sizes: Sequence[SumsLike]) -> str:
    """Return a clause that says why a law over sizes has no interval.

    Args:
        sizes: the sums of each size.

    """
    if len(sizes) == 2:
        return "2 sizes do not show the scatter around the law"
    fewest = min(sizes, key=_units)
    if _units(fewest) < MIN_UNITS:
        return _too_few(fewest)
    return "if one certain document were left out, the values at some size would be 0 or 1"


def _units(sums: SumsLike) -> int:
    return len(sums if isinstance(sums, np.ndarray) else sums.sums)


def _too_few(sums: SumsLike) -> str:
    """Return a clause that says how many documents or groups there are, and how many an interval needs."""
    unit = "group" if getattr(sums, "grouped", False) else "document"
    return f"{counted(_units(sums), unit)}, and at least {MIN_UNITS} are needed"


MIN_KS = 3
"""The fewest k through which a law in k is fitted."""


def ks_of_law_in_k(counts: DocumentCounts, largest: int) -> list[int]:
    """Return the k through which a law in k of one model is fitted, ascending.

    The k are evenly spaced in ln k. RBP_k is above 0 and below 1 at each of them, and at least `MIN_MISSES` tokens have
    a rank above k.

    Args:
        counts: the counts of the model at many k.
        largest: the largest k that may be returned.

    """
    possible = set(ks_with_enough_misses([counts])) & set(log_grid(largest).tolist())
    hits = counts.hits.sum(axis=0)
    between = (hits > 0) & (hits < counts.tokens.sum())
    return [k for k, is_between in zip(counts.ks, between, strict=True) if is_between and k in possible]


def law_in_k(counts: DocumentCounts) -> tuple[Estimate, Law] | None:
    """Fit the law in k of one model, -ln RBP_k = B k^-beta, by least squares of ln(-ln RBP_k) on ln k.

    Args:
        counts: the counts of the model at the k of the fit, ascending. `ks_of_law_in_k` chooses such k.

    Returns:
        Beta with its error over documents, and the fitted law. The `s` of this law are the k, and its `a` is B. None if
        there are fewer than `MIN_KS` k, or if RBP_k is 0 or 1 at one of them.

    """
    if len(counts.ks) < MIN_KS:
        return None
    totals = counts.sums.sum(axis=0)
    if not ((totals[2:] > 0) & (totals[2:] < totals[0])).all():
        return None
    line = fit(np.array(counts.ks), neg_log_rbp(totals))
    weights = line._weights(0.0, -1.0)
    return estimate(counts, lambda sums: np.asarray(np.log(neg_log_rbp(sums)) @ weights)), line


def why_no_interval_in_k(counts: DocumentCounts) -> str:
    """Return a clause that says why the law in k of one model has no interval. counts: the counts of the model."""
    if only_totals(counts):
        return "single documents are unknown, because it was imported without ranks"
    if len(counts.document) < MIN_UNITS:
        return _too_few(counts)
    return "if one certain document were left out, RBP_k would be 0 or 1 at some k"
