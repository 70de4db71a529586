"""Forms that a law in size may take, fitted by maximum likelihood, and which of them the points support.

M0  y = A S^-alpha
M1  y = E + A S^-alpha, E >= 0 irreducible; needs m >= 6 sizes
    (AICc with tau counted asks a likelihood ratio above 30 at m = 6, so M1 is told by a test of stated size instead)
M2  a broken law: exponent alpha below a size and alpha2 above it; needs m >= 12
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import lmfit
import numpy as np
import numpy.typing as npt
from scipy import optimize

from rbptrack.ranks import FloatArray
from rbptrack.stats.irreducible import Irreducible, irreducible_term

GATES = {"M0": 3, "M1": 6, "M2": 12}
"""The least number of sizes that each form is fitted to."""

_BREAK_WIDTH = 0.3  # of M2's bend, in ln S: sharp against sizes that lie a factor 2 apart
_SAME_FIT = 0.02  # log-likelihoods this close are the same optimum
_DECISIVE = 2.0  # difference in AICc from which a richer form is preferred


@dataclass(frozen=True)
class FormFit:
    """One form fitted to (S, y): ln y = f(ln S) + e, Cov(e) = covariance + tau^2 I.

    Attributes:
        form: M0, M1 or M2.
        values: its parameters: log_a (for S over its geometric mean), alpha; E for M1; alpha2 and log_break for M2.
        se: their standard errors, from the curvature at the optimum; NaN where there is none (a bound).
        tau: scatter between models, maximum likelihood, in ln y.
        log_likelihood: at the optimum.
        aicc: Akaike's criterion for small samples, tau counted as a parameter.
        agreed: whether every start that came near the optimum found the same parameters.
        centre: ln of the geometric mean of S.

    """

    form: str
    values: Mapping[str, float]
    se: Mapping[str, float]
    tau: float
    log_likelihood: float
    aicc: float
    agreed: bool
    centre: float

    def predict(self, s: npt.ArrayLike) -> FloatArray:
        """The form's y at sizes s."""
        return np.asarray(
            np.exp(_FORMS[self.form](np.log(np.asarray(s, dtype=np.float64)) - self.centre, **self.values))
        )


@dataclass(frozen=True)
class Verdict:
    """Which form the points support.

    Attributes:
        fits: the forms that there were sizes enough for, M0 first.
        preferred: the form to use: M1 where E > 0 is supported, M2 where AICc is lower by more than 2 than without it
            and its starts agree, else M0.
        text: what to say of it.
        irreducible: the test of E = 0 and E's interval; None below the gate.

    """

    fits: tuple[FormFit, ...]
    preferred: str
    text: str
    irreducible: Irreducible | None

    @property
    def known(self) -> str:
        """What is known of an irreducible term, in a word or two, for a table."""
        if self.preferred == "M2":
            return "broken"
        if self.irreducible is None:
            return "too few sizes" if self.fits[0].values["alpha"] > 0 else "does not fall"
        return {"supported": "E > 0", "rejected": "plain"}.get(self.irreducible.verdict, self.irreducible.verdict)

    def __getitem__(self, form: str) -> FormFit:
        return next(fit for fit in self.fits if fit.form == form)


def compare_forms(s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> Verdict:
    """Fit every form that m sizes allow, and say which one they support.

    Source: AICc of Hurvich and Tsai, Biometrika 76, 1989; the test of E = 0 on its boundary is that of Self and
    Liang, JASA 82, 1987.

    Args:
        s: sizes S, (m,).
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m).

    """
    sizes, logs = np.log(np.asarray(s, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    m = len(sizes)
    plain = _fit("M0", sizes, logs, covariance)
    if plain.values["alpha"] <= 0:
        return Verdict((plain,), "M0", "y does not fall with size: no irreducible term is looked for", None)
    fits = (plain, *(_fit(form, sizes, logs, covariance) for form in ("M1", "M2") if m >= GATES[form]))
    if m < GATES["M1"]:
        text = f"an irreducible term is not identifiable from {m} sizes"
        return Verdict(fits, "M0", text, None)
    found = irreducible_term(s, y, covariance)
    broken = fits[2] if len(fits) > 2 else None
    gain = min(fit.aicc for fit in fits[:2]) - broken.aicc if broken else 0.0
    if broken and broken.agreed and gain > _DECISIVE:
        return Verdict(fits, "M2", f"a broken law is supported (AICc lower by {gain:.1f})", found)
    return Verdict(fits, "M1" if found.verdict == "supported" else "M0", _in_words(found, m), found)


def _in_words(found: Irreducible, m: int) -> str:
    share = f"{found.share_low:z.0%} to {found.share_high:z.0%} of y at the largest size"
    if found.verdict == "supported":
        e = f"E = {found.e:.3g} ({found.e_low:.3g} to {found.e_high:.3g}, {share})"
        return f"an irreducible term is supported: {e}, p = {found.p:.2g}"
    if found.verdict == "rejected":
        return f"an irreducible term of more than {found.margin:z.0%} of y at the largest size is excluded"
    return f"{m} sizes do not decide whether there is an irreducible term: it may be {share} (p = {found.p:.2g})"


def forms_in_words(verdicts: Mapping[str, Verdict]) -> str:
    """What to say of the forms of several metrics, by the metric's label, without a full stop.

    Source: the verdicts of `compare_forms`; Hurvich and Tsai, 1989.
    """
    texts = {verdict.text for verdict in verdicts.values()}
    if len(texts) == 1:
        return texts.pop()
    spoken = [f"{label}: {v.text}" for label, v in verdicts.items() if v.preferred != "M0"]
    for known, text in (
        ("plain", "a plain power law suffices (more than 10% irreducible at the largest size is excluded)"),
        ("undecided", "the sizes do not decide whether there is an irreducible term"),
    ):
        labels = [label for label, v in verdicts.items() if v.preferred == "M0" and v.known == known]
        spoken += [f"{', '.join(labels)}: {text}"] if labels else []
    rest = {label: v for label, v in verdicts.items() if v.preferred == "M0" and v.known not in ("plain", "undecided")}
    for text in dict.fromkeys(v.text for v in rest.values()):
        spoken.append(f"{', '.join(label for label, v in rest.items() if v.text == text)}: {text}")
    return "; ".join(spoken)


def _m0(x: FloatArray, log_a: float, alpha: float) -> FloatArray:
    return log_a - alpha * x


def _m1(x: FloatArray, log_a: float, alpha: float, E: float) -> FloatArray:
    return np.asarray(np.log(E + np.exp(log_a - alpha * x)))


def _m2(x: FloatArray, log_a: float, alpha: float, alpha2: float, log_break: float) -> FloatArray:
    bend = _BREAK_WIDTH * np.logaddexp(0, (x - log_break) / _BREAK_WIDTH)  # 0 below the break, x - log_break above
    return np.asarray(log_a - alpha * x - (alpha2 - alpha) * bend)


_FORMS: Mapping[str, Callable[..., FloatArray]] = {"M0": _m0, "M1": _m1, "M2": _m2}


def _starts(form: str, x: FloatArray, logs: FloatArray) -> list[lmfit.Parameters]:
    slope, intercept = np.polyfit(x, logs, 1)
    found = []
    if form == "M0":
        found.append(lmfit.create_params(log_a=intercept, alpha=-slope))
    elif form == "M1":
        floor = float(np.exp(logs.min()))
        for share in (0.02, 0.1, 0.25, 0.5, 0.75, 0.95):
            down, up = np.polyfit(x, np.log(np.exp(logs) - share * floor), 1)
            irreducible = {"value": share * floor, "min": 0.0, "max": floor * (1 + 1e-9)}
            found.append(lmfit.create_params(log_a=up, alpha={"value": max(-down, 1e-3), "min": 0.0}, E=irreducible))
    else:
        inside = np.sort(x)
        for place in np.linspace(inside[2], inside[-3], 5):
            break_ = {"value": float(place), "min": float(inside[1]), "max": float(inside[-2])}
            found.append(lmfit.create_params(log_a=intercept, alpha=-slope, alpha2=-slope, log_break=break_))
    return found


def _fit(form: str, sizes: FloatArray, logs: FloatArray, covariance: FloatArray) -> FormFit:
    """Maximum likelihood from several starts: the form by weighted least squares, tau by one dimension, in turn."""
    centre = float(sizes.mean())
    x = sizes - centre
    ended = [_from(form, start, x, logs, covariance) for start in _starts(form, x, logs)]
    best = max(ended, key=lambda e: e[2])
    near = [result for result, _, likelihood in ended if likelihood > best[2] - _SAME_FIT]
    result, tau2, likelihood = best
    free = len(result.params) + 1  # and tau
    m = len(x)
    aicc = -2 * likelihood + 2 * free + 2 * free * (free + 1) / (m - free - 1) if m > free + 1 else float("inf")
    key = {"M0": "alpha", "M1": "E", "M2": "log_break"}[form]
    found = np.array([other.params[key].value for other in near])
    scale = {"M0": 1.0, "M1": float(np.exp(logs.min())), "M2": float(np.ptp(x))}[form]
    return FormFit(
        form=form,
        values={
            name: 0.0 if name == "E" and p.value < 1e-9 * scale else float(p.value) for name, p in result.params.items()
        },
        se={name: float("nan" if p.stderr is None else p.stderr) for name, p in result.params.items()},
        tau=float(np.sqrt(tau2)),
        log_likelihood=likelihood,
        aicc=aicc,
        agreed=bool(len(near) >= 2 or form == "M0") and bool(np.ptp(found) < 0.02 * scale),
        centre=centre,
    )


def _from(
    form: str, start: lmfit.Parameters, x: FloatArray, logs: FloatArray, covariance: FloatArray
) -> tuple[Any, float, float]:
    """The result of lmfit, tau^2 and the log-likelihood reached from one start."""
    law = _FORMS[form]
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, 0, None)
    floor = max(1e-12, 1e-9 * float(np.var(logs)))  # keeps weights finite where points lie on the curve exactly
    tau2, likelihood, parameters = max(float(np.var(logs - _FORMS["M0"](x, *_line(x, logs)))), floor), -np.inf, start

    def whitened(p: lmfit.Parameters) -> FloatArray:
        return np.asarray(vectors.T @ (logs - law(x, **p.valuesdict())) / np.sqrt(values + tau2))

    result: Any = None
    for _ in range(12):
        minimizer = lmfit.Minimizer(whitened, parameters, scale_covar=False)
        result = minimizer.minimize(method="least_squares")
        parameters = result.params
        r2 = (vectors.T @ (logs - law(x, **parameters.valuesdict()))) ** 2
        tau2 = _scatter(values, r2, floor)
        before, likelihood = likelihood, _log_likelihood(values + tau2, r2)
        if likelihood - before < 1e-4:
            break
    return result, tau2, likelihood


def _line(x: FloatArray, logs: FloatArray) -> tuple[float, float]:
    slope, intercept = np.polyfit(x, logs, 1)
    return float(intercept), -float(slope)


def _log_likelihood(variance: FloatArray, r2: FloatArray) -> float:
    return -0.5 * float(np.sum(np.log(2 * np.pi * variance) + r2 / variance))


def _scatter(values: FloatArray, r2: FloatArray, floor: float) -> float:
    """tau^2 that maximises the likelihood of residuals r (squared, in the eigenbasis of the sampling covariance)."""
    top = np.log(max(float(r2.mean()) * 4, floor * 2))
    found = optimize.minimize_scalar(
        lambda t: -_log_likelihood(values + np.exp(t), r2), bounds=(np.log(floor), top), method="bounded"
    )
    return float(np.exp(found.x))
