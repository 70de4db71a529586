"""A number with its error, its interval and its p-value."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, isfinite, log, nan, sqrt

import scipy  # `scipy.special` is loaded at first use. Importing it here would delay every command by 0.4 s.

from rbptrack.ranks import FloatArray
from rbptrack.stats.rounding import ROUNDING

LEVEL = 0.95
"""The level of all intervals. The level of tests is 1 - LEVEL."""

MIN_P = 1e-100  # the smallest probability of a tail: quantiles of t overflow at smaller ones


@dataclass(frozen=True)
class DocumentInfluences:
    """The influences of documents on one or several values, and the lengths of the documents.

    Attributes:
        u: the influences, (documents,) or (documents, values).
        shares: the share of the tokens that each document holds, (documents,).

    """

    u: FloatArray
    shares: FloatArray


@dataclass(frozen=True)
class Estimate:
    """A number and its two variances.

    The squared half width of its interval is t(sampling_df)^2 * sampling + t(df)^2 * scatter. t is the quantile of
    Student's distribution at the level of the interval.

    Attributes:
        value: the number.
        sampling: variance over documents.
        scatter: variance from other sources, such as the scatter of models around their law.
        df: degrees of freedom of `scatter`. If 0 or NaN, the error is unknown and the number has no interval.
        sampling_df: degrees of freedom of `sampling`.
        deciding_documents: the effective number of documents that decide the number, which the function
            `documents.deciding_documents` computes; infinite if the number has no variance over documents.
        documents: the influences of documents on the number, (documents,); None if they are unknown.
        residuals: the residuals of the models that `scatter` was estimated from, (models,); None if they are unknown.

    From `documents` and `residuals`, `stats.together` estimates the correlation of two numbers. Only their direction
    matters: their scale follows from `sampling` and `scatter`.

    """

    value: float
    sampling: float = 0.0
    scatter: float = 0.0
    df: float = inf
    sampling_df: float = inf
    deciding_documents: float = inf
    documents: DocumentInfluences | None = field(default=None, compare=False, repr=False)
    residuals: FloatArray | None = field(default=None, compare=False, repr=False)

    @property
    def has_interval(self) -> bool:
        """Whether the error of the number is known."""
        return self.df > 0 and isfinite(self.value + self.sampling + self.scatter)

    @property
    def se(self) -> float:
        """The standard error; NaN if the number has no interval."""
        return sqrt(max(self.sampling + self.scatter, 0.0)) if self.has_interval else nan

    def half_width(self, level: float = LEVEL) -> float:
        """Return half the width of the interval at a level; NaN if the number has no interval."""
        if not self.has_interval:
            return nan
        return sqrt(self._squared_half_width((1 - level) / 2))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the lower and the upper end of the interval at a level; NaN if the number has no interval."""
        half_width = self.half_width(level)
        return self.value - half_width, self.value + half_width

    def without_error(self) -> Estimate:
        """Return an estimate with the same value and an unknown error."""
        return Estimate(self.value, df=nan)

    def p(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the hypothesis that the true value is `null`.

        The p-value is 1 - L, where L is the level at which an end of the interval equals `null`. It is NaN if the
        number has no interval.
        """
        if not self.has_interval:
            return nan
        distance = abs(self.value - null)
        if distance <= ROUNDING * max(abs(self.value), abs(null)):
            return 1.0
        if self.sampling + self.scatter <= 0:
            return 0.0
        dfs = [df for variance, df in self._variances if variance > 0]
        if len(set(dfs)) == 1:
            return float(2 * _tail(dfs[0], distance / self.se))
        if self._squared_half_width(MIN_P) < distance**2:
            return 2 * MIN_P
        # The tail lies between those of the largest and of the smallest degrees of freedom.
        lower = max(_tail(max(dfs), distance / self.se), MIN_P)
        upper = _tail(min(dfs), distance / self.se)
        # The half width is 0 at a tail of 0.5 and grows again above it.
        bounds = log(lower) - 1e-6, min(log(upper) + 1e-6, log(0.5))
        ln_tail = scipy.optimize.brentq(
            lambda ln_tail: self._squared_half_width(exp(ln_tail)) - distance**2, *bounds, xtol=1e-9
        )
        return 2 * exp(ln_tail)

    @property
    def _variances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Both variances, each with its degrees of freedom."""
        return (self.sampling, self.sampling_df), (self.scatter, self.df)

    def _squared_half_width(self, tail: float) -> float:
        """Return the squared half width of the interval with a probability `tail` on each side."""
        squares = 0.0
        for variance, df in self._variances:
            if variance:
                quantile = scipy.special.ndtri(tail) if df == inf else scipy.special.stdtrit(df, tail)
                squares += float(quantile) ** 2 * variance
        return max(squares, 0.0)  # rounding errors can make a variance of 0 slightly negative


def _tail(df: float, t: float) -> float:
    """Return the probability that Student's variable with `df` degrees of freedom exceeds t > 0."""
    return float(scipy.special.ndtr(-t) if df == inf else scipy.special.stdtr(df, -t))


def sum_of_variances(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the sum of two independent variances and its degrees of freedom, by the rule of Welch and Satterthwaite.

    Args:
        first: the first variance and its degrees of freedom.
        second: the second variance and its degrees of freedom.

    """
    total = first[0] + second[0]
    inverse_df = sum((variance / total) ** 2 / df for variance, df in (first, second) if total > 0)
    return total, 1 / inverse_df if inverse_df > 0 else inf
