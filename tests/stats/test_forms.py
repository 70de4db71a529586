"""Tests of laws other than A S^-alpha: a law with a floor, and expressions that a user writes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray
from rbptrack.stats import forms

S = np.geomspace(1e5, 1e10, 8)


def points_with_floor(e: float, sigma: float = 0.01, sizes: int = 8) -> tuple[FloatArray, FloatArray]:
    """Return sizes s and values y near the law y = e + 20 s^-0.2, both (sizes,).

    Normal noise with the standard deviation sigma is added to ln y.
    """
    s = np.geomspace(1e5, 1e10, sizes)
    return s, (e + 20 * s**-0.2) * np.exp(np.random.default_rng(0).normal(0, sigma, sizes))


def test_fit_form_of_equal_values_has_no_r2() -> None:
    units = np.random.default_rng(0).integers(0, 2, len(S))
    assert math.isnan(forms.fit_form("A*S**-alpha", S, 0.7 + units * np.spacing(0.7)).r2)


def test_fit_form_fits_law_in_sizes_and_training_tokens() -> None:
    d = np.geomspace(1e9, 1e12, 8)[[3, 1, 4, 0, 6, 2, 7, 5]]
    y = (1.5 + 400 * S**-0.34 + 410 * d**-0.28) * np.exp(np.random.default_rng(0).normal(0, 1e-4, 8))
    fitted = forms.fit_form("E + A*S**-a + B*D**-b", S, y, d)
    assert fitted.parameters["E"].value == pytest.approx(1.5, abs=0.1)
    assert list(fitted.parameters) == ["E", "A", "a", "B", "b"]


LAWS = {  # a true y by the form that should find it; N are sizes, T training tokens
    "E+A*S**-alpha+B*D**-beta": lambda n, t: 1.7 + 400 * n**-0.34 + 410 * t**-0.28,
    "E+A*S**a+B*D**b": lambda n, t: 1.7 + 400 * n**-0.34 + 410 * t**-0.28,
    "(S0/S)**a": lambda n, t: (8.8e13 / n) ** 0.076,
    "A*S**-a*(1+(S/C)**b)**-c": lambda n, t: 20 * n**-0.1 * (1 + n / 1e8) ** -0.1,
    "exp(a-b*log(S))+E0": lambda n, t: 1.7 + 400 * n**-0.34,
    "A-B*log(S)": lambda n, t: 6 - 0.2 * np.log(n),
}


@pytest.mark.parametrize("text", list(LAWS))
def test_fit_form_fits_at_least_as_well_as_the_true_law(text: str) -> None:
    s = np.repeat(np.geomspace(1e6, 1e10, 8), 4)
    d = np.tile(np.geomspace(1e9, 1e11, 4), 8)
    truth = LAWS[text](s, d)
    noise = np.random.default_rng(0).normal(0, 0.005, len(s))
    fitted = forms.fit_form(text, s, truth * np.exp(noise), d, with_intervals=False)
    assert fitted.squares <= noise @ noise * (1 + 1e-6)


def test_fit_form_of_power_law_is_least_squares_of_logarithms() -> None:
    s, y = points_with_floor(0.3)
    fitted = forms.fit_form("A*S**-alpha", s, y)
    slope = np.polyfit(np.log(s), np.log(y), 1)[0]
    assert fitted.parameters["alpha"].value == pytest.approx(-slope, rel=1e-6)
    assert fitted.aicc == pytest.approx(forms.power_law_aicc(s, y), rel=1e-6)


def test_aicc_has_formula_of_small_samples() -> None:
    expected = 8 * math.log(2.0 / 8) + 2 * 3 + 2 * 3 * 4 / (8 - 3 - 1)
    assert forms.aicc(2.0, 8, 3) == pytest.approx(expected)


def test_aicc_of_one_more_point_than_parameters_is_infinite() -> None:
    assert forms.aicc(2.0, 4, 3) == math.inf


@pytest.mark.parametrize(
    "text",
    [
        '__import__("os").system("true")',
        "[x for x in S]",
        "S.sum()*A",
        "A*open(S)",
        "A*S**-alpha+",
        "A*exp(S, S)",
        "A*exp(S, out=S)",
        "A*exp(S, where=A)",
        "A*S[0]",
        "A*'S'",
        "A*S if A else S",
        "(A*S, A)",
        "A=3*S",
        "A*S; A*S",
        "A*numpy.exp(S)",
        "A*S**-1e999j",
        "A < S",
        "S**-2",
        "A+B",
        "lambda: A*S",
        "A*S**-" + "9" * 400,
        "A" * 600 + "*S",
        "",
    ],
)
def test_check_form_refuses_all_but_arithmetic_of_parameters_and_sizes(text: str) -> None:
    with pytest.raises(BadInput):
        forms.check_form(text)


def test_fit_form_needs_two_more_sizes_than_parameters() -> None:
    s, y = points_with_floor(0.3, sizes=5)
    forms.fit_form("A*S**-alpha+C", s, y)
    with pytest.raises(BadInput, match="sizes"):
        forms.fit_form("A*S**-alpha+C+D2*S", s, y)


def test_fit_form_refuses_unknown_training_tokens() -> None:
    s, y = points_with_floor(0.3)
    with pytest.raises(BadInput, match="training tokens"):
        forms.fit_form("A*D**-alpha", s, y, np.full(8, np.nan))


def test_fit_form_refuses_form_that_takes_too_many_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_MAX_EVALUATIONS", 1000)
    s, y = points_with_floor(0.3)
    with pytest.raises(BadInput, match="1,000"):
        forms.fit_form("E+A*S**-a+B*S**-b+sqrt(abs(F))*0", s, y)
