"""A form of the user's own: an expression in S and D (training tokens), fitted by lmfit beside the power law.

Residuals are those of ln y, unweighted: errors count as independent and alike at all sizes. Intervals are profiles (an
F test of the sum of squares with a parameter fixed), so that they hold the scatter of models alone, not of documents.
"""

from __future__ import annotations

import ast
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import nan
from typing import Any

import numpy as np
from asteval import Interpreter
from lmfit import Minimizer, Parameters
from lmfit.confidence import conf_interval
from lmfit.minimizer import MinimizerException
from scipy.stats import qmc

from rbptrack.base.errors import BadInput
from rbptrack.base.words import listed
from rbptrack.ranks import FloatArray
from rbptrack.stats.floor import EXACT, MIN_SIZES, FormFit, Parameter, aicc, fit_floor
from rbptrack.stats.laws import FLOOR
from rbptrack.stats.rounding import first_smallest

_VARIABLES = ("S", "D")
_FUNCTIONS = ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "maximum", "minimum", "sqrt", "tanh")
_ARITHMETIC = (
    ast.Expression, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd,
)  # fmt: skip
_LONGEST = 500  # characters
_SECONDS = 10.0  # that a fit with its profiles may take
_POINTS = 256  # that starts are chosen from
_STARTS = 6
_DECADES = (-3.0, 4.0)  # of a parameter's starting values
_OUTSIDE = 1e3  # the residual where a form is not above 0

Residual = Callable[[Mapping[str, float]], FloatArray]


def check_form(text: str) -> list[str]:
    """The parameters of an expression in S and D, in their order; BadInput where it is none."""
    names = _names(text)
    parameters = [name for name in names if name not in (*_VARIABLES, "pi")]
    if not parameters:
        raise _refused(text, "it has no parameter")
    if not set(names) & set(_VARIABLES):
        raise _refused(text, "it has neither S nor D")
    return parameters


def fit_form(text: str, s: FloatArray, y: FloatArray, d: FloatArray | None = None, *, level: float = 0.95) -> FormFit:
    """Fit an expression of the user's own, with at most m - 2 parameters.

    Args:
        text: arithmetic in S and D (training tokens); every other name is a parameter. Starts lie over seven decades of
            each parameter.
        s: sizes S, (m,).
        y: positive values, (m,).
        d: training tokens D, (m,).
        level: of the profile intervals.

    Raises:
        BadInput: it is no such expression, has too many parameters for these sizes, needs a D that is not known, or no
            start converges within 10 seconds.

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
        minimizer, best = _least_squares(residual, names)
        if best is None:
            raise _refused(text, "no start converges")
    except TimeoutError as error:
        raise _refused(text, f"the fit takes more than {_SECONDS:.0f} s") from error
    squares = float(best.chisqr)
    parameters = {name: Parameter(best.params[name].value) for name in names}
    if squares > EXACT * len(y):
        with suppress(TimeoutError):  # no ends then
            parameters = profiles(minimizer, best, names, level=level)
    total = float(((ln_y - ln_y.mean()) ** 2).sum())
    r2 = 1 - squares / total if total > EXACT * len(y) else nan
    return FormFit(text, parameters, aicc(squares, len(y), len(names) + 1), r2)


def _residual(text: str, variables: Mapping[str, FloatArray | None], ln_y: FloatArray) -> Residual:
    """The function from parameters to ln(form) - ln y, (m,), which raises TimeoutError when its 10 s are over."""
    deadline = time.monotonic() + _SECONDS
    interpreter = Interpreter(minimal=True, use_numpy=True)  # it also refuses powers without end
    interpreter.symtable.update(variables)
    expression = interpreter.parse(text.strip())

    def residual(parameters: Mapping[str, float]) -> FloatArray:
        if time.monotonic() > deadline:
            raise TimeoutError
        interpreter.symtable.update(parameters)
        with np.errstate(all="ignore"):
            form = interpreter.run(expression, with_raise=False)  # None where it cannot be computed
            interpreter.error.clear()
            if np.iscomplexobj(form):
                form = np.where(np.imag(form) == 0, np.real(form), nan)
            off = np.log(np.asarray(form, dtype=np.float64)) - ln_y
        return np.asarray(np.nan_to_num(off, nan=_OUTSIDE, posinf=_OUTSIDE, neginf=-_OUTSIDE))

    return residual


def _least_squares(residual: Residual, names: list[str]) -> tuple[Any, Any]:
    """The minimizer and the result of the best of several starts; None where none leads to a curve above 0."""
    shares = qmc.Sobol(len(names), scramble=False).fast_forward(1).random(_POINTS - 1)
    points = 10 ** (_DECADES[0] + shares * (_DECADES[1] - _DECADES[0]))
    starts = [dict(zip(names, point.tolist(), strict=True)) for point in points]
    starts.sort(key=lambda start: float(f"{np.sum(residual(start) ** 2):.6g}"))
    found = []
    for start in starts[:_STARTS]:
        parameters = Parameters()
        for name, value in start.items():
            parameters.add(name, value)
        from_start = Minimizer(lambda p: residual(p.valuesdict()), parameters)
        result = from_start.minimize(method="leastsq")
        inside = np.abs(result.residual).max() < _OUTSIDE
        if inside:
            found.append((from_start, result))
    if not found:
        return None, None
    return found[first_smallest([max(float(result.chisqr), EXACT) for _, result in found])]


def profiles(
    minimizer: Any, best: Any, names: Sequence[str], *, level: float = 0.95, most: int = 200
) -> dict[str, Parameter]:
    """Parameters at lmfit's least squares with their profile intervals; ends are NaN where lmfit finds no profile.

    Args:
        minimizer: lmfit's.
        best: its result.
        names: of the parameters.
        level: of the intervals.
        most: fits for an end.

    """
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
    """The names in an expression, in their order; BadInput where it holds anything but arithmetic and functions."""
    if len(text) > _LONGEST:
        raise _refused(text, f"at most {_LONGEST} characters are read")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, "it is no expression such as E+A*S**-alpha") from error
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
