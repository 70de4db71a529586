"""Where success rises: the size at which half of all windows succeed, and over how many decades of S that happens.

With -ln p = y = A S^-alpha, p = exp(-A S^-alpha) is an S-shaped curve over ln S (a Gompertz curve) whatever alpha is;
how sharp it looks is alpha alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from rbptrack.ranks import FloatArray
from rbptrack.stats.forecasts import backtest
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit

FARTHEST = 10.0
"""No size beyond so many times the largest is given: farther, forecasts were not checked (docs/validity.md)."""
LEAST_DOCUMENTS = 100
"""From fewer no size beyond the largest is given: where their difficulty is skewed, it is wrong as often as not."""

_TOO_FAR = f"beyond {FARTHEST:g} times the largest size"
_DECADES = np.log10(np.log(10) / np.log(1 / 0.9))  # of y from p = 10% to p = 90%


@dataclass(frozen=True)
class Threshold:
    """The size at which a share of windows succeeds.

    Attributes:
        size: by the law; its ends are 0 or infinite where the points do not bound them. NaN where refused.
        read_off: between the two neighbouring sizes measured; NaN where the share is not passed between any.
        forecast: whether the size lies beyond the largest.
        refused: why no size is given; empty where one is.

    """

    size: Interval
    read_off: float
    forecast: bool = False
    refused: str = ""


def threshold(law: PowerLawFit, share: float, *, documents: float = np.inf) -> Threshold:
    """Return the size S at which exp(-A S^-alpha) = share, with an interval.

    Within the sizes it is the set of S at which the law's interval holds -ln share (Fieller 1954). Beyond the largest
    it is a forecast: the sizes at which the interval of `Backtests.forecast`, widened by the law's own error, does;
    refused where that is refused.
    """
    y = float(-np.log(share))
    nothing = Interval(np.nan)
    read_off = _read_off(law.s, law.y, y)
    if law.low <= 0:
        return Threshold(nothing, read_off, refused="success does not rise significantly with size")
    with np.errstate(over="ignore"):  # of an exponent of all but 0
        size = float(np.exp((law.log_a - np.log(y)) / law.alpha))
    if size > law.s.max():
        few = documents < LEAST_DOCUMENTS and size <= FARTHEST * law.s.max()
        text = f"beyond the largest size it needs {LEAST_DOCUMENTS} documents" if few else _TOO_FAR
        if few or size > FARTHEST * law.s.max():
            return Threshold(nothing, read_off, forecast=True, refused=text)
        return _forecast(law, y, read_off)
    if size < law.s.min() / FARTHEST:
        return Threshold(nothing, read_off, refused=f"below a {FARTHEST:g}th of the smallest size")
    return Threshold(Interval(size, *_inside(law, np.log(y), np.log(size))), read_off)


def width_in_decades(law: PowerLawFit) -> Interval:
    """Return decades of S over which p rises from 10 to 90%: log10[ln 10 / ln(1/0.9)] / alpha = 1.34 / alpha.

    Source: exp(-A S^-alpha) of arXiv 2510.20387, eqs. 6 to 8.
    """
    if law.low <= 0:
        return Interval(np.nan)
    return Interval(*(float(_DECADES / alpha) for alpha in (law.alpha, law.high, law.low)))


def _inside(law: PowerLawFit, log_y: float, centre: float) -> tuple[float, float]:
    """Return ends of the sizes at which the law's interval of ln y holds log_y."""

    def outside(x: float) -> float:
        gap = abs(law.log_a - law.alpha * x - log_y)
        return gap - law.spread_at(float(np.exp(x))).half(law.level)

    ends = []
    for direction, unbounded in ((-1, 0.0), (1, np.inf)):
        far = centre + direction * np.log(1e4)
        if outside(far) <= 0:
            ends.append(unbounded)
        else:
            exact = outside(centre) >= 0  # a law without error
            ends.append(float(np.exp(centre if exact else optimize.brentq(outside, centre, far, xtol=1e-6))))
    return ends[0], ends[1]


def _forecast(law: PowerLawFit, y: float, read_off: float) -> Threshold:
    """Return the same beyond the largest size: where forecasts between the largest size and the farthest reach y."""
    grid = np.geomspace(law.s.max(), FARTHEST * law.s.max(), 7)
    tests = backtest([law])
    forecasts = [tests.forecast(0, float(s), level=law.level) for s in grid]
    given = [not f.refused for f in forecasts]
    first = given.index(True) if any(given) else len(grid)
    last = given.index(False, first) if False in given[first:] else len(grid)

    # A forecast is of these texts, the size at which half succeed of all like them: what texts do to y comes on top.
    middle, high = np.array([[f.y.value, f.y.high] for f in forecasts]).T
    halves = np.hypot(np.log(high / middle), [law.spread_at(float(s)).half(law.level) for s in grid])

    def reached(side: int) -> float:
        """Return where ln y of the forecasts, drawn in straight lines over ln S, falls to y; infinite where it does
        not.
        """
        values = (middle * np.exp(side * halves))[first:last]
        if values.size and values[0] <= y:
            return float(grid[first])
        size_there = _read_off(grid[first:last], values, y)
        return size_there if np.isfinite(size_there) else np.inf

    size = reached(0)
    if not np.isfinite(size):
        text = next((f.refused for f in forecasts if f.refused), _TOO_FAR)
        return Threshold(Interval(np.nan), read_off, forecast=True, refused=text)
    low = reached(-1)
    if low <= law.s.max():  # the interval reaches into the sizes measured, where the law's own holds
        low = min(low, _inside(law, float(np.log(y)), float(np.log(size)))[0])
    return Threshold(Interval(size, min(low, size), reached(1)), read_off, forecast=True)


def _read_off(s: FloatArray, y: FloatArray, target: float) -> float:
    """Read off where ln y, drawn in straight lines over ln S, first falls to ln target."""
    x = np.log(s)
    logs = np.log(y) - np.log(target)
    for i in range(len(x) - 1):
        if logs[i] > 0 >= logs[i + 1]:
            return float(np.exp(x[i] + (x[i + 1] - x[i]) * logs[i] / (logs[i] - logs[i + 1])))
    return float("nan")
