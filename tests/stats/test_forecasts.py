"""Tests of the test of fit, the interval of the floor E, and forecasts by all forms that are not rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rbptrack.ranks import FloatArray
from rbptrack.stats import Law, bend_text, fit, fit_floor, forecast

S = np.geomspace(1e6, 1e9, 8)


def law_of(y: FloatArray, noise: float = 0.0, seed: int = 0, s: FloatArray = S) -> Law:
    """Return the law of values y, (m,). Normal noise with this standard deviation is added to ln y."""
    return fit(s, y * np.exp(np.random.default_rng(seed).normal(0, noise, len(s))))


def with_floor(s: FloatArray, e: float = 1.0) -> FloatArray:
    return e + 20 * s**-0.2


def broken(s: FloatArray) -> FloatArray:
    """Return values with an exponent of 0.05 up to S = 3e7, and of 0.2 above."""
    x = np.log(s / 3e7)
    return np.exp(-0.05 * np.minimum(x, 0) - 0.2 * np.maximum(x, 0))


def test_fit_floor_of_exact_law_is_its_floor() -> None:
    floor = fit_floor(law_of(with_floor(S)))
    assert floor is not None
    assert (floor.low, floor.e, floor.high) == pytest.approx((1.0, 1.0, 1.0), rel=1e-3)
    assert floor.alpha == pytest.approx(0.2, rel=1e-3)


def test_fit_floor_of_exact_power_law_is_0() -> None:
    floor = fit_floor(law_of(20 * S**-0.2))
    assert floor is not None
    assert (floor.e, floor.low) == (0, 0)
    assert floor.high == pytest.approx(0, abs=1e-3)


def test_fit_floor_covers_the_floor() -> None:
    covered = 0
    for seed in range(60):
        floor = fit_floor(law_of(with_floor(S), noise=0.01, seed=seed))
        covered += floor is not None and floor.low <= 1.0 <= floor.high
    assert 52 <= covered <= 60


@pytest.mark.parametrize("e", [0.0, 0.3, 1.0])
def test_floor_of_0_is_excluded_exactly_if_the_law_bends(e: float) -> None:
    for seed in range(30):
        law = law_of(with_floor(S, e), noise=0.01, seed=seed)
        floor = fit_floor(law)
        bends = bend_text(law)
        if floor is None:
            assert bends
        else:
            assert (floor.low > 0) == bends.startswith("bends upward")


@pytest.mark.parametrize("value", [0.3, 0.7, 1.0])
def test_fit_floor_of_equal_values_has_alpha_0(value: float) -> None:
    floor = fit_floor(law_of(np.full(8, value)))
    assert floor is not None
    assert floor.alpha == pytest.approx(0, abs=1e-9)


def test_rising_values_have_no_floor_above_0() -> None:
    floor = fit_floor(law_of(S**0.1, noise=0.01, seed=1))
    assert floor is not None
    assert (floor.low, floor.e, floor.high) == (0, 0, 0)


def test_bend_text_says_the_direction() -> None:
    x = np.log(S) - np.log(S).mean()
    assert bend_text(law_of(np.exp(-0.2 * x + 0.01 * x**2), noise=1e-3)).startswith("bends upward")
    assert bend_text(law_of(np.exp(-0.2 * x - 0.01 * x**2), noise=1e-3)).startswith("bends downward")
    assert bend_text(law_of(np.exp(-0.2 * x), noise=0.01, seed=2)) == ""
    assert bend_text(fit(S[:3], np.exp(-0.2 * x + x**2)[:3])) == ""


def test_law_that_bends_downward_has_no_floor_and_no_forecast_with_few_sizes() -> None:
    s = S[[0, 1, 2, 4, 6, 7]]
    law = law_of(broken(s), noise=1e-3, s=s)
    assert bend_text(law).startswith("bends downward")
    assert fit_floor(law) is None
    assert forecast(law, 1e10) is None


@pytest.mark.parametrize("law_at", [lambda s: 20 * s**-0.2, with_floor])
def test_forecast_of_exact_law_is_its_value(law_at: Callable[[Any], Any]) -> None:
    predicted = forecast(law_of(law_at(S[:6]), s=S[:6]), 1e10)
    assert predicted is not None
    truth = np.log(law_at(1e10))
    assert (predicted.low, predicted.value, predicted.high) == pytest.approx((truth,) * 3, abs=2e-4)


def test_forecast_of_law_with_two_exponents_is_by_a_broken_law() -> None:
    s = np.geomspace(1e6, 1e9, 12)
    predicted = forecast(law_of(broken(s), noise=1e-3, s=s), 1e10)
    assert predicted is not None
    assert predicted.low_form == predicted.high_form == "a broken law"
    assert predicted.low < np.log(broken(1e10)) < predicted.high
    assert predicted.high - predicted.low < 0.1


def test_forecast_contains_that_of_the_power_law_if_the_law_does_not_bend() -> None:
    law = law_of(20 * S**-0.2, noise=0.01)
    predicted = forecast(law, 1e10)
    by_line = law.predict(1e10)
    assert bend_text(law) == ""
    assert predicted is not None
    assert predicted.value == pytest.approx(by_line.value)
    low, high = by_line.interval()
    assert predicted.low <= low + 1e-9
    assert predicted.high >= high - 1e-9


def test_forecast_says_which_form_has_which_end() -> None:
    """With 6 sizes, a floor gives the highest forecast, and its absence the lowest."""
    law = law_of(20 * S[:6] ** -0.2, noise=0.01, s=S[:6])
    predicted = forecast(law, 1e10)
    assert predicted is not None
    assert (predicted.low_form, predicted.high_form) == ("A S^-α", "E + A S^-α")


@pytest.mark.parametrize("times", [3, 10])
def test_forecast_covers_a_law_with_a_floor(times: float) -> None:
    rng = np.random.default_rng(0)
    s = times * S[-1]
    covered = 0
    for seed in range(30):
        predicted = forecast(law_of(with_floor(S), noise=0.005, seed=seed), s)
        truth = float(np.log(with_floor(s))) + rng.normal(0, 0.005)
        covered += predicted is not None and predicted.low <= truth <= predicted.high
    assert covered >= 26


def test_forecast_needs_4_sizes() -> None:
    assert forecast(fit(S[:3], S[:3] ** -0.2), 1e10) is None
    assert fit_floor(fit(S[:3], S[:3] ** -0.2)) is None
