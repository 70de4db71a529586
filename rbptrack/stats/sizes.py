"""Sizes at which two laws have equal values: equivalent sizes and crossings, with Fieller's intervals.

The difference of two laws is a straight line in ln S. It is 0 where the laws have equal values. The interval of this
place contains every place at which the difference is not significant. It is unbounded if the slope of the line may be
0. Source: Fieller, Journal of the Royal Statistical Society B 16, 1954.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, log, nan, sqrt

from rbptrack.stats.estimate import Estimate
from rbptrack.stats.laws import Law
from rbptrack.stats.rounding import ROUNDING

Minus = Callable[[Estimate, Estimate], Estimate]
"""How two estimates are subtracted: `together.paired_difference` or `together.independent_difference`."""


@dataclass(frozen=True)
class SizeRatio:
    """The ratio of two sizes at which two laws have equal values.

    Attributes:
        ln_ratio: the logarithm of the ratio. Its p-value against 0 is that of the hypothesis that both laws have equal
            values at the same size. Use the following interval in place of its own.
        low: the lower end of the ratio's interval; 0 if it is unbounded, NaN if it is unknown.
        high: the upper end of the interval; infinite if it is unbounded.

    """

    ln_ratio: Estimate
    low: float
    high: float


@dataclass(frozen=True)
class Crossing:
    """The size at which two laws cross.

    Attributes:
        value: the size; NaN if the laws are parallel.
        low: the lower end of the interval; 0 if it is unbounded, NaN if it is unknown.
        high: the upper end of the interval; infinite if it is unbounded.

    """

    value: float
    low: float
    high: float


def size_ratio(law: Law, reference: Law, s: float, minus: Minus) -> SizeRatio | None:
    """Return the size at which a law has the value of a reference law at the size s, divided by s.

    Below 1, models of the law need fewer parameters for the same value. Returns None if y does not fall with size. The
    interval assumes that y falls with size.

    Args:
        law: the law.
        reference: the law that it is compared with.
        s: a size of the reference.
        minus: how estimates of the two laws are subtracted.

    """
    alpha = law.alpha.value
    if not alpha > 0:
        return None
    value_of_reference = reference.at(s)
    low, high = _interval_of_root(lambda ln_ratio: minus(law.at(s * exp(ln_ratio)), value_of_reference))
    difference = minus(law.at(s), value_of_reference)
    ln_ratio = replace(
        difference,
        value=difference.value / alpha,
        sampling=difference.sampling / alpha**2,
        scatter=difference.scatter / alpha**2,
    )
    return SizeRatio(ln_ratio, _exp(low), _exp(high))


def crossing(law: Law, reference: Law, minus: Minus) -> Crossing:
    """Return the size at which two laws cross. The interval is unbounded if their exponents may be equal."""
    middle = sqrt(sqrt(law.s[0] * law.s[-1] * reference.s[0] * reference.s[-1]))

    def difference(ln_ratio: float) -> Estimate:
        s = middle * exp(ln_ratio)
        return minus(law.at(s), reference.at(s))

    slope = reference.alpha.value - law.alpha.value
    root = -difference(0.0).value / slope if slope else nan
    low, high = _interval_of_root(difference)
    return Crossing(middle * _exp(root), middle * _exp(low), middle * _exp(high))


def middle_of_common_values(law: Law, reference: Law) -> float:
    """Return the size at which the reference has the middle of the values that both laws have between their sizes.

    The middle is the geometric mean. The size is NaN if the laws have no value in common, or if one does not fall.
    """
    if not (law.alpha.value > 0 and reference.alpha.value > 0):
        return nan
    highest, lowest = (min(law.ends[0], reference.ends[0]), max(law.ends[1], reference.ends[1]))
    if not lowest < highest:
        return nan
    return exp((reference.ln_a.value - (log(lowest) + log(highest)) / 2) / reference.alpha.value)


def _interval_of_root(line: Callable[[float], Estimate]) -> tuple[float, float]:
    """Return Fieller's interval of the place at which a straight line is 0; NaN if it is unknown.

    The degrees of freedom are those at the place 0. If two rays are not rejected, one for a falling line and one for a
    rising line, the ray that holds the root of the measured line is returned.

    Args:
        line: a function that returns the value of the line at a place, with its error.

    """
    places = (-1.0, 0.0, 1.0)
    estimates = [line(place) for place in places]
    if not all(estimate.has_interval for estimate in estimates):
        return nan, nan
    middle = estimates[1]
    slope = (estimates[2].value - estimates[0].value) / 2
    squares = []
    for estimate in estimates:
        squares.append(replace(estimate, df=middle.df, sampling_df=middle.sampling_df).half_width() ** 2)
    # The value is not significant where (middle + slope r)^2 <= c0 + c1 r + c2 r^2.
    c0, c1, c2 = squares[1], (squares[2] - squares[0]) / 2, (squares[2] + squares[0]) / 2 - squares[1]
    a, b, c = slope**2 - c2, 2 * middle.value * slope - c1, middle.value**2 - c0
    discriminant = b**2 - 4 * a * c
    if a > 0:
        half_width = sqrt(max(discriminant, 0.0)) / (2 * a)
        return -b / (2 * a) - half_width, -b / (2 * a) + half_width
    is_flat = abs(slope) <= ROUNDING * max(abs(estimate.value) for estimate in estimates)
    if a == 0 or discriminant <= 0 or is_flat:
        return -inf, inf
    first, second = sorted((-b + sign * sqrt(discriminant)) / (2 * a) for sign in (-1, 1))
    return (second, inf) if -middle.value / slope >= second else (-inf, first)


def _exp(x: float) -> float:
    """Return e to the power of x; infinite if it is too large for a float."""
    return exp(x) if x < 700 or x != x else inf
