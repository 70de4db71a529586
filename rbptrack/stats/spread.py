"""The error of an estimate with a known part and one that is estimated from a few residuals.

A law over m sizes has both: the sampling error of each point is known from the document bootstrap, the scatter between
models only from m - 2 residuals. A t distribution with m - 2 degrees of freedom for all of it makes intervals of 4
sizes up to twice as wide as they need be; a normal distribution for all of it makes them far too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, special

_POWER = 0.8
_SMALLEST = 1e-15  # of p: below it is 0


@dataclass(frozen=True)
class Spread:
    """Variance of an estimate, in parts.

    With z the normal and t the t quantile of a level, the half width of its interval is
    sqrt(max(z^2 known, z^2 beyond + t^2 residual)).

    Attributes:
        known: the variance without scatter.
        beyond: the part of it that residuals do not show (noise that tilts a line); below 0 where they show more.
        residual: the variance by the residuals' mean square: scatter, and the known noise that residuals show.
        freedom: degrees of freedom of that mean square.

    """

    known: float
    beyond: float
    residual: float
    freedom: float

    @classmethod
    def estimated(cls, se: float, freedom: float) -> Spread:
        """Return a standard error estimated with so many degrees of freedom, none of it known."""
        return cls(0.0, 0.0, se**2, freedom)

    @property
    def se(self) -> float:
        """The standard error."""
        return float(np.sqrt(max(self.known, self.beyond + self.residual, 0.0)))

    def half(self, level: float) -> float:
        """Return half the width of the interval of nominal coverage `level`.

        Source: the sum of a known and an estimated variance (Satterthwaite, Biometrics Bulletin 2, 1946), each with its
        own quantile, and never below the known part. Simulated coverage of 95%: 95 to 99% for 3 to 10 sizes, whatever
        the scatter (docs/validity.md).
        """
        return self._half(1 - level)

    def detectable(self, level: float) -> float:
        """Return the smallest truth that such data would have told from 0 with a power of 80%.

        Source: (t + z) standard errors, the sample size formula turned round (Cohen, Statistical Power Analysis, 1988).
        """
        return self.half(level) + float(special.ndtri(_POWER)) * self.se

    def p(self, distance: float) -> float:
        """Return two-sided p of a value that lies `distance` from the estimate: 1 - the level whose interval just holds
        it.
        """
        if self.se == 0:
            return float(distance == 0)
        if self._half(_SMALLEST) <= abs(distance):
            return 0.0
        log_p_value = optimize.brentq(lambda log_p: self._half(np.exp(log_p)) - abs(distance), np.log(_SMALLEST), 0.0)
        return float(np.exp(log_p_value)) if distance else 1.0

    def p_beyond(self, distance: float) -> float:
        """Return one-sided p of a truth that lies at least `distance` above the estimate; the two-sided half of it."""
        both = self.p(distance) / 2
        return both if distance > 0 else 1 - both

    def minus_shared(self, covariance: float) -> Spread:
        """Return the spread of the difference of two estimates, given their summed spreads and shared sampling
        covariance.
        """
        return Spread(max(self.known - 2 * covariance, 0.0), self.beyond - 2 * covariance, self.residual, self.freedom)

    def __add__(self, other: Spread) -> Spread:
        """Return the spread of a sum or difference of independent estimates.

        Source: degrees of freedom (a + b)^2 / (a^2 / f_a + b^2 / f_b) of Welch, Biometrika 34, 1947.
        """
        residual = self.residual + other.residual
        parts = self.residual**2 / self.freedom + other.residual**2 / other.freedom
        freedom = residual**2 / parts if parts > 0 else min(self.freedom, other.freedom)
        return Spread(self.known + other.known, self.beyond + other.beyond, residual, freedom)

    def _half(self, size: float) -> float:
        z2 = float(special.ndtri(size / 2)) ** 2
        t2 = float(special.stdtrit(self.freedom, size / 2)) ** 2 if self.residual > 0 else 0.0
        return float(np.sqrt(max(z2 * self.known, z2 * self.beyond + t2 * self.residual, 0.0)))
