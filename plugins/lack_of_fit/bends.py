"""Does a law in size bend? A test that assumes no form, and the smallest floor that it would find."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from rbptrack.analysis import RbptrackError
from rbptrack.ranks import FloatArray, IntArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval
from rbptrack.stats.newton import crossing
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.spread import Spread

LEAST_SIZES = 5
"""Sizes that leave two degrees of freedom beside a line and a bend."""

LEAST_KEPT = 1 / 3
"""Share of a bend left without either end size, below which one model may have made it; a parabola keeps 0.64."""

_SHARES = np.append(np.arange(1, 99) / 100, 0.99)  # of a floor, that are tried


def curved(x: FloatArray) -> FloatArray:
    """Return columns 1, x and c(x), (m, 3): c is the part of x^2 that no line explains, its largest absolute value 1.

    Source: the quadratic term of a polynomial regression, made orthogonal to the line.
    """
    line = linear.centred(x)
    curve = linear.least_squares(line, (x - x.mean()) ** 2)[1]
    return np.column_stack([line, curve / np.abs(curve).max()])


def kept_without_ends(x: FloatArray, values: FloatArray) -> float:
    """Return the least share of a bend that is left without the smallest or the largest size; below 0 where it turns.

    Of x = ln S, (m,), m >= 5, and ln y, (m,); infinite where nothing bends.

    Source: deletion diagnostics, as `stats.power_law.point_diagnostics`.
    """
    order = np.argsort(x)

    def bend(kept: IntArray) -> float:
        return float(linear.inverse(curved(x[kept]))[2] @ values[kept])

    whole = bend(order)
    return min(bend(order[1:]) / whole, bend(order[:-1]) / whole) if whole else float("inf")


@dataclass(frozen=True)
class Bend:
    """How far points bend away from the best line, in ln y; above 0: the law flattens (bends upwards).

    Attributes:
        departure: at the size where it is largest.
        spread: its error.

    """

    departure: float
    spread: Spread

    @property
    def p(self) -> float:
        """Two-sided, of no bend."""
        return self.spread.p(abs(self.departure))

    @property
    def p_upwards(self) -> float:
        """One-sided, of no upward bend."""
        return 1 - self.p / 2 if self.departure < 0 else self.p / 2


def bend_of(s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> Bend:
    """Test a power law against a bend: sizes and values, (m,), and the sampling covariance of ln y, (m, m).

    Source: the t test of a quadratic term, with the error of `linear.estimate_error`.

    Raises:
        RbptrackError: fewer than 5 sizes.

    """
    x = np.log(np.asarray(s, dtype=np.float64))
    values = np.log(np.asarray(y, dtype=np.float64))
    if len(x) < LEAST_SIZES:
        raise RbptrackError(f"a bend needs at least {LEAST_SIZES} sizes; got {len(x)}")
    at = np.array([0.0, 0.0, 1.0])
    design = curved(x)
    spread = linear.estimate_error(at, design, values, covariance)
    # Of few residuals the mean square is too small in most draws; raised by f / (median of chi^2_f) it is so in half.
    raised = spread.residual * spread.freedom / float(special.chdtri(spread.freedom, 0.5))
    return Bend(float(at @ linear.least_squares(design, values)[0]), replace(spread, residual=raised))


def floor_bends(x: FloatArray, alpha: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the bend that a floor of each share gives laws whose line has a slope of -alpha, (shares, laws); x = ln S,
    (m,).

    Source: M1, its exponent such that a line through it has the slope that was found.
    """
    _, slope, bend = linear.inverse(curved(x))
    ahead, share = x.max() - x, shares[:, None, None]  # (m,); the shape is 0 at the largest size
    low = np.zeros((len(shares), len(alpha)))
    high = np.full((len(shares), len(alpha)), 50.0)

    def shape(exponent: FloatArray) -> FloatArray:
        return np.asarray(np.log(share + (1 - share) * np.exp(np.minimum(exponent[..., None] * ahead, 500))))

    return np.asarray(shape(crossing(lambda exponent: shape(exponent) @ -slope > alpha, low, high)) @ bend)


def smallest_floor(
    x: FloatArray,
    alpha: npt.ArrayLike,
    se: npt.ArrayLike,
    *,
    critical: float,
    freedom: float,
    power: float = 0.8,
) -> float:
    """Return the smallest floor's share at the largest size that a test of bends would find with some power; NaN: none.

    Laws that are tested together are taken to have the same share; the one that shows it best decides.

    Source: the power of a t test, a noncentral t (Johnson and Welch, Biometrika 31, 1940).

    Args:
        x: ln S, (m,).
        alpha: exponents of the lines, (laws,).
        se: standard errors of their bends, (laws,).
        critical: bend / se from which a test says yes.
        freedom: of the t distribution.
        power: how often it has to.

    """
    exponents = np.atleast_1d(np.asarray(alpha, dtype=float))
    errors = np.atleast_1d(np.asarray(se, dtype=float))
    falls = exponents > 0
    if not falls.any():
        return float("nan")
    needed = optimize.brentq(lambda away: 1 - special.nctdtr(freedom, away, critical) - power, 0.0, 3 * critical + 10)
    bends = floor_bends(x, exponents[falls], _SHARES) / errors[falls]
    seen = (bends >= needed).any(axis=1)
    return float(_SHARES[np.argmax(seen)]) if seen.any() else float("nan")


@dataclass(frozen=True, kw_only=True)
class FloorTest:
    """What points say of a floor without fitting one.

    Attributes:
        departure: from the line in ln y, above 0 where the law flattens, with its interval.
        p_bend: two-sided, of no bend.
        p_floor: one-sided, the largest by both ways to count S, with and without the smallest size; 1 where S is known
            in one way only.
        floor_seen: the smallest floor's share at the largest size that the test of a bend would find in 80%.
        kept: the least share of the departure that is left without either end size.

    """

    departure: Interval
    p_bend: float
    p_floor: float
    floor_seen: float
    kept: float


def floor_test(law: PowerLawFit, other: PowerLawFit | None, *, tests: int = 1) -> FloorTest:
    """Test one metric of a family for a floor, so that neither one model nor the way to count S decides.

    Source: an intersection-union test (Berger, Technometrics 24, 1982): the largest p of `bend_of` over all ways.

    Args:
        law: over at least 6 sizes.
        other: the same with S counted the other way; None: not known.
        tests: how many tests p is corrected for, for the smallest floor.

    """
    bend = bend_of(law.s, law.y, law.covariance)
    every = [1.0] if other is None else []
    for form in filter(None, (law, other)):
        kept = form.s > form.s.min()
        without = bend_of(form.s[kept], form.y[kept], form.covariance[np.ix_(kept, kept)])
        every += [bend_of(form.s, form.y, form.covariance).p_upwards, without.p_upwards]
    spread = bend.spread
    seen = float("nan")
    if spread.se > 0:
        freedom = spread.freedom * (spread.se**2 / spread.residual) ** 2 if spread.residual else 1e6
        critical = spread.half(1 - (1 - law.level) / tests) / spread.se
        seen = smallest_floor(np.log(law.s), law.alpha, spread.se, critical=critical, freedom=min(freedom, 1e6))
    return FloorTest(
        departure=Interval.around(bend.departure, spread.half(law.level)),
        p_bend=bend.p,
        p_floor=max(every),
        floor_seen=seen,
        kept=kept_without_ends(np.log(law.s), np.log(law.y)),
    )
