"""Fit user-defined forms of law: expressions in S and D (training tokens).

lmfit fits a form from several starting points. Fits minimise the sum of squared residuals of ln y. Errors are treated
as independent and equally large at all sizes. An interval of a parameter is a profile interval: the values at which an
F test of the sum of squares, with this parameter fixed, does not reject. Intervals include the scatter of the models,
but not the error over documents.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from math import inf, log, nan, pi
from typing import Any

import numpy as np
import scipy
from asteval import Interpreter, get_ast_names

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import listed
from rbptrack.ranks import FloatArray
from rbptrack.stats.estimate import LEVEL
from rbptrack.stats.laws import fit
from rbptrack.stats.rounding import first_smallest

EXACT = 1e-24
"""If the mean squared residual of ln y is below this, the fit counts as exact, and no profile is computed.

Rounding errors of ln y are about 1e-15. Their squares are far below this limit on every processor.
"""

_VARIABLES = ("S", "D")
_FUNCTIONS = ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "maximum", "minimum", "sqrt", "tanh")
_NODES = ("binop", "call", "constant", "name", "unaryop")  # what asteval may evaluate
_MAX_CHARACTERS = 500  # of a user-defined form
# The evaluations of a fit with its profiles; they take about 10 s. A limit in seconds would depend on the machine.
_MAX_EVALUATIONS = 200_000
_POINTS = 1024  # the number of points that the starting points are chosen from
_STARTS = 6  # the number of starting points of a fit
_DECADES = (-3.0, 16.0)  # log10 of the smallest and the largest starting value of a parameter, for example of a size
_EXPONENT_DECADES = (-2.0, 0.5)  # the same for the absolute value of a parameter in an exponent
_MAX_FITS = 200  # for one end of a profile interval
_NOT_POSITIVE = 1e3  # the residual that stands for a value of a form that is not above 0

Form = Callable[[Mapping[str, Any]], FloatArray]
"""A function of the values of the parameters, which are numbers or arrays (points, 1).

It returns y at each size, (m,) or (points, m). y is NaN where the form has no real and finite value.
"""


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
        parameters: the parameters by name, in the order of the expression.
        residuals: ln(form) - ln y, (m,).
        ln_y: the logarithms of the values, (m,).

    """

    parameters: dict[str, Parameter]
    residuals: FloatArray
    ln_y: FloatArray

    @property
    def squares(self) -> float:
        """The sum of squared residuals of ln y."""
        return float((self.residuals**2).sum())

    @property
    def largest_deviation(self) -> float:
        """The largest abs(measured / form - 1)."""
        return float(np.abs(np.expm1(-self.residuals)).max())

    @property
    def aicc(self) -> float:
        """Akaike's criterion corrected for small samples, without its constant terms.

        It is infinite if there are too few points.
        """
        return aicc(self.squares, len(self.ln_y), len(self.parameters) + 1)

    @property
    def r2(self) -> float:
        """The share of the variance of ln y that the form explains; NaN if y is constant."""
        total = float(((self.ln_y - self.ln_y.mean()) ** 2).sum())
        return 1 - self.squares / total if total > EXACT * len(self.ln_y) else nan


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
    residuals = fit(s, y).residuals
    return aicc(float(residuals @ residuals), len(s), 3)


def check_form(text: str) -> list[str]:
    """Return the names of the parameters of a form, in the order in which they appear.

    Args:
        text: an expression in S and D (training tokens). Every other name, except pi, is a parameter.

    Raises:
        BadInput: the text is not such an expression, or it has no parameter or no variable.

    """
    if len(text) > _MAX_CHARACTERS:
        raise _refused(text, f"it has {len(text)} characters; a form has at most {_MAX_CHARACTERS}")
    try:
        names = get_ast_names(_parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _refused(text, "it is not an expression such as E+A*S**-alpha") from error
    parameters = [name for name in dict.fromkeys(names) if name not in (*_VARIABLES, *_FUNCTIONS, "pi")]
    if not parameters:
        raise _refused(text, "it has no parameter")
    if not set(names) & set(_VARIABLES):
        raise _refused(text, "it has neither S nor D")
    value = None
    with suppress(Exception), np.errstate(all="ignore"):  # asteval raises many types, or returns None
        interpreter = _make_interpreter(dict.fromkeys((*_VARIABLES, *parameters), np.ones(1)))
        value = interpreter.run(_parse(text), with_raise=False)
    if not isinstance(value, np.ndarray):
        raise _refused(text, f"it may only contain numbers, names, + - * / ** and {listed(_FUNCTIONS)}")
    return parameters


def fit_form(
    text: str, s: FloatArray, y: FloatArray, d: FloatArray | None = None, *, with_intervals: bool = True
) -> FormFit:
    """Fit a user-defined form of law by least squares of ln y.

    Args:
        text: an expression in S and D (training tokens). Every other name, except pi, is a parameter. A form has at
            most m - 2 parameters.
        s: sizes S, (m,).
        y: positive values, (m,).
        d: training tokens D, (m,); None if they are unknown.
        with_intervals: whether to compute the profile intervals, which takes most of the time.

    Raises:
        BadInput: the text is not such an expression, it has too many parameters for these sizes, or it needs D and D is
            unknown. Also raised if no fit converges within a fixed number of evaluations (about 10 seconds).

    """
    names = check_form(text)
    if "D" in get_ast_names(_parse(text)) and (d is None or not np.isfinite(d).all()):
        raise _refused(text, "D, the training tokens, is not known for every model")
    if len(y) < len(names) + 2:
        raise _refused(text, f"{len(names)} parameters need at least {len(names) + 2} sizes; there are {len(y)}")
    import lmfit  # imported only if a form is fitted, because the import takes 0.5 s

    ln_y = np.log(y)
    form = _make_form(text, {"S": np.asarray(s, dtype=np.float64), "D": d})
    try:
        fits = []
        for start in _starts(form, text, names, y):
            minimizer = lmfit.Minimizer(lambda p: _residuals(form(p.valuesdict()), ln_y), start)
            with np.errstate(all="ignore"):
                fits.append((minimizer, minimizer.minimize(method="leastsq")))
        minimizer, best = fits[first_smallest([max(float(result.chisqr), EXACT) for _, result in fits])]
        if np.abs(best.residual).max() >= _NOT_POSITIVE:
            raise _refused(text, "the fit does not converge from any starting point")
    except TimeoutError as error:
        raise _refused(text, f"the fit takes more than {_MAX_EVALUATIONS:,} evaluations of the form") from error
    parameters = {name: Parameter(best.params[name].value) for name in names}
    if with_intervals and best.chisqr > EXACT * len(y):
        with suppress(TimeoutError):  # the parameters then have no intervals
            parameters = _profiles(minimizer, best, names)
    return FormFit(parameters, np.asarray(best.residual), ln_y)


def _make_form(text: str, variables: Mapping[str, FloatArray | None]) -> Form:
    """Return the function that computes a form. It raises TimeoutError after `_MAX_EVALUATIONS` calls.

    Args:
        text: the expression.
        variables: the values of S and D, (m,) each; None if unknown.

    """
    interpreter = _make_interpreter(variables)
    expression = _parse(text)
    evaluations = count(1)

    def form(parameters: Mapping[str, Any]) -> FloatArray:
        if next(evaluations) > _MAX_EVALUATIONS:
            raise TimeoutError
        interpreter.symtable.update(parameters)
        with np.errstate(all="ignore"):
            y = interpreter.run(expression, with_raise=False)  # None after an error
            interpreter.error.clear()
            if np.iscomplexobj(y):
                y = np.where(np.imag(y) == 0, np.real(y), nan)
            y = np.asarray(y, dtype=np.float64)
        return np.where(np.isfinite(y), y, nan)

    return form


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _make_interpreter(variables: Mapping[str, Any]) -> Interpreter:
    """Return an interpreter that knows variables, pi, arithmetic and the functions of forms, and nothing else."""
    functions = {name: _without_output(getattr(np, name)) for name in _FUNCTIONS}
    interpreter = Interpreter(symtable={"pi": pi, **functions, **variables}, minimal=True)
    for node in set(interpreter.node_handlers).difference(_NODES):
        interpreter.remove_nodehandler(node)  # asteval also refuses powers with huge exponents
    return interpreter


def _without_output(function: np.ufunc) -> Callable[..., Any]:
    """Return a function of numpy without its parameter for the output, which would overwrite an argument."""
    return lambda *values: function(*values, out=None)


def _residuals(y: FloatArray, ln_y: FloatArray) -> FloatArray:
    """Return the residuals of a form, ln(form) - ln(measured). They are `_NOT_POSITIVE` where the form is not positive.

    Args:
        y: the values of the form, (..., m).
        ln_y: logarithms of the measured values, (m,).

    """
    with np.errstate(all="ignore"):
        return np.asarray(np.nan_to_num(np.log(y) - ln_y, nan=_NOT_POSITIVE, neginf=-_NOT_POSITIVE))


def _starts(form: Form, text: str, names: Sequence[str], y: FloatArray) -> list[Any]:
    """Return starting points as lmfit's Parameters: the best `_STARTS` of many points.

    The points cover the possible values of the parameters that the form is not linear in. The other parameters follow
    from them by linear least squares.

    Args:
        form: the function that computes the form.
        text: the expression.
        names: the parameters.
        y: the measured values, (m,).

    """
    import lmfit

    expression = _parse(text)
    linear: list[str] = []
    for name in names:
        if _is_linear(expression, {*linear, name}):
            linear.append(name)
    nonlinear = [name for name in names if name not in linear]
    powers = [node for node in ast.walk(expression) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)]
    in_exponent = set().union(*(get_ast_names(power.right) for power in powers))
    shares = np.zeros((1, 0))
    if nonlinear:
        shares = scipy.stats.qmc.Sobol(len(nonlinear), scramble=False).fast_forward(1).random(_POINTS - 1)
    points: dict[str, FloatArray] = {}
    for name, share in zip(nonlinear, shares.T[:, :, None], strict=True):
        if name in in_exponent:  # half of the values are negative
            low, high = _EXPONENT_DECADES
            points[name] = np.sign(share - 0.5) * 10 ** (low + np.abs(2 * share - 1) * (high - low))
        else:
            low, high = _DECADES
            points[name] = 10 ** (low + share * (high - low))
    points |= _solve_linear(form, points, linear, y, len(shares))
    squares = (_residuals(form(points), np.log(y)) ** 2).sum(axis=-1)
    # Rounded sums give the same order on every processor.
    rounded = [float(f"{value:.6g}") for value in np.broadcast_to(squares, len(shares))]
    starts = []
    for i in np.argsort(rounded, kind="stable")[:_STARTS]:
        parameters = lmfit.Parameters()
        for name in names:
            parameters.add(name, float(points[name][i, 0]))
        starts.append(parameters)
    return starts


def _solve_linear(
    form: Form, points: Mapping[str, FloatArray], linear: Sequence[str], y: FloatArray, count: int
) -> dict[str, FloatArray]:
    """Return the values of the parameters that a form is linear in, with the least squares of form / y - 1.

    Args:
        form: the function that computes the form.
        points: values of the other parameters by name, (points, 1) each.
        linear: the parameters that the form is linear in.
        y: the measured values, (m,).
        count: the number of points.

    Returns:
        The values by name, (points, 1) each.

    """
    if not linear:
        return {}
    zeros = dict.fromkeys(linear, 0.0)
    constant = form({**points, **zeros})
    columns = [form({**points, **zeros, name: 1.0}) - constant for name in linear]
    design = np.stack([np.broadcast_to(column / y, (count, len(y))) for column in columns], axis=-1)
    target = np.broadcast_to(1 - constant / y, (count, len(y)))
    is_finite = np.asarray(np.isfinite(design).all(axis=(1, 2)) & np.isfinite(target).all(axis=1))
    design = np.where(is_finite[:, None, None], design, 0.0)
    norm = np.sqrt((design**2).sum(axis=1, keepdims=True))  # columns may differ by many orders of magnitude
    norm[norm == 0] = 1.0
    solution = np.linalg.pinv(design / norm) @ np.where(is_finite[:, None], target, 0.0)[..., None]
    return {name: solution[:, i] / norm[:, :, i] for i, name in enumerate(linear)}


def _is_linear(node: ast.AST, names: set[str]) -> bool:
    """Return whether an expression is a linear function of several names taken together, apart from a constant."""
    if names.isdisjoint(get_ast_names(node)) or isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_linear(node.operand, names)
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        return False
    if not (_is_linear(node.left, names) and _is_linear(node.right, names)):
        return False
    left_is_constant = names.isdisjoint(get_ast_names(node.left))
    right_is_constant = names.isdisjoint(get_ast_names(node.right))
    if isinstance(node.op, ast.Mult):
        return left_is_constant or right_is_constant
    return right_is_constant or not isinstance(node.op, ast.Div)


def _profiles(minimizer: Any, best: Any, names: Sequence[str]) -> dict[str, Parameter]:
    """Return the parameters of lmfit's best fit with their profile intervals.

    The ends of all intervals are NaN if lmfit cannot compute the profiles.

    Args:
        minimizer: lmfit's Minimizer of the best fit.
        best: lmfit's result of the best fit.
        names: the names of the parameters that get an interval.

    """
    from lmfit.confidence import conf_interval
    from lmfit.minimizer import MinimizerException

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # lmfit warns about profiles without an end. Such ends are infinite here
            ends = conf_interval(minimizer, best, p_names=list(names), sigmas=[LEVEL], maxiter=_MAX_FITS)
    except (MinimizerException, ValueError, ArithmeticError, TypeError):
        return {name: Parameter(float(best.params[name].value)) for name in names}
    parameters = {}
    for name in names:
        (_, low), _, (_, high) = ends[name]
        parameters[name] = Parameter(float(best.params[name].value), float(low), float(high))
    return parameters


def _refused(text: str, why: str) -> BadInput:
    return BadInput(f"form={text[:80]}: {why}")
