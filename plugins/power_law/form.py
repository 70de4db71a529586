"""A law of your own: any expression in S (and D, training tokens), fitted by lmfit beside the power law.

    python -m rbptrack analyze power_law 'analyzer.form="E + A*S**-alpha"' '+analyzer.parameters={E: {min: 0}}'

Errors are those of ln y, independent and alike at all sizes, as least squares on logarithms takes them.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Annotated, Any, Self

import numpy as np
from asteval import Interpreter
from lmfit import Minimizer, Parameters, conf_interval
from lmfit.minimizer import MinimizerException, MinimizerResult
from lmfit.models import ExpressionModel
from scipy.stats import qmc

from rbptrack.analysis import BadInput
from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.laws import FamilyLaw
from rbptrack.analysis.phrases import with_verdict
from rbptrack.analysis.rows import Column, OfMetric
from rbptrack.base.words import listed
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import held_out_error

_FUNCTIONS = ("abs", "exp", "expm1", "log", "log10", "log1p", "log2", "maximum", "minimum", "sqrt", "tanh")
_KEYS = ("value", "min", "max", "vary")
_LONGEST = 500  # characters
_POINTS = 256  # that starts are chosen from
_STARTS = 8
_DECADES = (-3.0, 4.0)  # of a parameter without bounds
_OUTSIDE = 1e3  # residual where the form is not above 0
_EXACT = 1e-20  # mean square of ln y: all points are on the curve
_DECISIVE = 2.0  # difference in AICc from which a form is preferred


@dataclass(frozen=True)
class Form:
    """An expression in S and D with free parameters.

    Attributes:
        text: as it was given.
        parameters: of each parameter a starting value, or any of `value`, `min`, `max` and `vary`.

    Raises:
        BadInput: the text is no such expression, has no free parameter, or an option is for none of them.

    """

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        initial = self.initial()
        if unknown := sorted(set(map(str, self.parameters)) - set(initial)):
            names = listed(sorted(initial)) or "none"
            raise BadInput(f"analyzer.parameters: {', '.join(unknown)} is not in the form; its parameters: {names}")
        if not any(parameter.vary for parameter in initial.values()):
            raise self._refused("it has no free parameter")

    def _refused(self, why: str) -> BadInput:
        return BadInput(f"analyzer.form={self.text[:80]!r}: {why}")

    @property
    def variables(self) -> list[str]:
        """Which of S and D the expression has."""
        return list(self.model().independent_vars)

    def model(self) -> ExpressionModel:
        """Make lmfit's model, whose interpreter knows arithmetic and nothing else: no file, no attribute, no statement.

        Raises:
            BadInput: the text is more than arithmetic, or has neither S nor D.

        """
        if len(self.text) > _LONGEST:
            raise self._refused(f"at most {_LONGEST} characters are read")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
            checked = ast.unparse(self._checked(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._refused("it is not an expression; write such as E + A*S**-alpha") from None
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {*_FUNCTIONS, "pi"}
        variables = [name for name in ("S", "D") if name in names]
        if not variables:
            raise self._refused("it has neither S (size) nor D (training tokens)")
        model = ExpressionModel(checked, independent_vars=variables)
        if taken := sorted(names - {*variables, *model.param_names}):
            raise self._refused(f"{taken[0]} is a name of lmfit's own; give the parameter another name")
        functions = {name: getattr(np, name) for name in _FUNCTIONS} | {"pi": np.pi}
        model.asteval = Interpreter(symtable=functions, use_numpy=False, minimal=True)
        return model

    def _checked(self, node: ast.expr) -> ast.expr:
        """Refuse everything but arithmetic; whole numbers become floats, whose powers overflow instead of growing."""
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return ast.Constant(float(value))
            case ast.Name(id=name) if not name.startswith("_"):
                return node
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
                return ast.UnaryOp(op, self._checked(operand))
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow() as op, left=left, right=right):
                return ast.BinOp(self._checked(left), op, self._checked(right))
            case ast.BinOp(op=ast.BitXor()):
                raise self._refused("^ is no power; write **")
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                return ast.Call(ast.Name(name), [self._checked(argument) for argument in arguments], [])
        raise self._refused(f"only + - * / **, numbers, names and {', '.join(_FUNCTIONS)} are read")

    def initial(self) -> Parameters:
        """Return the parameters with the user's settings; NaN where no starting value was given."""
        parameters = Parameters()
        for name in self.model().param_names:
            given = self.parameters.get(name, {})
            options = dict(given) if isinstance(given, Mapping) else {"value": given}
            vary = options.pop("vary", True)
            whole = all(isinstance(number, int | float) and number == number for number in options.values())
            if set(options) - set(_KEYS) or not whole or not isinstance(vary, bool):
                raise BadInput(f"analyzer.parameters: {name} takes numbers {', '.join(_KEYS[:3])} and vary=false")
            low = float(options.get("min", -inf))
            high = float(options.get("max", inf))
            value = float(options.get("value", nan))
            if low >= high or not (np.isnan(value) or low <= value <= high):
                raise BadInput(f"analyzer.parameters: {name} needs min < max, and its value between them")
            if not vary and np.isnan(value):
                raise BadInput(f"analyzer.parameters: {name} is fixed, so it needs a value")
            parameters.add(name, value=value, min=low, max=high, vary=vary)
        return parameters


@dataclass(frozen=True)
class Curve:
    """A form at its least squares in ln y.

    Attributes:
        model: lmfit's.
        result: of the minimiser.
        minimizer: to profile with.
        points: the number of sizes m.

    """

    model: ExpressionModel
    result: MinimizerResult
    minimizer: Minimizer
    points: int

    @property
    def aicc(self) -> float:
        """Akaike's criterion for small samples, scatter counted; infinite where points are too few for it."""
        return aicc(float(self.result.chisqr), self.points, int(self.result.nvarys) + 1)

    def predict(self, variables: Mapping[str, FloatArray]) -> FloatArray:
        """Return the form's y at S and D."""
        return _evaluated(self.model, self.result.params, variables)

    def intervals(self, level: float) -> tuple[dict[str, Interval], str]:
        """Return profile intervals of the free parameters; and why some have none, empty where all have.

        Source: lmfit's `conf_interval`, an F test of the sum of squares with a parameter fixed.
        """
        if self.result.chisqr <= _EXACT * self.points:
            return {}, "every point is on the curve"
        if self.result.nvarys < 2:
            return {}, "a profile needs two free parameters"
        if not self.result.errorbars:
            return {}, "the points do not tell the parameters apart, or one is at its bound"
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # of ends that lie beyond a bound: they are infinite, and said below
                profiles = conf_interval(self.minimizer, self.result, sigmas=[level])
        except (MinimizerException, ValueError, ArithmeticError) as error:
            return {}, f"lmfit finds no profile: {str(error).strip().splitlines()[0]}"
        intervals = {
            name: Interval(*(float(end) for end in (best, low, high)))
            for name, ((_, low), (_, best), (_, high)) in profiles.items()
        }
        bounded = {name: number for name, number in intervals.items() if isfinite(number.low) and isfinite(number.high)}
        unbounded = sorted(set(intervals) - set(bounded))
        return bounded, f"the profile of {listed(unbounded)} does not end" if unbounded else ""


def aicc(squares: float, points: int, free: int) -> float:
    """Return AICc of least squares with unknown variance, constants left out; `free` counts the variance.

    Source: Hurvich and Tsai, Biometrika 76, 1989.
    """
    if points <= free + 1:
        return inf
    deviance = points * float(np.log(max(squares / points, _EXACT)))
    return deviance + 2 * free + 2 * free * (free + 1) / (points - free - 1)


def fit_form(form: Form, variables: Mapping[str, FloatArray], y: FloatArray) -> Curve:
    """Fit a form by least squares in ln y, from the best of many starts.

    Source: lmfit's `leastsq` (Levenberg and Marquardt); starts on Sobol's points, over seven decades of each parameter
    that has neither bounds nor a starting value.

    Args:
        form: what to fit.
        variables: S and D of each size, (m,), as many as the form has.
        y: positive values, (m,).

    Raises:
        BadInput: as many free parameters as sizes, or no start converges.

    """
    model = form.model()
    logs = np.log(y)
    parameters = form.initial()
    free = [name for name, parameter in parameters.items() if parameter.vary]
    if len(free) >= len(y):
        raise BadInput(f"{len(free)} free parameters need more than {len(free)} sizes; found {len(y)}")

    def residual(trial: Parameters) -> FloatArray:
        with np.errstate(all="ignore"):
            off = np.log(_evaluated(model, trial, variables)) - logs
        return np.asarray(np.nan_to_num(off, nan=_OUTSIDE, posinf=_OUTSIDE, neginf=-_OUTSIDE))

    unset = {name for name, parameter in parameters.items() if np.isnan(parameter.value)}
    starts = []
    for shares in qmc.Sobol(len(parameters), scramble=False).fast_forward(1).random(_POINTS - 1):
        for share, (name, parameter) in zip(shares, parameters.items(), strict=True):
            if name in unset:
                parameter.value = _start(float(share), parameter.min, parameter.max)
        starts.append((float(np.sum(residual(parameters) ** 2)), parameters.valuesdict()))
    curves = []
    for squares, values in sorted(starts, key=lambda pair: pair[0])[:_STARTS]:
        if squares < _OUTSIDE**2:
            for name, value in values.items():
                parameters[name].value = value
            minimizer = Minimizer(residual, parameters.copy())
            result = minimizer.minimize(method="leastsq")
            if result.success and np.abs(result.residual).max() < _OUTSIDE:
                curves.append(Curve(model, result, minimizer, len(y)))
    if not curves:
        raise BadInput("no start converges; give starting values or bounds by analyzer.parameters")
    return min(curves, key=lambda curve: float(curve.result.chisqr))


def _evaluated(model: ExpressionModel, parameters: Parameters, variables: Mapping[str, FloatArray]) -> FloatArray:
    """Return the form's y, (m,); NaN where it has none."""
    size = len(next(iter(variables.values())))
    try:
        values = np.asarray(model.eval(parameters, **variables), dtype=np.float64)
    except (ArithmeticError, RuntimeError):  # 1 / 0 of numbers; an exponent beyond asteval's largest
        values = np.asarray(nan)
    return np.broadcast_to(values, (size,))


def _start(share: float, low: float, high: float) -> float:
    """Return a starting value at a share of the range: of two bounds, or of decades from a single one."""
    if isfinite(low) and isfinite(high):
        return low + share * (high - low)
    step = float(10 ** (_DECADES[0] + share * (_DECADES[1] - _DECADES[0])))
    if isfinite(low):
        return low + step
    return min(step, high) if high > 0 else high - step


@dataclass(kw_only=True)
class FormRow(OfMetric):
    """A form beside the power law over the same points."""

    sizes: Annotated[int, Column("number of sizes m")]
    free: Annotated[int, Column("free parameters")]
    aicc: Annotated[float, Column("AICc of the form, constants left out", title="AICc", form=".1f")]
    aicc_power_law: Annotated[float, Column("that of the power law", title="AICc, power law", form=".1f")]
    difference: Annotated[float, Column("AICc of the form minus that of the power law", form="+.1f")]
    held_out_error: Annotated[
        float, Column("measured / predicted - 1 at the largest size, fitted to all smaller ones", form="+.1%")
    ]
    held_out_power_law: Annotated[float, Column("that of the power law", form="+.1%")]


@dataclass(kw_only=True)
class ParameterRow(OfMetric):
    """A parameter of a form."""

    parameter: Annotated[str, Column("its name in the form")]
    value: Annotated[Interval, Column("by least squares in ln y", low="lower end of its profile interval")]
    fixed: Annotated[bool, Column("whether it was fixed")]
    reason: Annotated[str, Column("why it has no interval")]


@dataclass(frozen=True, kw_only=True)
class FormAgainstPowerLaw(Finding):
    """AICc of a form minus that of the power law: YES where the form is preferred, NO where the power law is.

    Attributes:
        form: the expression.

    """

    question: str = "form against the power law"
    form: str

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how often the form is preferred to the power law, and how often it is not."""
        kinds = {
            "fits better than the power law": with_verdict(findings, Verdict.YES),
            "fits worse than the power law": with_verdict(findings, Verdict.NO),
            "undecided": with_verdict(findings, Verdict.UNTOLD),
        }
        counts = [f"{kind} in {len(cases)}" for kind, cases in kinds.items() if cases]
        yield f"Of {len(findings)} laws, {findings[0].form} {listed(counts)} (AICc, differences above {_DECISIVE:.0f})."


@dataclass(frozen=True)
class Fitted:
    """A form in one law: what tables, page and figure show of it."""

    row: FormRow
    parameters: list[ParameterRow]
    finding: FormAgainstPowerLaw
    line: tuple[FloatArray, FloatArray]


def fit_beside(form: Form, law: FamilyLaw, tokens: FloatArray, *, level: float) -> Fitted:
    """Fit a form to the points of a law, and compare it with the power law there.

    Source: `fit_form`.

    Args:
        form: what to fit.
        law: the points, and the power law.
        tokens: D of each size, (m,); NaN if unknown.
        level: nominal coverage of the intervals.

    Raises:
        BadInput: it cannot be fitted to these points; the text says why.

    """
    s = law.law.s
    y = law.law.y
    if "D" in form.variables and not np.isfinite(tokens).all():
        raise BadInput("D is unknown for some models; give analyzer.training_tokens")
    given = {name: values for name, values in (("S", s), ("D", tokens)) if name in form.variables}
    curve = fit_form(form, given, y)
    intervals, reason = curve.intervals(level)
    line = linear.least_squares(linear.centred(np.log(s)), np.log(y))[1]
    power_law = aicc(float(line @ line), len(s), 3)
    difference = curve.aicc - power_law if isfinite(curve.aicc) and isfinite(power_law) else nan
    row = FormRow(
        **law.keys,
        sizes=len(s),
        free=int(curve.result.nvarys),
        aicc=curve.aicc,
        aicc_power_law=power_law,
        difference=difference,
        held_out_error=_held_out(form, given, s, y),
        held_out_power_law=float(held_out_error(s, y)),
    )
    parameters = []
    for name, parameter in curve.result.params.items():
        why = "" if name in intervals else "fixed" if not parameter.vary else reason
        number = intervals.get(name, Interval(float(parameter.value)))
        parameters.append(ParameterRow(**law.keys, parameter=name, value=number, fixed=not parameter.vary, reason=why))
    verdict = Verdict.UNTOLD
    if abs(difference) > _DECISIVE:
        verdict = Verdict.YES if difference < 0 else Verdict.NO
    case = law.family.keys | {"metric": law.metric}
    finding = FormAgainstPowerLaw(case=case, estimate=difference, form=form.text, verdict=verdict)
    at = np.geomspace(s.min(), s.max(), 60)
    logs = {name: np.interp(np.log(at), np.log(s), np.log(values)) for name, values in given.items()}
    return Fitted(row, parameters, finding, (at, curve.predict({name: np.exp(line) for name, line in logs.items()})))


def _held_out(form: Form, given: Mapping[str, FloatArray], s: FloatArray, y: FloatArray) -> float:
    """Return measured / predicted - 1 at the largest size by the form fitted to the others; NaN where it cannot be."""
    kept = s < s.max()
    try:
        curve = fit_form(form, {name: values[kept] for name, values in given.items()}, y[kept])
    except BadInput:
        return nan
    predicted = curve.predict({name: values[~kept] for name, values in given.items()})
    return float(np.mean(y[~kept]) / np.mean(predicted) - 1)
