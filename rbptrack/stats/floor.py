"""E + A S^-alpha, the form that the field fits: E is what no size removes.

Residuals are those of ln y, unweighted: errors count as independent and alike at all sizes. E's interval is its profile
(an F test of the sum of squares with E fixed), so that it holds the scatter of models alone, not that of documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, nan, sqrt

import numpy as np
from scipy.optimize import brentq, leastsq, minimize_scalar
from scipy.special import expit, fdtri

from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray
from rbptrack.stats.laws import FLOOR, fit
from rbptrack.stats.rounding import first_smallest

MIN_SIZES = 6
"""Of E + A S^-alpha: below, its three parameters and the scatter cannot be told apart."""

_STEP = 1.15  # from one E to the next in the search above the smallest value

_ABOVE = 1e-3  # of ln y over ln E: nearer, a point says nothing of the line above E

EXACT = 1e-24
"""Mean square of ln y below which every point counts as on the curve: there is no scatter to make a profile of.

Rounding errors of ln y are about 1e-15, so that their squares stay far below on every processor.
"""


@dataclass(frozen=True)
class Parameter:
    """A parameter at the least squares with its profile interval.

    An end is infinite where the profile has none, and NaN where no profile can be computed.
    """

    value: float
    low: float = nan
    high: float = nan


@dataclass(frozen=True)
class FormFit:
    """A form at its least squares in ln y.

    Attributes:
        form: its expression.
        parameters: by name, in the order of the form.
        aicc: Akaike's criterion for small samples, constants left out; infinite where points are too few for it.
        r2: share of the variance of ln y that it explains; NaN where y is the same at all sizes.

    """

    form: str
    parameters: dict[str, Parameter]
    aicc: float
    r2: float


def aicc(squares: float, points: int, free: int) -> float:
    """AICc of least squares; `free` counts the variance, too (Hurvich and Tsai, Biometrika 76, 1989)."""
    if points <= free + 1:
        return inf
    deviance = points * log(max(squares / points, EXACT))
    return deviance + 2 * free + 2 * free * (free + 1) / (points - free - 1)


def power_law_aicc(s: FloatArray, y: FloatArray) -> float:
    """AICc of A S^-alpha through the same points."""
    law = fit(s, y)
    residual = np.log(law.y) - law.ln_a.value + law.alpha.value * np.log(law.s)
    return aicc(float(residual @ residual), len(s), 3)


def fit_floor(s: FloatArray, y: FloatArray, *, level: float = 0.95) -> FormFit:
    """Fit E + A S^-alpha with E >= 0 to sizes and positive values, (m,) each, m at least `MIN_SIZES`; only E has an
    interval.

    Raises:
        BadInput: the best alpha is below 0: values rise with size, and E would be their limit at S = 0.

    """
    x = np.log(s) - np.log(s).mean()
    ln_y = np.log(y)
    smallest = float(y.min())

    def squares(e: float) -> float:
        return _above_floor(x, ln_y, e)[1]

    # No E above the geometric mean is best: a constant, which is E = 0 with alpha = 0, is nearer to the points.
    steps = np.arange(2 + int((ln_y.mean() - log(smallest)) / log(_STEP)))
    grid = smallest * np.concatenate([[0.0, 0.2, 0.4, 0.6, 0.8, 0.9], _STEP**steps])
    rounding = EXACT * len(y)
    found = _minima(squares, grid, tolerance=1e-9 * smallest)
    nearest = min(map(squares, found))
    e = next(minimum for minimum in found if squares(minimum) <= nearest + rounding)  # E = 0 comes first
    line, least = _above_floor(x, ln_y, e)
    if line[1] * np.ptp(x) > sqrt(EXACT):
        raise BadInput(f"{FLOOR} is fitted where values fall with size")
    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    low = high = nan
    if least > rounding:
        limit = least * (1 + fdtri(1, len(y) - 3, level) / (len(y) - 3))
        low, high = _profile(lambda e: squares(e) - limit, e, step=0.05 * smallest, most=1e3 * float(y.max()))
    a = exp(min(line[0] - line[1] * float(np.log(s).mean()), 700))
    parameters = {"E": Parameter(e, low, high), "A": Parameter(a), "alpha": Parameter(-float(line[1]))}
    return FormFit(FLOOR, parameters, aicc(least, len(y), 4), r2=1 - least / total if total > rounding else nan)


def _minima(function: Callable[[float], float], grid: FloatArray, *, tolerance: float) -> list[float]:
    """The first of a grid, and the local minima between its neighbours."""
    values = np.array([inf, *map(function, grid), inf])
    found = [float(grid[0])]
    for i in range(len(grid)):
        if values[i] >= values[i + 1] <= values[i + 2]:
            bounds = (grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)])
            best = minimize_scalar(function, bounds=bounds, method="bounded", options={"xatol": tolerance})
            found.append(float(best.x))
    return found


def _above_floor(x: FloatArray, ln_y: FloatArray, e: float) -> tuple[FloatArray, float]:
    """Ln A and -alpha at the least squares with E fixed, and the sum of squares; x is ln S."""
    if e <= 0:
        line = _line(x, ln_y)
        off = line[0] + line[1] * x - ln_y
        return line, float(off @ off)
    ln_e = log(e)

    def residual(line: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(ln_e, line[0] + line[1] * x) - ln_y)

    def slopes(line: FloatArray) -> FloatArray:
        share = expit(line[0] + line[1] * x - ln_e)
        return np.array([share, share * x])

    starts = [_line(x, ln_y)]
    above = ln_y - ln_e > _ABOVE
    if above.sum() > 1:
        starts.append(_line(x[above], ln_e + np.log(np.expm1(ln_y[above] - ln_e))))
    found = []
    for start in starts:
        with np.errstate(over="ignore"):  # in the covariance, which is of no use here
            line, *_ = leastsq(residual, start, Dfun=slopes, col_deriv=True, full_output=True)  # full: it does not warn
        off = residual(line)
        found.append((line, float(off @ off)))
    return found[first_smallest([squares for _, squares in found])]


def _line(x: FloatArray, y: FloatArray) -> FloatArray:
    """Intercept and slope of least squares, (2,)."""
    centred = x - x.mean()
    slope = (centred @ y) / (centred @ centred)
    return np.array([y.mean() - slope * x.mean(), slope])


def _profile(beyond: Callable[[float], float], e: float, *, step: float, most: float) -> tuple[float, float]:
    """Where a profile that is below 0 at E crosses 0 on either side: 0 at least, infinite if nowhere below `most`."""
    low = 0.0
    if e > 0 and beyond(0.0) > 0:
        low = float(brentq(beyond, 0.0, e, rtol=1e-6))
    upper = e + step
    while beyond(upper) < 0:
        if upper > most:
            return low, inf
        upper = 2 * upper
    return low, float(brentq(beyond, e, upper, rtol=1e-6))
