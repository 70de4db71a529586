"""A number and how sure it is: what both methods of inference return, and what a report takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt

import scipy  # its parts are loaded when they are first used: .4 s that a list of runs does without

SMALLEST_P = 1e-100  # below, quantiles of t overflow


@dataclass(frozen=True)
class Estimate:
    """A number and its two variances.

    Half its interval, squared, is z^2 * sampling + t(df)^2 * scatter, with z and t the quantiles of the level.

    Attributes:
        value: the number.
        sampling: variance over documents, where their covariance counts as known.
        scatter: variance that was estimated with `df` degrees of freedom.
        df: degrees of freedom of `scatter`; 0 or NaN where nothing is known of the error, so that there is no interval.

    """

    value: float
    sampling: float = 0.0
    scatter: float = 0.0
    df: float = inf

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.df > 0 and isfinite(self.value + self.sampling + self.scatter)

    @property
    def se(self) -> float:
        """The standard error; NaN where there is no interval."""
        return sqrt(max(self.sampling + self.scatter, 0.0)) if self.known else nan

    def half(self, level: float = 0.95) -> float:
        """Half the width of the interval; NaN where nothing is known of the error."""
        if not self.known:
            return nan
        return sqrt(self._squared_half((1 - level) / 2))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The lower and upper end; NaN where nothing is known of the error."""
        half = self.half(level)
        return self.value - half, self.value + half

    def without_error(self) -> Estimate:
        """The number alone, without an interval."""
        return Estimate(self.value, df=nan)

    def p(self, null: float = 0.0) -> float:
        """Two-sided p of a null value: 1 - the level whose interval just reaches it; NaN without an interval."""
        if not self.known:
            return nan
        distance = abs(self.value - null)
        if distance == 0:
            return 1.0
        if self.sampling + self.scatter <= 0:
            return 0.0
        if self.scatter == 0 or self.df == inf:
            return float(2 * scipy.special.ndtr(-distance / self.se))
        if self.sampling == 0:
            return float(2 * scipy.special.stdtr(self.df, -distance / self.se))
        if self._squared_half(SMALLEST_P) < distance**2:
            return 2 * SMALLEST_P
        least = max(scipy.special.ndtr(-distance / self.se), SMALLEST_P)  # were all variance sampling
        most = scipy.special.stdtr(self.df, -distance / self.se)  # were all of it scatter
        log_tail = scipy.optimize.brentq(
            lambda x: self._squared_half(exp(x)) - distance**2, log(least) - 1e-6, log(most) + 1e-6, xtol=1e-9
        )
        return 2 * exp(log_tail)

    def __sub__(self, other: Estimate) -> Estimate:
        """The difference of two independent estimates: variances add, degrees of freedom by Welch and Satterthwaite."""
        scatter = self.scatter + other.scatter
        df = inf
        if not (self.known and other.known):
            df = nan
        elif scatter > 0:
            df = scatter**2 / (self.scatter**2 / self.df + other.scatter**2 / other.df)
        return Estimate(self.value - other.value, self.sampling + other.sampling, scatter, df)

    def _squared_half(self, tail: float) -> float:
        """The squared half width of the interval outside which a share `tail` lies on each side."""
        by_documents = self.sampling and scipy.special.ndtri(tail) ** 2 * self.sampling
        quantile = scipy.special.ndtri(tail) if self.df == inf else scipy.special.stdtrit(self.df, tail)
        by_scatter = self.scatter and quantile**2 * self.scatter
        return max(float(by_documents + by_scatter), 0.0)  # a variance of 0 may round below
