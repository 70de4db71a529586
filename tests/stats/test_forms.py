"""Tests of laws other than A S^-alpha: a law with a floor, and expressions that a user writes."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from scipy import optimize, stats

from rbptrack.base.errors import BadInput
from rbptrack.stats import forms
from rbptrack.stats.laws import FLOOR

S = np.geomspace(1e5, 1e10, 8)


def points_with_floor(e, sigma=0.01, seed=0, sizes=8):
    """Return sizes s and values y near the law y = e + 20 s^-0.2, both (sizes,).

    Normal noise with the standard deviation sigma is added to ln y.
    """
    s = np.geomspace(1e5, 1e10, sizes)
    return s, (e + 20 * s**-0.2) * np.exp(np.random.default_rng(seed).normal(0, sigma, sizes))


def test_fit_floor_recovers_parameters_of_law_with_floor() -> None:
    s, y = points_with_floor(0.5)
    fitted = forms.fit_floor(s, y)
    e = fitted.parameters["E"]
    assert e.low < 0.5 < e.high
    assert e.value == pytest.approx(0.5, abs=0.05)
    assert fitted.parameters["alpha"].value == pytest.approx(0.2, abs=0.02)
    assert fitted.parameters["A"].value == pytest.approx(20, rel=0.3)
    assert fitted.aicc < forms.power_law_aicc(s, y)


def test_fit_floor_has_same_interval_of_floor_as_fit_form() -> None:
    s, y = points_with_floor(0.5)
    e = forms.fit_floor(s, y).parameters["E"]
    f = forms.fit_form("F + B*S**-b", s, y).parameters["F"]
    assert (e.value, e.low, e.high) == pytest.approx((f.value, f.low, f.high), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("e", [0.0, 0.05, 0.5])
def test_has_floor_if_interval_of_floor_is_above_0(e: float, seed: int) -> None:
    s, y = points_with_floor(e, seed=seed)
    assert forms.has_floor(s, y) == (forms.fit_floor(s, y).parameters["E"].low > 0)


def test_has_floor_is_false_for_values_that_rise_with_size() -> None:
    assert not forms.has_floor(S, 1 + 1e-6 * S**0.5)


def test_has_floor_is_false_for_equal_values() -> None:
    assert not forms.has_floor(S, np.full(len(S), 0.7))


def test_fit_floor_of_power_law_has_higher_aicc_and_interval_of_floor_from_0() -> None:
    s, y = points_with_floor(0.0, sigma=0.002, seed=3)
    fitted = forms.fit_floor(s, y)
    assert fitted.parameters["E"].low == 0
    assert 0 <= fitted.parameters["E"].value < fitted.parameters["E"].high < y.min()
    assert fitted.aicc > forms.power_law_aicc(s, y)


def test_fit_floor_of_steepening_law_has_floor_0_with_upper_end() -> None:
    x = np.log(S) - np.log(S).mean()
    noise = np.random.default_rng(1).normal(0, 0.01, 8)
    y = 20 * S**-0.2 * np.exp(-0.002 * x**2 + noise)
    e = forms.fit_floor(S, y).parameters["E"]
    assert (e.value, e.low) == (0, 0)

    def squares(floor: float) -> float:
        """Return the least sum of squares of ln y with this floor, as SciPy's minimizer finds it."""
        best = optimize.minimize(
            lambda line: np.sum((np.log(floor + np.exp(line[0] - line[1] * x)) - np.log(y)) ** 2),
            [np.log(y).mean(), 0.2],
            method="Nelder-Mead",
            options={"xatol": 1e-10, "fatol": 1e-16, "maxiter": 10_000},
        )
        return float(best.fun)

    f_of_upper_end = (squares(e.high) / squares(0) - 1) * (8 - 3)
    assert f_of_upper_end == pytest.approx(stats.f.ppf(0.95, 1, 5), rel=1e-3)


def test_fit_floor_refuses_values_that_rise_with_size() -> None:
    y = (1 + 1e-6 * S**0.5) * np.exp(np.random.default_rng(0).normal(0, 0.005, 8))
    with pytest.raises(BadInput, match=re.escape(FLOOR)):
        forms.fit_floor(S, y)


def test_fit_floor_of_exact_power_law_has_no_upper_end_of_floor() -> None:
    fitted = forms.fit_floor(S, 20 * S**-0.2)
    assert math.isnan(fitted.parameters["E"].high)
    assert fitted.parameters["alpha"].value == pytest.approx(0.2)


@pytest.mark.parametrize("sizes", [6, 7, 8, 9, 12])
@pytest.mark.parametrize("value", [1e-3, 0.3, 0.51, 0.7, 1.0, 2.2])
@pytest.mark.parametrize("rounding", [0, 1])
def test_fit_floor_of_equal_values_has_alpha_zero(sizes: int, value: float, rounding: int) -> None:
    """With rounding 1, about half of the values are larger by one unit in the last place."""
    units = np.random.default_rng(sizes).integers(0, 2, sizes) * rounding
    fitted = forms.fit_floor(np.geomspace(1e5, 1e10, sizes), value + units * np.spacing(value))
    assert fitted.parameters["E"].value == 0
    assert fitted.parameters["alpha"].value == pytest.approx(0, abs=1e-9)
    assert math.isnan(fitted.r2)


def test_fit_form_of_equal_values_has_no_r2() -> None:
    units = np.random.default_rng(0).integers(0, 2, len(S))
    assert math.isnan(forms.fit_form("A*S**-alpha", S, 0.7 + units * np.spacing(0.7)).r2)


@pytest.mark.parametrize("seed", range(20))
def test_fit_floor_finds_least_sum_of_squares(seed: int) -> None:
    """Compare with least-squares fits of A and alpha at 50 fixed floors, each from two starting points."""
    rng = np.random.default_rng(seed)
    s = np.geomspace(1e6, 1e10, 7)
    y = (rng.choice([0.0, 0.3, 1.0]) + 3 * (s / 1e6) ** -0.3) * np.exp(rng.normal(0, rng.choice([0.01, 0.3]), 7))
    residuals = np.log(forms.fit_floor(s, y).curve(s, None) / y)
    sum_of_squares = float((residuals**2).sum())

    def residuals_with_floor(line, e):
        return np.logaddexp(np.log(e), line[0] - line[1] * np.log(s / s[3])) - np.log(y)

    for e in np.linspace(0.02, 2.5, 50) * y.min():
        for start in ((0.0, 0.3), (1.0, 0.05)):
            other = optimize.least_squares(residuals_with_floor, start, args=(e,))
            assert sum_of_squares <= 2 * other.cost * (1 + 1e-3)


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
def test_check_form_refuses_all_but_arithmetic_of_parameters_and_sizes(text):
    with pytest.raises(BadInput):
        forms.check_form(text)


def test_fit_form_needs_two_more_sizes_than_parameters() -> None:
    s, y = points_with_floor(0.3, sizes=5)
    forms.fit_form("A*S**-alpha+C", s, y)
    with pytest.raises(BadInput, match="sizes"):
        forms.fit_form("A*S**-alpha+C+D2*S", s, y)


def test_fit_form_of_floor_needs_6_sizes() -> None:
    s, y = points_with_floor(0.3, sizes=5)
    with pytest.raises(BadInput, match="6 sizes"):
        forms.fit_form(FLOOR, s, y)


def test_fit_form_refuses_unknown_training_tokens() -> None:
    s, y = points_with_floor(0.3)
    with pytest.raises(BadInput, match="training tokens"):
        forms.fit_form("A*D**-alpha", s, y, np.full(8, np.nan))


def test_fit_form_refuses_form_that_takes_too_many_evaluations(monkeypatch):
    monkeypatch.setattr(forms, "_MAX_EVALUATIONS", 1000)
    s, y = points_with_floor(0.3)
    with pytest.raises(BadInput, match="1,000"):
        forms.fit_form("E+A*S**-a+B*S**-b+sqrt(abs(F))*0", s, y)
