"""The test whether a law fits, the floor E of E + A S^-alpha, and forecasts by all forms of law that are not rejected.

Three forms of law are considered:

- A S^-alpha. It is rejected if ln y curves over ln S: the law then bends upward (it flattens) or downward.
- E + A S^-alpha with E >= 0, for values that fall with size. A value of E is rejected if ln(y - E) curves over ln S.
  The values of E that are not rejected are the interval of E. E = 0 is rejected exactly if the law bends.
- a broken law, A S^-alpha with an exponent that changes at one size. It needs at least `MIN_SIZES_OF_BREAK` sizes.

The test of a curve includes the noise of documents and the scatter of the models. The scatter is estimated from the
model with the square term, so it has m - 3 degrees of freedom for m sizes. For values of E above the best one, it is
the scatter at the best E. A poor fit would otherwise count as a large scatter, which no curve can exceed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log

import numpy as np
import scipy

from rbptrack.base.formatting import p_text
from rbptrack.ranks import FloatArray
from rbptrack.stats.estimate import LEVEL, Estimate
from rbptrack.stats.laws import Law
from rbptrack.stats.lines import Lines, variance_of_models
from rbptrack.stats.rounding import ROUNDING

MIN_TESTED_SIZES = 4
"""The fewest sizes for a test of fit and for forecasts. With fewer, any curve could pass through the points."""

MIN_SIZES_OF_BREAK = 8
"""The fewest sizes for a broken law. It has four parameters, so four sizes or more are left for the scatter."""

POWER = "A S^-α"
FLOOR = "E + A S^-α"
BROKEN = "a broken law"

_MIN_SIZES_OF_PART = 3  # of the sizes on each side of the break of a broken law, the break included
_FLOORS = 25  # the number of values of E between 0 and the geometric mean of y that are tested before ends are refined
_BREAKS = 25  # the number of breaks that are tried
_HALVINGS = 14  # of the range in which an end of E's interval lies


@dataclass(frozen=True)
class Floor:
    """E + A S^-alpha, fitted to a law's points.

    Attributes:
        e: the E at which ln(y - E) has no curve over ln S; 0 if the law does not bend upward.
        low: the lower end of the interval of E. It is 0 if A S^-alpha is not rejected.
        high: the upper end of the interval of E.
        alpha: the exponent alpha at E = `e`.

    """

    e: float
    low: float
    high: float
    alpha: float


@dataclass(frozen=True)
class Forecast:
    """The forecast of ln y of one more model, by every form of law that is not rejected.

    Attributes:
        value: the forecast of ln y by the simplest form that is not rejected.
        low: the lower end of the interval, which is the lowest end of all forms.
        high: the upper end of the interval.
        low_form: the form that has the lowest end: `POWER`, `FLOOR` or `BROKEN`.
        high_form: the form that has the highest end.

    """

    value: float
    low: float
    high: float
    low_form: str
    high_form: str


def bend_text(law: Law) -> str:
    """Return whether a law bends, such as `bends upward (p = 0.004)`; empty if no bend was found, or without a test.

    A law bends if the coefficient of (ln S)^2 (`Law.bend`) differs from 0. It bends upward if it falls less and less,
    or rises more and more. Each law is tested for itself: of 20 straight laws, one is said to bend.
    """
    bend = law.bend()
    p = bend.p()
    if law.sizes < MIN_TESTED_SIZES or not p < 1 - LEVEL:
        return ""
    return f"bends {'upward' if bend.value > 0 else 'downward'} ({p_text(p)})"


class _LinearFit:
    """Least squares of ln y by a form that is linear in its coefficients, or is made linear at its best fit.

    Args:
        law: the law, with the points and the noise of documents.
        design: the derivatives of the form's ln y by the coefficients, (m, coefficients).
        target: the values that the coefficients fit, (m,). They have the errors of ln y.

    """

    def __init__(self, law: Law, design: FloatArray, target: FloatArray) -> None:
        sigma = law.sigma[None]
        documents = law.documents
        if documents is not None:
            documents = replace(documents, u=documents.u[:, None])
        self._lines = Lines(law.s, law.y[None], sigma, documents)
        self._weights = np.linalg.pinv(design)
        self.coefficients = self._weights @ target
        self._residuals = self._lines.drop_rounding_errors((target - design @ self.coefficients)[None])
        self.squares = float((self._residuals**2).sum())
        self._df = len(target) - design.shape[1]
        noise = float(np.trace((np.eye(len(target)) - design @ self._weights) @ law.sigma))
        self.scatter = float(variance_of_models(np.array(self.squares), np.array(noise), self._df))

    def estimate(self, combination: FloatArray, models: float = 0.0, scatter: float | None = None) -> Estimate:
        """Return a linear combination of the coefficients, with its error.

        Args:
            combination: the factor of each coefficient, (coefficients,).
            models: how often the variance of one model around the form is added to the error.
            scatter: the variance of the models, if it is not that around this form.

        """
        weights = combination @ self._weights
        variance = (self.scatter if scatter is None else scatter) * (weights @ weights + models)
        [error] = self._lines.estimates(weights, np.array([variance]), self._df, self._residuals)
        return replace(error, value=float(combination @ self.coefficients))


class _FloorFit:
    """E + A S^-alpha with a fixed E, fitted by least squares of ln y.

    Args:
        law: the law.
        e: the fixed E, at least 0.
        start: ln A at the mean of ln S, and -alpha, from which the fit starts, (2,).

    """

    def __init__(self, law: Law, e: float, start: FloatArray) -> None:
        self._law = law
        self._mean_ln_s = float(np.log(law.s).mean())
        self._x = np.log(law.s) - self._mean_ln_s
        self._ln_e = log(e) if e > 0 else -inf
        ln_y = np.log(law.y)

        def residuals(line: FloatArray) -> FloatArray:
            return np.asarray(self._ln_y(line, self._x) - ln_y)

        def jacobian(line: FloatArray) -> FloatArray:
            return self._design(line, self._x)

        self.line = start
        if e > 0:
            with np.errstate(over="ignore", invalid="ignore"):
                self.line = scipy.optimize.leastsq(residuals, start, Dfun=jacobian)[0]
        self._residuals = -residuals(self.line)

    def _ln_y(self, line: FloatArray, x: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(self._ln_e, line[0] + line[1] * x))

    def _design(self, line: FloatArray, x: FloatArray) -> FloatArray:
        """Return the derivatives of ln y by ln A and -alpha, (m, 2)."""
        share = np.exp(line[0] + line[1] * x - self._ln_y(line, x))  # of A S^-alpha in y
        return np.column_stack([share, share * x])

    @cached_property
    def with_square(self) -> _LinearFit:
        """The fit of the residuals with a term in (ln S)^2, the last one. The points curve upward if it is above 0."""
        design = self._design(self.line, self._x)
        square = design[:, :1] * self._x[:, None] ** 2
        return _LinearFit(self._law, np.hstack([design, square]), self._residuals)

    def predict(self, s: float) -> Estimate:
        """Predict ln y of one more model of size s."""
        design = self._design(self.line, self._x)
        fitted = _LinearFit(self._law, design, self._residuals + design @ self.line)
        x = np.array([log(s) - self._mean_ln_s])
        [combination] = self._design(self.line, x)
        return replace(fitted.estimate(combination, models=1), value=float(self._ln_y(self.line, x)[0]))


class _Floors:
    """E + A S^-alpha at several E, and the interval of E.

    Args:
        law: the law.

    """

    def __init__(self, law: Law) -> None:
        self._law = law
        ln_y = np.log(law.y)
        line = np.polyfit(np.log(law.s) - np.log(law.s).mean(), ln_y, 1)[::-1]
        self._fits = {0.0: _FloorFit(law, 0.0, np.asarray(line))}
        self._largest = float(np.exp(ln_y.mean()))  # a constant is nearer to the points than any larger E
        self._grid: list[float] = np.linspace(0.0, self._largest, _FLOORS, endpoint=False).tolist()
        self._tiny = 10 * ROUNDING * (1 + float(np.abs(ln_y).max()))  # rounding errors make no larger curve

    def fit(self, e: float) -> _FloorFit:
        """Return the fit at one E. It starts from the fit at the nearest E that was fitted before."""
        if e not in self._fits:
            nearest = min(self._fits, key=lambda fitted: abs(fitted - e))
            self._fits[e] = _FloorFit(self._law, e, self._fits[nearest].line)
        return self._fits[e]

    def curve(self, e: float, scatter: float | None = None) -> Estimate:
        """Return the curve of ln(y - E) over ln S. scatter: the variance of the models, if it is not that of this E."""
        return self.fit(e).with_square.estimate(np.array([0.0, 0.0, 1.0]), scatter=scatter)

    def interval(self) -> Floor | None:
        """Return the best E with its interval; None if every E is rejected.

        If values rise with size, only E = 0 is considered.
        """
        at_zero = self.curve(0.0)
        low_at_zero, high_at_zero = at_zero.interval()
        bends_upward = low_at_zero > self._tiny
        falls = self._law.alpha.value > 0
        if high_at_zero < -self._tiny or (bends_upward and not falls):
            return None
        if not falls:
            return Floor(0.0, 0.0, 0.0, alpha=-float(self.fit(0.0).line[1]))
        e = self._best() if at_zero.value > self._tiny else 0.0
        if e is None:
            return None
        low = self._boundary(0.0, e, lambda e: self.curve(e).interval()[0] > 0) if bends_upward else 0.0
        return Floor(e, low, self._high(e), alpha=-float(self.fit(e).line[1]))

    def _best(self) -> float | None:
        """Return the E at which ln(y - E) has no curve; None if it curves upward at every E.

        ln(y - E) curves less upward, or more downward, the larger E is.
        """

        def curves_upward(e: float) -> bool:
            return self.curve(e).value > 0

        below = self._below(self._grid, curves_upward)
        if below == self._grid[-1]:
            return None
        return self._boundary(below, below + self._grid[1], curves_upward)

    def _high(self, e: float) -> float:
        """Return the upper end of the interval of E, for the best E."""
        scatter = self.fit(e).with_square.scatter

        def is_permitted(e: float) -> bool:
            return self.curve(e, scatter).interval()[1] > -self._tiny

        larger = [e, *(value for value in self._grid if value > e)]
        below = self._below(larger, is_permitted)
        if below == larger[-1]:
            return self._largest
        return self._boundary(below, min(value for value in larger if value > below), is_permitted)

    @staticmethod
    def _below(values: list[float], holds: Callable[[float], bool]) -> float:
        """Return the last of the ascending values up to which a condition holds. It holds at the first one."""
        last = values[0]
        for value in values[1:]:
            if not holds(value):
                break
            last = value
        return last

    @staticmethod
    def _boundary(below: float, above: float, holds: Callable[[float], bool]) -> float:
        """Return the value up to which a condition holds, by bisection. It holds at `below` and not at `above`."""
        for _ in range(_HALVINGS):
            middle = (below + above) / 2
            if holds(middle):
                below = middle
            else:
                above = middle
        return (below + above) / 2


def _is_tested(law: Law) -> bool:
    """Return whether forms of a law can be tested."""
    return law.sizes >= MIN_TESTED_SIZES and law.alpha.has_interval


def fit_floor(law: Law) -> Floor | None:
    """Fit E + A S^-alpha with E >= 0, and compute the interval of E.

    The interval contains the values of E at which ln(y - E) does not curve over ln S. It includes the noise of
    documents and the scatter of the models.

    Returns:
        The fit; None if every E is rejected, for example because the law bends downward. None also if the law has fewer
        than `MIN_TESTED_SIZES` sizes, or no interval.

    """
    return _Floors(law).interval() if _is_tested(law) else None


def forecast(law: Law, s: float) -> Forecast | None:
    """Predict ln y of one more model, by every form of law that is not rejected.

    The interval is the union of the intervals of all forms. Each interval includes the error of the form, the scatter
    of one model, and the noise of documents.

    Args:
        law: the law.
        s: the size of the model.

    Returns:
        The forecast; None if every form is rejected, if the law has fewer than `MIN_TESTED_SIZES` sizes, or if it has
        no interval.

    """
    if not _is_tested(law):
        return None
    predictions: list[tuple[str, Estimate]] = []
    floors = _Floors(law)
    floor = floors.interval()
    if floor is not None:
        if floor.low == 0:
            predictions.append((POWER, floors.fit(0.0).predict(s)))
        for e in dict.fromkeys([floor.e, *np.linspace(floor.low, floor.high, _FLOORS).tolist()]):
            predictions.append((FLOOR, floors.fit(e).predict(s)))
    if law.sizes >= MIN_SIZES_OF_BREAK:
        predictions += [(BROKEN, prediction) for prediction in _broken_predictions(law, s)]
    if not predictions:
        return None
    ends = [(*prediction.interval(), form) for form, prediction in predictions]
    # The first form, which is the simplest one, counts if several have an end.
    low, _, low_form = min(ends, key=lambda end: end[0])
    _, high, high_form = max(ends, key=lambda end: end[1])
    return Forecast(predictions[0][1].value, low, high, low_form, high_form)


def _broken_predictions(law: Law, s: float) -> list[Estimate]:
    """Return the predictions of broken laws with different breaks, the best break first.

    A break is left out if an F test of the sum of squared residuals rejects it in favour of the best break.
    """
    x = np.log(law.s)
    fits = []
    for place in np.linspace(x[_MIN_SIZES_OF_PART - 1], x[-_MIN_SIZES_OF_PART], _BREAKS):
        design = np.column_stack([np.ones(law.sizes), x, np.maximum(x - place, 0.0)])
        fits.append((float(place), _LinearFit(law, design, np.log(law.y))))
    fits.sort(key=lambda fitted: float(f"{fitted[1].squares:.9g}"))
    df = law.sizes - 4
    largest = fits[0][1].squares * (1 + float(scipy.special.fdtri(1, df, LEVEL)) / df)
    predictions = []
    for place, fitted in fits:
        if fitted.squares <= largest:
            predictions.append(fitted.estimate(np.array([1.0, log(s), max(log(s) - place, 0.0)]), models=1))
    return predictions
