"""Fit laws of other forms than A S^-alpha: E + A S^-alpha, and user-defined expressions in S and D (training tokens).

Every form is fitted from several starting points: E + A S^-alpha by SciPy, a user-defined form by lmfit. Fits minimise
the sum of squared residuals of ln y. Errors are treated as independent and equally large at all sizes. An interval of a
parameter is a profile interval: the values at which an F test of the sum of squares, with this parameter fixed, does
not reject. Intervals include the scatter of the models, but not the error over documents.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import exp, inf, log, nan, sqrt
from typing import Any

import numpy as np
import scipy

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import listed
from rbptrack.ranks import FloatArray
from rbptrack.stats.laws import FLOOR, fit
from rbptrack.stats.rounding import first_smallest

MIN_SIZES = 6
"""The fewest sizes for a fit of E + A S^-alpha. Fewer sizes cannot separate its three parameters from the scatter."""

EXACT = 1e-24
"""If the mean squared residual of ln y is below this, the fit counts as exact, and no profile is computed.

Rounding errors of ln y are about 1e-15. Their squares are far below this limit on every processor.
"""

_VARIABLES = ("S", "D")
_FUNCTIONS = ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "maximum", "minimum", "sqrt", "tanh")
_ARITHMETIC = (
    ast.Expression, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd,
)  # fmt: skip
_LONGEST = 500  # the most characters of a user-defined form
_MAX_EVALUATIONS = (
    200_000  # limit of a fit with its profiles, about 10 s. A limit in seconds would depend on the machine
)
_POINTS = 256  # the number of points that the starting points are chosen from
_STARTS = 6  # the number of starting points of a fit
_DECADES = (-3.0, 4.0)  # log10 of the smallest and the largest starting value of a parameter
_OUTSIDE = 1e3  # the residual that stands for a value of a form that is not above 0

_STEP = 1.15  # ratio of neighbouring starting values of E above the smallest y
_FLOORS = 4  # the number of values of E that a fit starts from
_ABOVE = 1e-3  # the smallest ln y - ln E of a point that a starting line uses. Rounding errors dominate nearer points
_TINY = 1e-300  # stands for E = 0 under the logarithm

Residual = Callable[[Mapping[str, float]], FloatArray]


@dataclass(frozen=True)
class Parameter:
    """A parameter's least-squares value with its profile interval, from `low` to `high`.

    An end is infinite if the profile does not cross the limit on that side. It is NaN if no profile was computed.
    """

    value: float
    low: float = nan
    high: float = nan


@dataclass(frozen=True)
class FormFit:
    """A form of law, fitted by least squares of ln y.

    Attributes:
        form: the expression.
        parameters: the parameters by name, in the order of the expression.
        aicc: Akaike's criterion corrected for small samples, without its constant terms; infinite if there are too few
            points.
        r2: the share of the variance of ln y that the form explains; NaN if y is constant.
        curve: a function that takes sizes S, (n,), and training tokens D, (n,) or None. It returns the form's values
            of y, (n,); NaN for values that are not positive.

    """

    form: str
    parameters: dict[str, Parameter]
    aicc: float
    r2: float
    curve: Callable[[FloatArray, FloatArray | None], FloatArray] = field(repr=False, compare=False)


def aicc(squares: float, points: int, free: int) -> float:
    """Return Akaike's criterion, corrected for small samples, of a least-squares fit; infinite for too few points.

    Source: Hurvich and Tsai, Biometrika 76, 1989.

    Args:
        squares: the sum of squared residuals of ln y.
        points: the number of points.
        free: the number of free parameters. The variance of the residuals counts as one of them.

    """
    if points <= free + 1:
        return inf
    deviance = points * log(max(squares / points, EXACT))
    return deviance + 2 * free + 2 * free * (free + 1) / (points - free - 1)


def power_law_aicc(s: FloatArray, y: FloatArray) -> float:
    """Return Akaike's criterion, corrected for small samples, of the law A S^-alpha.

    Args:
        s: sizes S, (m,).
        y: positive values, (m,).

    """
    law = fit(s, y)
    residual = np.log(law.y) - law.ln_a.value + law.alpha.value * np.log(law.s)
    return aicc(float(residual @ residual), len(s), 3)


def least_squares(residual: Callable[[Any], FloatArray], starts: Iterable[Any]) -> tuple[Any, list[Any]]:
    """Fit by lmfit's least squares from several starting points.

    Args:
        residual: a function that takes lmfit's Parameters and returns the residuals, (n,).
        starts: the starting points, as lmfit's Parameters.

    Returns:
        The minimizer of the best fit, and the results of the fits from all starting points. The best is first, the
        others follow in the order of `starts`.

    """
    import lmfit  # imported only if a form is fitted, because the import takes 0.5 s

    fits = []
    for start in starts:
        minimizer = lmfit.Minimizer(residual, start)
        with np.errstate(all="ignore"):
            fits.append((minimizer, minimizer.minimize(method="leastsq")))
    best = fits.pop(first_smallest([max(float(result.chisqr), EXACT) for _, result in fits]))
    return best[0], [best[1], *(result for _, result in fits)]


def fit_floor(s: FloatArray, y: FloatArray, *, level: float = 0.95, ends: bool = True) -> FormFit:
    """Fit E + A S^-alpha with E >= 0. Only E has an interval.

    Args:
        s: sizes S, (m,). m must be at least 4. The interval is meaningful with at least `MIN_SIZES` sizes.
        y: positive values, (m,).
        level: the level of E's interval.
        ends: whether to compute E's interval.

    Raises:
        BadInput: the best alpha is below 0. Values then rise with size, and E would be their limit at size 0.

    """
    x = np.log(s) - np.log(s).mean()
    ln_y = np.log(y)
    rounding = EXACT * len(y)
    straight = _line(x, ln_y)
    least = _squares(straight, x, ln_y, 0.0)
    e, line = 0.0, straight
    with_floor = _above_floor(x, ln_y, _likely_floors(x, ln_y))
    if with_floor[0] < least - rounding:
        least, e, line = with_floor
    if line[1] * np.ptp(x) > sqrt(EXACT):
        raise BadInput(f"{FLOOR} can only be fitted to values that fall with size")
    low = high = nan
    if ends and least > rounding:
        limit = least * (1 + float(scipy.special.fdtri(1, len(y) - 3, level)) / (len(y) - 3))

        def beyond(floor: float) -> float:
            """Return by how much the smallest sum of squares with this E exceeds the limit of the interval."""
            if floor <= 0:
                return _squares(straight, x, ln_y, 0.0) - limit
            lines = [line, *(through for _, through in _with_lines(x, ln_y, [floor]))]
            return _least_with_floor(x, ln_y, floor, lines) - limit

        low, high = _profile(beyond, e, step=0.05 * float(y.min()), most=1e3 * float(y.max()))
    ln_a = float(line[0] - line[1] * np.log(s).mean())
    slope = float(line[1])
    parameters = {"E": Parameter(e, low, high), "A": Parameter(exp(min(ln_a, 700))), "alpha": Parameter(-slope)}

    def curve(s: FloatArray, d: FloatArray | None = None) -> FloatArray:
        return np.asarray(e + np.exp(ln_a + slope * np.log(s)))

    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    r2 = 1 - least / total if total > rounding else nan
    return FormFit(FLOOR, parameters, aicc(least, len(y), 4), r2, curve)


def _likely_floors(x: FloatArray, ln_y: FloatArray) -> list[tuple[float, FloatArray]]:
    """Return starting points of a fit with a floor: each is an E and a line, (2,), of ln A and -alpha.

    They are the `_FLOORS` candidates with the smallest sums of squares, and one with the line of E = 0.

    Args:
        x: ln S, centred, (m,).
        ln_y: logarithms of the values, (m,).

    """
    smallest = float(np.exp(ln_y.min()))
    # An E above the geometric mean is never the best: a constant (E = 0 and alpha = 0) is nearer to the points.
    steps = np.arange(2 + int((ln_y.mean() - ln_y.min()) / log(_STEP)))
    floors = smallest * np.concatenate([[0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97], _STEP**steps])
    starts = _with_lines(x, ln_y, floors)
    # Rounded keys give the same order on every processor.
    starts.sort(key=lambda start: float(f"{_squares(start[1], x, ln_y, start[0]):.6g}"))
    return [*starts[:_FLOORS], (0.3 * smallest, _line(x, ln_y))]


def _with_lines(x: FloatArray, ln_y: FloatArray, floors: Iterable[float]) -> list[tuple[float, FloatArray]]:
    """Return each E with the line, (2,), of ln(y - E) on x through the points above E.

    An E with fewer than 2 points above it is left out.
    """
    starts = []
    for floor in floors:
        over = ln_y - log(floor)
        above = over > _ABOVE
        if above.sum() > 1:
            starts.append((float(floor), _line(x[above], log(floor) + np.log(np.expm1(over[above])))))
    return starts


def _above_floor(
    x: FloatArray, ln_y: FloatArray, starts: Sequence[tuple[float, FloatArray]]
) -> tuple[float, float, FloatArray]:
    """Fit E + A S^-alpha from several starting points.

    Args:
        x: ln S, centred, (m,).
        ln_y: logarithms of the values, (m,).
        starts: an E and a line, (2,), of ln A and -alpha for each starting point.

    Returns:
        The sum of squared residuals of the best fit, its E, and its line, (2,), of ln A and -alpha.

    """

    def residuals(internal: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(log(max(e_of(internal), _TINY)), internal[1] - internal[2] * x) - ln_y)

    def e_of(internal: FloatArray) -> float:
        return sqrt(internal[0] ** 2 + 1) - 1  # at least 0, as lmfit keeps a parameter above a bound

    fits = [_least_sum(residuals, [sqrt((floor + 1) ** 2 - 1), line[0], -line[1]]) for floor, line in starts]
    least, internal = fits[first_smallest([least for least, _ in fits])]
    return least, e_of(internal), np.array([internal[1], -internal[2]])


def _least_with_floor(x: FloatArray, ln_y: FloatArray, floor: float, lines: Iterable[FloatArray]) -> float:
    """Return the smallest sum of squared residuals of ln y for a fixed floor, from several starting lines."""
    ln_floor = log(max(floor, _TINY))

    def residuals(line: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(ln_floor, line[0] - line[1] * x) - ln_y)

    least = [_least_sum(residuals, [line[0], -line[1]])[0] for line in lines]
    return least[first_smallest(least)]


def _least_sum(residuals: Callable[[FloatArray], FloatArray], start: Sequence[float]) -> tuple[float, FloatArray]:
    """Fit from one starting point. Returns the sum of squares, but at least `EXACT`, and the fitted parameters.

    It calls SciPy's `leastsq` with the settings of lmfit. lmfit itself would take five times as long, because it also
    computes results that are not needed here.
    """
    with np.errstate(all="ignore"):
        best, _, found, _, _ = scipy.optimize.leastsq(
            residuals,
            start,
            full_output=True,
            ftol=1.5e-8,
            xtol=1.5e-8,
            gtol=0.0,
            epsfcn=1e-10,
            maxfev=2000 * len(start),
        )
    return max(float((found["fvec"] ** 2).sum()), EXACT), best


def _squares(line: FloatArray, x: FloatArray, ln_y: FloatArray, floor: float) -> float:
    """Return the sum of squared residuals of ln y for a floor and a line, (2,), of ln A and -alpha."""
    residuals = np.logaddexp(log(max(floor, _TINY)), line[0] + line[1] * x) - ln_y
    return float(residuals @ residuals)


def _line(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the intercept and the slope of the least-squares line of y on x, (2,)."""
    centred = x - x.mean()
    slope = (centred @ y) / (centred @ centred)
    return np.array([y.mean() - slope * x.mean(), slope])


def _profile(beyond: Callable[[float], float], e: float, *, step: float, most: float) -> tuple[float, float]:
    """Return the lower and the upper end of the interval of E: the values at which a profile crosses 0.

    The lower end is at least 0. The upper end is infinite if the profile does not cross 0 below about `most`.

    Args:
        beyond: the profile: a function of E that is negative inside the interval and positive outside.
        e: the E of the best fit, inside the interval.
        step: the distance of the first trial value from `e` in the search for the upper end.
        most: the largest E of that search.

    """
    low = 0.0
    if e > 0 and beyond(0.0) > 0:
        low = float(scipy.optimize.brentq(beyond, 0.0, e, rtol=1e-6))
    upper = e + step
    while beyond(upper) < 0:
        if upper > most:
            return low, inf
        upper = 2 * upper
    return low, float(scipy.optimize.brentq(beyond, e, upper, rtol=1e-6))


def check_form(text: str) -> list[str]:
    """Return the names of the parameters of a form, in the order in which they appear.

    Args:
        text: an expression in S and D (training tokens). Every other name, except pi, is a parameter.

    Raises:
        BadInput: the text is not such an expression, or it has no parameter or no variable.

    """
    names = _names(text)
    parameters = [name for name in names if name not in (*_VARIABLES, "pi")]
    if not parameters:
        raise _refused(text, "it has no parameter")
    if not set(names) & set(_VARIABLES):
        raise _refused(text, "it has neither S nor D")
    return parameters


def fit_form(text: str, s: FloatArray, y: FloatArray, d: FloatArray | None = None, *, level: float = 0.95) -> FormFit:
    """Fit a user-defined form of law by least squares of ln y.

    Args:
        text: an expression in S and D (training tokens). Every other name, except pi, is a parameter. A form has at
            most m - 2 parameters; E + A S^-alpha needs at least `MIN_SIZES` sizes. The starting values of a parameter
            lie between 1e-3 and 1e4.
        s: sizes S, (m,).
        y: positive values, (m,).
        d: training tokens D, (m,); None if they are unknown.
        level: the level of the profile intervals.

    Raises:
        BadInput: the text is not such an expression, it has too many parameters for these sizes, or it needs D and D is
            unknown. Also raised if no fit converges within a fixed number of evaluations (about 10 seconds).

    """
    is_floor = "".join(text.split()) == FLOOR
    if is_floor and len(y) >= MIN_SIZES:
        return fit_floor(s, y, level=level)
    names = check_form(text)
    if "D" in _names(text) and (d is None or not np.isfinite(d).all()):
        raise _refused(text, "D, the training tokens, is not known for every model")
    least = MIN_SIZES if is_floor else len(names) + 2
    if len(y) < least:
        raise _refused(text, f"{len(names)} parameters need at least {least} sizes; there are {len(y)}")
    ln_y = np.log(y)
    residual = _residual(text, {"S": np.asarray(s, dtype=np.float64), "D": d}, ln_y)
    try:
        minimizer, [best, *_] = least_squares(lambda p: residual(p.valuesdict()), _starts(residual, names))
        if np.abs(best.residual).max() >= _OUTSIDE:
            raise _refused(text, "the fit does not converge from any starting point")
    except TimeoutError as error:
        raise _refused(text, f"the fit takes more than {_MAX_EVALUATIONS:,} evaluations of the form") from error
    squares = float(best.chisqr)
    parameters = {name: Parameter(best.params[name].value) for name in names}
    if squares > EXACT * len(y):
        with suppress(TimeoutError):  # the parameters then have no intervals
            parameters = profiles(minimizer, best, names, level=level)
    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    r2 = 1 - squares / total if total > EXACT * len(y) else nan
    values = {name: parameter.value for name, parameter in parameters.items()}

    def curve(s: FloatArray, d: FloatArray | None = None) -> FloatArray:
        ln = _residual(text, {"S": s, "D": d}, np.zeros(len(s)))(values)
        return np.where(np.abs(ln) < _OUTSIDE, np.exp(ln), nan)

    return FormFit(text, parameters, aicc(squares, len(y), len(names) + 1), r2, curve)


def _residual(text: str, variables: Mapping[str, FloatArray | None], ln_y: FloatArray) -> Residual:
    """Return a function that takes the values of the parameters and returns the residuals ln(form) - ln y, (m,).

    The function raises TimeoutError after `_MAX_EVALUATIONS` calls.

    Args:
        text: the expression.
        variables: the values of S and D, (m,) each; None if unknown.
        ln_y: logarithms of the measured values, (m,).

    """
    from asteval import Interpreter

    evaluations = count(1)
    interpreter = Interpreter(minimal=True, use_numpy=True)  # asteval also refuses powers with huge exponents
    interpreter.symtable.update(variables)
    expression = interpreter.parse(text.strip())

    def residual(parameters: Mapping[str, float]) -> FloatArray:
        if next(evaluations) > _MAX_EVALUATIONS:
            raise TimeoutError
        interpreter.symtable.update(parameters)
        with np.errstate(all="ignore"):
            form = interpreter.run(expression, with_raise=False)  # None after an error
            interpreter.error.clear()
            if np.iscomplexobj(form):
                form = np.where(np.imag(form) == 0, np.real(form), nan)
            residuals = np.log(np.asarray(form, dtype=np.float64)) - ln_y
        return np.asarray(np.nan_to_num(residuals, nan=_OUTSIDE, posinf=_OUTSIDE, neginf=-_OUTSIDE))

    return residual


def _starts(residual: Residual, names: list[str]) -> list[Any]:
    """Return starting points as lmfit's Parameters: the best `_STARTS` of many points between 1e-3 and 1e4."""
    import lmfit

    shares = scipy.stats.qmc.Sobol(len(names), scramble=False).fast_forward(1).random(_POINTS - 1)
    points = 10 ** (_DECADES[0] + shares * (_DECADES[1] - _DECADES[0]))
    starts = [dict(zip(names, point.tolist(), strict=True)) for point in points]
    starts.sort(key=lambda start: float(f"{np.sum(residual(start) ** 2):.6g}"))
    best_starts = []
    for start in starts[:_STARTS]:
        parameters = lmfit.Parameters()
        for name, value in start.items():
            parameters.add(name, value)
        best_starts.append(parameters)
    return best_starts


def profiles(
    minimizer: Any, best: Any, names: Sequence[str], *, level: float = 0.95, most: int = 200
) -> dict[str, Parameter]:
    """Return the parameters of lmfit's best fit with their profile intervals.

    The ends of all intervals are NaN if lmfit cannot compute the profiles.

    Args:
        minimizer: lmfit's Minimizer of the best fit.
        best: lmfit's result of the best fit.
        names: the names of the parameters that get an interval.
        level: the level of the intervals.
        most: the largest number of fits that may be made for one end of an interval.

    """
    from lmfit.confidence import conf_interval
    from lmfit.minimizer import MinimizerException

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # lmfit warns about profiles without an end. Such ends are infinite here
            ends = conf_interval(minimizer, best, p_names=list(names), sigmas=[level], maxiter=most)
    except (MinimizerException, ValueError, ArithmeticError, TypeError):
        return {name: Parameter(float(best.params[name].value)) for name in names}
    parameters = {}
    for name in names:
        (_, low), _, (_, high) = ends[name]
        parameters[name] = Parameter(float(best.params[name].value), float(low), float(high))
    return parameters


def _names(text: str) -> list[str]:
    """Return the names of variables and parameters of an expression, in the order in which they first appear.

    Raises BadInput if the expression contains anything except arithmetic and the allowed functions.
    """
    if len(text) > _LONGEST:
        raise _refused(text, f"it has {len(text)} characters; a form has at most {_LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, "it is not an expression such as E+A*S**-alpha") from error
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
                raise _refused(text, f"it may only call {listed(_FUNCTIONS)}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) < 1e300:
            continue
        elif not isinstance(node, _ARITHMETIC):
            raise _refused(text, "it may only contain numbers, names, + - * / ** and functions")
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS:
            names.append((node.lineno, node.col_offset, node.id))
    return list(dict.fromkeys(name for _, _, name in sorted(names)))


def _refused(text: str, why: str) -> BadInput:
    return BadInput(f"form={text[:80]}: {why}")
