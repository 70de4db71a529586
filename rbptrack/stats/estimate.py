"""A number with its error, its interval and its p-value."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt

import scipy  # `scipy.special` is loaded at first use. Importing it here would delay every command by 0.4 s.

from rbptrack.stats.rounding import ROUNDING

MIN_P = 1e-100  # quantiles of t overflow at smaller tails

MIN_DECIDING = 4
"""The fewest documents that must decide a number before it is tested. With fewer, it has an interval but no p-value."""

_ROUNDING = 1e-9  # tolerance of a comparison with `MIN_DECIDING`: the last bit must not decide whether a test is made


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
        deciding: effective number of documents that decide the number, as `documents.deciding` computes it; infinite if
            the number has no variance over documents.

    """

    value: float
    sampling: float = 0.0
    scatter: float = 0.0
    df: float = inf
    sampling_df: float = inf
    deciding: float = inf

    @property
    def known(self) -> bool:
        """Whether the number has an interval."""
        return self.df > 0 and isfinite(self.value + self.sampling + self.scatter)

    @property
    def testable(self) -> bool:
        """Whether the number has an interval, and at least `MIN_DECIDING` documents decide it."""
        return self.known and self.deciding > MIN_DECIDING - _ROUNDING

    @property
    def se(self) -> float:
        """The standard error; NaN if the number has no interval."""
        return sqrt(max(self.sampling + self.scatter, 0.0)) if self.known else nan

    def half(self, level: float = 0.95) -> float:
        """Return half the width of the interval at a level; NaN if the error is unknown."""
        if not self.known:
            return nan
        return sqrt(self._squared_half((1 - level) / 2))

    def detectable(self, tests: int = 1) -> float:
        """Return the distance of the true value from a null value that a test finds in 80% of cases.

        The test is two-sided. Its level is 5%, divided by `tests` (Bonferroni's correction).
        """
        return self.half(1 - 0.05 / tests) + self.half(0.6)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the lower and upper end of the interval at a level; NaN if the error is unknown."""
        half = self.half(level)
        return self.value - half, self.value + half

    def without_error(self) -> Estimate:
        """Return an estimate with the same value and an unknown error."""
        return Estimate(self.value, df=nan)

    def p(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the hypothesis that the true value is `null`.

        The p-value is 1 - L, if L is the level at which an end of the interval equals the null value. It is NaN if the
        number is not `testable`.
        """
        if not self.testable:
            return nan
        distance = abs(self.value - null)
        if distance <= ROUNDING * max(abs(self.value), abs(null)):
            return 1.0
        if self.sampling + self.scatter <= 0:
            return 0.0
        dfs = [df for variance, df in self._parts if variance > 0]
        if len(set(dfs)) == 1:
            return float(2 * _tail(dfs[0], distance / self.se))
        if self._squared_half(MIN_P) < distance**2:
            return 2 * MIN_P
        least = max(_tail(max(dfs), distance / self.se), MIN_P)
        most = _tail(min(dfs), distance / self.se)
        # The half width is 0 at a tail of 0.5 and grows again above it.
        ends = log(least) - 1e-6, min(log(most) + 1e-6, log(0.5))
        return 2 * exp(scipy.optimize.brentq(lambda x: self._squared_half(exp(x)) - distance**2, *ends, xtol=1e-9))

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of two independent estimates.

        The variances are added. The degrees of freedom are computed by the rule of Welch and Satterthwaite.
        """
        value = self.value - other.value
        if abs(value) <= ROUNDING * (abs(self.value) + abs(other.value)):
            value = 0.0
        if not (self.known and other.known):
            return Estimate(value, df=nan)
        (sampling, sampling_df), (scatter, df) = map(sum_of_variances, self._parts, other._parts)
        deciding = sum_of_variances((self.sampling, self.deciding), (other.sampling, other.deciding))[1]
        return Estimate(value, sampling, scatter, df, sampling_df, deciding)

    @property
    def _parts(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Both variances, each with its degrees of freedom."""
        return (self.sampling, self.sampling_df), (self.scatter, self.df)

    def _squared_half(self, tail: float) -> float:
        """Return the squared half width of the interval with a probability `tail` on each side."""
        squares = 0.0
        for variance, df in self._parts:
            if variance:
                quantile = scipy.special.ndtri(tail) if df == inf else scipy.special.stdtrit(df, tail)
                squares += float(quantile) ** 2 * variance
        return max(squares, 0.0)  # rounding errors can make a variance of 0 slightly negative


def _tail(df: float, t: float) -> float:
    """Return the probability that Student's variable with `df` degrees of freedom exceeds t > 0."""
    return float(scipy.special.ndtr(-t) if df == inf else scipy.special.stdtr(df, -t))


def sum_of_variances(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return the sum of two independent variances and its degrees of freedom, by the rule of Welch and Satterthwaite.

    Args:
        one: the first variance and its degrees of freedom.
        other: the second variance and its degrees of freedom.

    """
    total = one[0] + other[0]
    inverse = sum((variance / total) ** 2 / df for variance, df in (one, other) if total > 0)
    return total, 1 / inverse if inverse > 0 else inf
