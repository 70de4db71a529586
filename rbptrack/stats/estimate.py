"""A number with its error. Both methods of inference return it, and reports contain it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt

import scipy  # its parts are loaded when they are first used: .4 s that a list of runs does without

from rbptrack.stats.rounding import ROUNDING

MIN_P = 1e-100  # below, quantiles of t overflow

MIN_DECIDING = 4
"""The fewest documents that must decide a number for a test. With fewer, its interval is printed without a test."""

_ROUNDING = 1e-9  # tolerance for a count of documents: no test may depend on the last bit


@dataclass(frozen=True)
class Estimate:
    """A number and its two variances.

    The squared half width of its interval is t(sampling_df)^2 * sampling + t(df)^2 * scatter. t is the quantile of
    Student's distribution at the level of the interval.

    Attributes:
        value: the number.
        sampling: variance over documents.
        scatter: variance from other sources, such as the scatter of models around their law.
        df: degrees of freedom of `scatter`; 0 or NaN if the error is unknown. The number then has no interval.
        sampling_df: degrees of freedom of `sampling`.
        deciding: how many documents decide the number (`documents.deciding`); infinite without documents.

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
        """Return half the width of the interval; NaN if the error is unknown."""
        if not self.known:
            return nan
        return sqrt(self._squared_half((1 - level) / 2))

    def detectable(self, tests: int = 1) -> float:
        """Return the smallest distance from a null value that one of `tests` tests finds in 80% of cases."""
        return self.half(1 - 0.05 / tests) + self.half(0.6)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the lower and upper end of the interval; NaN if the error is unknown."""
        half = self.half(level)
        return self.value - half, self.value + half

    def without_error(self) -> Estimate:
        """Return the number without an interval."""
        return Estimate(self.value, df=nan)

    def p(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of a null value; NaN if the number is not `testable`.

        It is 1 - the level at which the interval just reaches the null value.
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
        ends = log(least) - 1e-6, min(log(most) + 1e-6, log(0.5))  # beyond 0.5 a half width grows again
        return 2 * exp(scipy.optimize.brentq(lambda x: self._squared_half(exp(x)) - distance**2, *ends, xtol=1e-9))

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of two independent estimates.

        Their variances add. The degrees of freedom are those of Welch and Satterthwaite.
        """
        value = self.value - other.value
        if abs(value) <= ROUNDING * (abs(self.value) + abs(other.value)):
            value = 0.0
        if not (self.known and other.known):
            return Estimate(value, df=nan)
        (sampling, sampling_df), (scatter, df) = map(added, self._parts, other._parts)
        deciding = added((self.sampling, self.deciding), (other.sampling, other.deciding))[1]
        return Estimate(value, sampling, scatter, df, sampling_df, deciding)

    @property
    def _parts(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Both variances, each with its degrees of freedom."""
        return (self.sampling, self.sampling_df), (self.scatter, self.df)

    def _squared_half(self, tail: float) -> float:
        """The squared half width of the interval outside which a share `tail` lies on each side."""
        squares = 0.0
        for variance, df in self._parts:
            if variance:
                quantile = scipy.special.ndtri(tail) if df == inf else scipy.special.stdtrit(df, tail)
                squares += float(quantile) ** 2 * variance
        return max(squares, 0.0)  # a variance of 0 may round below


def _tail(df: float, t: float) -> float:
    """The share of t's distribution beyond t > 0."""
    return float(scipy.special.ndtr(-t) if df == inf else scipy.special.stdtr(df, -t))


def added(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The sum of two independent variances with its degrees of freedom."""
    total = one[0] + other[0]
    inverse = sum((variance / total) ** 2 / df for variance, df in (one, other) if total > 0)
    return total, 1 / inverse if inverse > 0 else inf
