"""Laws of other forms than A S^-alpha: E + A S^-alpha, and user-defined expressions in S and D (training tokens).

lmfit fits every form from several starts. It minimises the residuals of ln y without weights: errors count as
independent and equally large at all sizes. Intervals are profiles (an F test of the sum of squares with one parameter
fixed). They cover the scatter of models only, not the error over documents.
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
from rbptrack.base.words import listed
from rbptrack.ranks import FloatArray
from rbptrack.stats.laws import FLOOR, fit
from rbptrack.stats.rounding import first_smallest

MIN_SIZES = 6
"""The fewest sizes for E + A S^-alpha. With fewer, the data cannot separate its three parameters from the scatter."""

EXACT = 1e-24
"""Below this mean square of ln y, every point counts as on the curve, and no profile is computed.

Rounding errors of ln y are about 1e-15. Their squares are far below this limit on every processor.
"""


_VARIABLES = ("S", "D")
_FUNCTIONS = ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "maximum", "minimum", "sqrt", "tanh")
_ARITHMETIC = (
    ast.Expression, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd,
)  # fmt: skip
_LONGEST = 500  # characters
_MAX_EVALUATIONS = 200_000  # of a fit with its profiles, about 10 s: a limit in seconds would depend on the machine
_POINTS = 256  # that starts are chosen from
_STARTS = 6
_DECADES = (-3.0, 4.0)  # of a parameter's starting values
_OUTSIDE = 1e3  # the residual where a form is not above 0

_STEP = 1.15  # from one E to the next in the search above the smallest value
_FLOORS = 4  # E that a fit starts from
_ABOVE = 1e-3  # the least ln y - ln E: a nearer point says nothing about the line above E
_TINY = 1e-300

Residual = Callable[[Mapping[str, float]], FloatArray]


@dataclass(frozen=True)
class Parameter:
    """A parameter at the least squares with its profile interval.

    An end is infinite if the profile has no such end. It is NaN if no profile can be computed.
    """

    value: float
    low: float = nan
    high: float = nan


@dataclass(frozen=True)
class FormFit:
    """A form that was fitted by least squares of ln y.

    Attributes:
        form: the expression.
        parameters: the parameters by name, in the order of the expression.
        aicc: Akaike's criterion for small samples without constants; infinite if the points are too few.
        r2: share of the variance of ln y that the form explains; NaN if y is constant.
        curve: the form's y at sizes S, (n,), and training tokens D, (n,) or None; NaN where it is not positive.

    """

    form: str
    parameters: dict[str, Parameter]
    aicc: float
    r2: float
    curve: Callable[[FloatArray, FloatArray | None], FloatArray] = field(repr=False, compare=False)


def aicc(squares: float, points: int, free: int) -> float:
    """Return AICc of a least-squares fit (Hurvich and Tsai, Biometrika 76, 1989). `free` includes the variance."""
    if points <= free + 1:
        return inf
    deviance = points * log(max(squares / points, EXACT))
    return deviance + 2 * free + 2 * free * (free + 1) / (points - free - 1)


def power_law_aicc(s: FloatArray, y: FloatArray) -> float:
    """Return AICc of the power law A S^-alpha through the points (s, y)."""
    law = fit(s, y)
    residual = np.log(law.y) - law.ln_a.value + law.alpha.value * np.log(law.s)
    return aicc(float(residual @ residual), len(s), 3)


def least_squares(residual: Callable[[Any], FloatArray], starts: Iterable[Any]) -> tuple[Any, list[Any]]:
    """Fit by lmfit from several starts.

    Args:
        residual: function from lmfit's Parameters to residuals, (n,).
        starts: starting values, each as lmfit's Parameters.

    Returns:
        The minimizer of the best fit, and the results from all starts, sorted with the best first.

    """
    import lmfit  # .5 s with what it imports: only if a form is fitted

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
        s: sizes S, (m,). m must be at least 4; the interval is only meaningful with at least `MIN_SIZES` sizes.
        y: positive values, (m,).
        level: level of E's interval.
        ends: whether to compute E's interval.

    Raises:
        BadInput: the best alpha is below 0. Values then rise with size, and E would be their limit at S = 0.

    """
    x = np.log(s) - np.log(s).mean()
    ln_y = np.log(y)
    rounding = EXACT * len(y)
    straight = _line(x, ln_y)
    least = _squares(straight, x, ln_y, 0.0)
    e, line = 0.0, straight
    *_, best = _above_floor(x, ln_y, _likely_floors(x, ln_y), held=False)
    if best is not None and best.chisqr < least - rounding:
        least = float(best.chisqr)
        e = float(best.params["E"].value)
        line = np.array([best.params["ln_a"].value, -best.params["alpha"].value])
    if line[1] * np.ptp(x) > sqrt(EXACT):
        raise BadInput(f"{FLOOR} is fitted where values fall with size")
    low = high = nan
    if ends and least > rounding:
        limit = least * (1 + float(scipy.special.fdtri(1, len(y) - 3, level)) / (len(y) - 3))

        def beyond(floor: float) -> float:
            """How far the least squares with this E exceed the limit of the interval."""
            if floor <= 0:
                return _squares(straight, x, ln_y, 0.0) - limit
            *_, held = _above_floor(x, ln_y, [(floor, line), *_with_lines(x, ln_y, [floor])], held=True)
            return float(held.chisqr) - limit

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
    """Starts of a fit with a floor: E, and the line of ln A and -alpha; those with the smallest squares."""
    smallest = float(np.exp(ln_y.min()))
    # No E above the geometric mean is best: a constant, which is E = 0 with alpha = 0, is nearer to the points.
    steps = np.arange(2 + int((ln_y.mean() - ln_y.min()) / log(_STEP)))
    floors = smallest * np.concatenate([[0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97], _STEP**steps])
    starts = _with_lines(x, ln_y, floors)
    starts.sort(key=lambda start: float(f"{_squares(start[1], x, ln_y, start[0]):.6g}"))  # not by the last bits
    return [*starts[:_FLOORS], (0.3 * smallest, _line(x, ln_y))]


def _with_lines(x: FloatArray, ln_y: FloatArray, floors: Iterable[float]) -> list[tuple[float, FloatArray]]:
    """Each E with the line of ln(y - E) through the points above it; E with fewer than 2 such points are left out."""
    starts = []
    for floor in floors:
        over = ln_y - log(floor)
        above = over > _ABOVE
        if above.sum() > 1:
            starts.append((float(floor), _line(x[above], log(floor) + np.log(np.expm1(over[above])))))
    return starts


def _above_floor(
    x: FloatArray, ln_y: FloatArray, starts: Sequence[tuple[float, FloatArray]], *, held: bool
) -> tuple[Any, Any]:
    """The minimizer and the result of the best fit of E + A S^-alpha; held: E stays as it is."""
    import lmfit

    def residual(parameters: Any) -> FloatArray:
        line = parameters["ln_a"].value - parameters["alpha"].value * x
        return np.asarray(np.logaddexp(log(max(parameters["E"].value, _TINY)), line) - ln_y)

    from_starts = []
    for floor, line in starts:
        parameters = lmfit.Parameters()
        parameters.add("E", value=floor, min=0, vary=not held)
        parameters.add("ln_a", value=float(line[0]))
        parameters.add("alpha", value=-float(line[1]))
        from_starts.append(parameters)
    minimizer, results = least_squares(residual, from_starts)
    return minimizer, results[0]


def _squares(line: FloatArray, x: FloatArray, ln_y: FloatArray, floor: float) -> float:
    """Sum of squared residuals of ln y; line: ln A and -alpha."""
    off = np.logaddexp(log(max(floor, _TINY)), line[0] + line[1] * x) - ln_y
    return float(off @ off)


def _line(x: FloatArray, y: FloatArray) -> FloatArray:
    """Intercept and slope of least squares, (2,)."""
    centred = x - x.mean()
    slope = (centred @ y) / (centred @ centred)
    return np.array([y.mean() - slope * x.mean(), slope])


def _profile(beyond: Callable[[float], float], e: float, *, step: float, most: float) -> tuple[float, float]:
    """Find where a profile that is below 0 at E crosses 0 on each side.

    The lower end is at least 0. The upper end is infinite if the profile does not cross 0 below `most`.
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
    """Return the parameters of an expression in S and D, in their order. Raises BadInput if the text is not a form."""
    names = _names(text)
    parameters = [name for name in names if name not in (*_VARIABLES, "pi")]
    if not parameters:
        raise _refused(text, "it has no parameter")
    if not set(names) & set(_VARIABLES):
        raise _refused(text, "it has neither S nor D")
    return parameters


def fit_form(text: str, s: FloatArray, y: FloatArray, d: FloatArray | None = None, *, level: float = 0.95) -> FormFit:
    """Fit a user-defined expression with at most m - 2 parameters.

    Args:
        text: arithmetic in S and D (training tokens). Every other name is a parameter. The fit starts from values over
            seven decades of each parameter.
        s: sizes S, (m,).
        y: positive values, (m,).
        d: training tokens D, (m,).
        level: level of the profile intervals.

    Raises:
        BadInput: the text is not such an expression, it has too many parameters for these sizes, it needs D and D is
            unknown, or no start converges within a fixed number of evaluations (about 10 seconds).

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
            raise _refused(text, "no start converges")
    except TimeoutError as error:
        raise _refused(text, f"the fit takes more than {_MAX_EVALUATIONS:,} evaluations of the form") from error
    squares = float(best.chisqr)
    parameters = {name: Parameter(best.params[name].value) for name in names}
    if squares > EXACT * len(y):
        with suppress(TimeoutError):  # after a timeout the parameters have no intervals
            parameters = profiles(minimizer, best, names, level=level)
    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    r2 = 1 - squares / total if total > EXACT * len(y) else nan
    values = {name: parameter.value for name, parameter in parameters.items()}

    def curve(s: FloatArray, d: FloatArray | None = None) -> FloatArray:
        ln = _residual(text, {"S": s, "D": d}, np.zeros(len(s)))(values)
        return np.where(np.abs(ln) < _OUTSIDE, np.exp(ln), nan)

    return FormFit(text, parameters, aicc(squares, len(y), len(names) + 1), r2, curve)


def _residual(text: str, variables: Mapping[str, FloatArray | None], ln_y: FloatArray) -> Residual:
    """The function from parameters to ln(form) - ln y, (m,), which raises TimeoutError after `_MAX_EVALUATIONS`."""
    from asteval import Interpreter

    evaluations = count(1)
    interpreter = Interpreter(minimal=True, use_numpy=True)  # it also refuses powers without end
    interpreter.symtable.update(variables)
    expression = interpreter.parse(text.strip())

    def residual(parameters: Mapping[str, float]) -> FloatArray:
        if next(evaluations) > _MAX_EVALUATIONS:
            raise TimeoutError
        interpreter.symtable.update(parameters)
        with np.errstate(all="ignore"):
            form = interpreter.run(expression, with_raise=False)  # None if it cannot be computed
            interpreter.error.clear()
            if np.iscomplexobj(form):
                form = np.where(np.imag(form) == 0, np.real(form), nan)
            off = np.log(np.asarray(form, dtype=np.float64)) - ln_y
        return np.asarray(np.nan_to_num(off, nan=_OUTSIDE, posinf=_OUTSIDE, neginf=-_OUTSIDE))

    return residual


def _starts(residual: Residual, names: list[str]) -> list[Any]:
    """Return starting values: the best of many points over seven decades of each parameter."""
    import lmfit

    shares = scipy.stats.qmc.Sobol(len(names), scramble=False).fast_forward(1).random(_POINTS - 1)
    points = 10 ** (_DECADES[0] + shares * (_DECADES[1] - _DECADES[0]))
    starts = [dict(zip(names, point.tolist(), strict=True)) for point in points]
    starts.sort(key=lambda start: float(f"{np.sum(residual(start) ** 2):.6g}"))
    chosen = []
    for start in starts[:_STARTS]:
        parameters = lmfit.Parameters()
        for name, value in start.items():
            parameters.add(name, value)
        chosen.append(parameters)
    return chosen


def profiles(
    minimizer: Any, best: Any, names: Sequence[str], *, level: float = 0.95, most: int = 200
) -> dict[str, Parameter]:
    """Return lmfit's best parameters with their profile intervals. Ends are NaN if lmfit finds no profile.

    Args:
        minimizer: lmfit's Minimizer.
        best: the result of its best fit.
        names: names of the parameters.
        level: level of the intervals.
        most: the largest number of fits for one end of an interval.

    """
    from lmfit.confidence import conf_interval
    from lmfit.minimizer import MinimizerException

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of profiles that do not end: their ends are infinite
            ends = conf_interval(minimizer, best, p_names=list(names), sigmas=[level], maxiter=most)
    except (MinimizerException, ValueError, ArithmeticError, TypeError):
        return {name: Parameter(float(best.params[name].value)) for name in names}
    parameters = {}
    for name in names:
        (_, low), _, (_, high) = ends[name]
        parameters[name] = Parameter(float(best.params[name].value), float(low), float(high))
    return parameters


def _names(text: str) -> list[str]:
    """Return the names in an expression, in their order.

    Raises BadInput if the expression holds anything but arithmetic and the allowed functions.
    """
    if len(text) > _LONGEST:
        raise _refused(text, f"at most {_LONGEST} characters are read")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, "it is not an expression such as E+A*S**-alpha") from error
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
                raise _refused(text, f"it may call {listed(_FUNCTIONS)}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and abs(node.value) < 1e300:
            continue
        elif not isinstance(node, _ARITHMETIC):
            raise _refused(text, "it may have numbers, names, + - * / ** and functions")
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS:
            names.append((node.lineno, node.col_offset, node.id))
    return list(dict.fromkeys(name for _, _, name in sorted(names)))


def _refused(text: str, why: str) -> BadInput:
    return BadInput(f"form={text[:80]}: {why}")
