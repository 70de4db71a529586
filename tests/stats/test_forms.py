"""Forms beside the power law: a floor, and expressions of the user's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from rbptrack.base.errors import BadInput
from rbptrack.stats import forms
from rbptrack.stats.laws import FLOOR

S = np.geomspace(1e5, 1e10, 8)


def with_floor(e, sigma=0.01, seed=0, sizes=8):
    s = np.geomspace(1e5, 1e10, sizes)
    return s, (e + 20 * s**-0.2) * np.exp(np.random.default_rng(seed).normal(0, sigma, sizes))


def test_a_floor_is_found_with_its_interval() -> None:
    s, y = with_floor(0.5)
    fitted = forms.fit_floor(s, y)
    e = fitted.parameters["E"]
    assert e.low < 0.5 < e.high
    assert e.value == pytest.approx(0.5, abs=0.05)
    assert fitted.parameters["alpha"].value == pytest.approx(0.2, abs=0.02)
    assert fitted.parameters["A"].value == pytest.approx(20, rel=0.3)
    assert fitted.aicc < forms.power_law_aicc(s, y)


def test_the_profile_is_lmfits_own_of_the_same_expression() -> None:
    s, y = with_floor(0.5)
    e = forms.fit_floor(s, y).parameters["E"]
    own = forms.fit_form("F + B*S**-b", s, y).parameters["F"]
    assert (e.value, e.low, e.high) == pytest.approx((own.value, own.low, own.high), rel=1e-3)


def test_without_a_floor_the_power_law_is_preferred_and_the_floor_has_an_upper_end() -> None:
    s, y = with_floor(0.0, sigma=0.002, seed=3)
    fitted = forms.fit_floor(s, y)
    assert fitted.parameters["E"].low == 0
    assert 0 <= fitted.parameters["E"].value < fitted.parameters["E"].high < y.min()
    assert fitted.aicc > forms.power_law_aicc(s, y)


def test_a_law_that_steepens_has_a_floor_of_0_and_an_upper_end() -> None:
    y = (
        20
        * S**-0.2
        * np.exp(-0.002 * (np.log(S) - np.log(S).mean()) ** 2 + np.random.default_rng(1).normal(0, 0.01, 8))
    )
    e = forms.fit_floor(S, y).parameters["E"]
    assert (e.value, e.low) == (0, 0)
    assert e.high > 0


def test_values_that_rise_with_size_have_no_floor() -> None:
    with pytest.raises(BadInput, match="fall"):
        forms.fit_floor(S, (1 + 1e-6 * S**0.5) * np.exp(np.random.default_rng(0).normal(0, 0.005, 8)))


def test_points_on_a_curve_have_no_profile() -> None:
    fitted = forms.fit_floor(S, 20 * S**-0.2)
    assert math.isnan(fitted.parameters["E"].high)
    assert fitted.parameters["alpha"].value == pytest.approx(0.2)


@pytest.mark.parametrize("sizes", [6, 7, 8, 9, 12])
@pytest.mark.parametrize("value", [1e-3, 0.3, 0.51, 0.7, 1.0, 2.2])
@pytest.mark.parametrize("bits", [0, 1])
def test_the_same_value_at_all_sizes_has_no_floor(sizes: int, value: float, bits: int) -> None:
    above = np.random.default_rng(sizes).integers(0, 2, sizes) * bits
    fitted = forms.fit_floor(np.geomspace(1e5, 1e10, sizes), value + above * np.spacing(value))
    assert fitted.parameters["E"].value == 0
    assert fitted.parameters["alpha"].value == pytest.approx(0, abs=1e-9)
    assert math.isnan(fitted.r2)


def test_no_value_is_explained_by_a_form_if_all_are_the_same() -> None:
    above = np.random.default_rng(0).integers(0, 2, len(S))
    assert math.isnan(forms.fit_form("A*S**-alpha", S, 0.7 + above * np.spacing(0.7)).r2)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_floor_is_nearer_to_the_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = np.geomspace(1e6, 1e10, 7)
    y = (rng.choice([0.0, 0.3, 1.0]) + 3 * (s / 1e6) ** -0.3) * np.exp(rng.normal(0, rng.choice([0.01, 0.3]), 7))
    found = float((np.log(forms.fit_floor(s, y).curve(s, None) / y) ** 2).sum())

    def squares(parameters, e):
        return np.logaddexp(np.log(e), parameters[0] - parameters[1] * np.log(s / s[3])) - np.log(y)

    for e in np.linspace(0.02, 2.5, 50) * y.min():
        for start in ((0.0, 0.3), (1.0, 0.05)):
            other = optimize.least_squares(squares, start, args=(e,))
            assert found <= 2 * other.cost * (1 + 1e-3)


def test_a_form_in_training_tokens() -> None:
    d = np.geomspace(1e9, 1e12, 8)[[3, 1, 4, 0, 6, 2, 7, 5]]
    y = (1.5 + 400 * S**-0.34 + 410 * d**-0.28) * np.exp(np.random.default_rng(0).normal(0, 1e-4, 8))
    fitted = forms.fit_form("E + A*S**-a + B*D**-b", S, y, d)
    assert fitted.parameters["E"].value == pytest.approx(1.5, abs=0.1)
    assert list(fitted.parameters) == ["E", "A", "a", "B", "b"]


def test_the_power_law_as_a_form_is_least_squares() -> None:
    s, y = with_floor(0.3)
    fitted = forms.fit_form("A*S**-alpha", s, y)
    slope = np.polyfit(np.log(s), np.log(y), 1)[0]
    assert fitted.parameters["alpha"].value == pytest.approx(-slope, rel=1e-6)
    assert fitted.aicc == pytest.approx(forms.power_law_aicc(s, y), rel=1e-6)


def test_aicc_counts_the_variance_as_a_parameter() -> None:
    expected = 8 * math.log(2.0 / 8) + 2 * 3 + 2 * 3 * 4 / (8 - 3 - 1)
    assert forms.aicc(2.0, 8, 3) == pytest.approx(expected)
    assert forms.aicc(2.0, 4, 3) == math.inf


@pytest.mark.parametrize(
    "text",
    [
        '__import__("os").system("true")',
        "[x for x in S]",
        "S.sum()*A",
        "A*open(S)",
        "A*S**-alpha+",
        "S**-2",
        "A+B",
        "lambda: A*S",
        "A*S**-" + "9" * 400,
        "A" * 600 + "*S",
        "",
    ],
)
def test_only_arithmetic_with_parameters_is_a_form(text):
    with pytest.raises(BadInput):
        forms.check_form(text)


def test_parameters_are_at_most_two_fewer_than_sizes() -> None:
    s, y = with_floor(0.3, sizes=5)
    forms.fit_form("A*S**-alpha+C", s, y)
    with pytest.raises(BadInput, match="sizes"):
        forms.fit_form("A*S**-alpha+C+D2*S", s, y)
    with pytest.raises(BadInput, match="6 sizes"):
        forms.fit_form(FLOOR, s, y)


def test_tokens_that_are_not_known_are_named() -> None:
    s, y = with_floor(0.3)
    with pytest.raises(BadInput, match="training tokens"):
        forms.fit_form("A*D**-alpha", s, y, np.full(8, np.nan))


def test_a_fit_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(forms, "_MAX_EVALUATIONS", 1000)
    s, y = with_floor(0.3)
    with pytest.raises(BadInput, match="takes more than"):
        forms.fit_form("E+A*S**-a+B*S**-b+sqrt(abs(F))*0", s, y)
