"""Tests that rounding errors change no result: laws, p-values, comparisons of values, significant digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.ranks import FloatArray
from rbptrack.stats import Estimate, all_equal, first_largest, fit, independent_difference, laws, significant
from rbptrack.stats.rounding import first_smallest

SIZES = st.integers(5, 12)
SEEDS = st.integers(0, 2**32 - 1)


def add_rounding_errors(y: FloatArray, seed: int) -> FloatArray:
    """Multiply each value by 1 + j eps with a random j from -2 to 2, as another processor might round it."""
    units = np.random.default_rng(seed).integers(-2, 3, len(y))
    return np.asarray(y * (1 + units * np.finfo(float).eps))


@given(m=SIZES, seed=SEEDS, value=st.floats(1e-6, 20))
def test_fit_of_constant_has_no_slope_no_bend_and_no_error_of_prediction(m: int, seed: int, value: float) -> None:
    law = fit(np.geomspace(1e5, 1e10, m), add_rounding_errors(np.full(m, value), seed))
    for number in (law.alpha, law.bend(), law.held_out()):
        assert (number.value, number.half_width(), number.p()) == (0, 0, 1)
    assert math.isnan(law.r2)
    assert law.largest_deviation == 0


@given(m=SIZES, seed=SEEDS, alpha=st.floats(0.01, 1))
def test_fit_of_points_on_power_law_has_no_scatter(m: int, seed: int, alpha: float) -> None:
    s = np.geomspace(1e5, 1e10, m)
    law = fit(s, add_rounding_errors(30 * s**-alpha, seed))
    assert law.alpha.value == pytest.approx(alpha)
    assert law.alpha.half_width() == law.largest_deviation == 0
    for number in (law.bend(), law.held_out()):
        assert (number.value, number.p()) == (0, 1)


@given(m=SIZES, seed=SEEDS)
def test_law_of_models_with_equal_sums_has_exponent_0_without_error(m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(50, 300, 40)
    sums = np.column_stack([tokens, tokens * rng.uniform(1, 3, 40)]).astype(float)
    [law] = laws(np.geomspace(1e6, 1e9, m), [sums] * m, lambda totals: totals[..., 1] / totals[..., 0])
    assert law is not None
    assert (law.alpha.value, law.alpha.half_width()) == (0, 0)


@given(m=SIZES, seed=SEEDS)
def test_difference_of_equal_exponents_is_0_with_p_1(m: int, seed: int) -> None:
    s = np.geomspace(1e5, 1e10, m)
    y = 30 * s**-0.2 * np.exp(np.random.default_rng(seed).normal(0, 0.01, m))
    difference = independent_difference(fit(s, add_rounding_errors(y, seed)).alpha, fit(s, y).alpha)
    assert (difference.value, difference.p()) == (0, 1)


def test_p_of_value_that_differs_from_null_by_rounding_is_1() -> None:
    assert Estimate(0.1 + 0.2, 1e-40).p(0.3) == 1


def test_p_of_value_that_differs_from_null_by_more_than_rounding_is_small() -> None:
    assert Estimate(0.3 + 1e-6, 1e-40).p(0.3) < 1e-6


def test_first_largest_takes_first_of_tied_values() -> None:
    assert first_largest([0.1, 0.3, 0.1 + 0.2, np.nan]) == 1
    assert first_largest([0.1 + 0.2, 0.3]) == 0
    assert first_largest([-1.0, math.inf, math.inf]) == 1


def test_first_smallest_takes_first_of_tied_values() -> None:
    assert first_smallest([abs(np.log(0.1)), abs(np.log(10))]) == 0
    assert first_smallest([3.0, -2.0, -2.001]) == 2


def test_all_equal_ignores_rounding_errors() -> None:
    assert all_equal([0.1 + 0.2, 0.3])
    assert all_equal([0.0, 0.0])
    assert not all_equal([0.3, 0.3 + 1e-9])


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_significant_changes_values_by_less_than_its_last_digit(values: list[float]) -> None:
    array = np.array(values)
    assert significant(array) == pytest.approx(array, rel=1e-11)


def test_significant_keeps_nan() -> None:
    assert np.isnan(significant(np.array([np.nan])))


@given(seed=SEEDS)
def test_significant_removes_rounding_errors(seed: int) -> None:
    quarters = np.random.default_rng(seed).integers(-40, 40, 9) / 4
    assert (significant(add_rounding_errors(quarters, seed)) == quarters).all()
