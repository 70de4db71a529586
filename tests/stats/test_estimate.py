"""Numbers with two variances: intervals, p and differences."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rbptrack.stats import Estimate

variances = st.floats(1e-8, 1e3)


def test_sampling_variance_alone_has_the_normal_interval() -> None:
    number = Estimate(1.0, sampling=0.04)
    assert number.half() == pytest.approx(1.959963984540054 * 0.2)
    assert number.p() == pytest.approx(2 * stats.norm.sf(5.0))
    assert number.interval() == pytest.approx((1 - number.half(), 1 + number.half()))
    assert math.isnan(number.without_error().half())


def test_scatter_alone_has_the_t_interval() -> None:
    number = Estimate(1.0, scatter=0.04, df=3)
    assert number.half() == pytest.approx(stats.t.ppf(0.975, 3) * 0.2)
    assert number.p(0.5) == pytest.approx(2 * stats.t.sf(2.5, 3))


@given(variances, variances, st.floats(1, 50), st.floats(1, 50) | st.just(math.inf), st.floats(0.01, 0.9999))
def test_p_is_the_level_whose_interval_just_reaches_the_null(
    sampling: float, scatter: float, df: float, sampling_df: float, level: float
) -> None:
    number = Estimate(2.0, sampling, scatter, df, sampling_df)
    assert number.p(2.0 + number.half(level)) == pytest.approx(1 - level, rel=1e-6)


def test_an_error_that_is_not_known_gives_neither_interval_nor_p() -> None:
    for number in (Estimate(1.0, df=math.nan), Estimate(1.0, sampling=math.nan), Estimate(1.0, scatter=1.0, df=0)):
        assert math.isnan(number.half())
        assert math.isnan(number.p())
        assert math.isnan(number.se)


def test_far_apart_is_a_tiny_p_and_equal_is_1() -> None:
    assert 0 < Estimate(1.0, 1e-12, 1e-12, 50).p() < 1e-90
    assert Estimate(1.0, 0.0, 1e-12, 2).p() < 1e-10
    assert Estimate(3.0).p(3.0) == pytest.approx(Estimate(3.0, 0.1, 0.1, 5).p(3.0 + 1e-9)) == 1.0


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(3, 40), st.integers(3, 40))
def test_a_difference_has_the_degrees_of_freedom_of_welch(a: float, b: float, n: float, m: float) -> None:
    # var / n and var / m are the scatters of two means: scipy's Welch test is the reference
    welch = stats.ttest_ind_from_stats(1.0, math.sqrt(a), n, 0.0, math.sqrt(b), m, equal_var=False)
    difference = Estimate(1.0, scatter=a / n, df=n - 1) - Estimate(0.0, scatter=b / m, df=m - 1)
    assert difference.p() == pytest.approx(welch.pvalue, rel=1e-6)
    known = Estimate(1.0, scatter=a) - Estimate(0.0, scatter=b)
    assert known.p() == pytest.approx(2 * stats.norm.sf(1 / math.sqrt(a + b)), rel=1e-6)


def test_a_difference_of_an_unknown_error_has_none() -> None:
    assert math.isnan((Estimate(1.0, df=math.nan) - Estimate(0.0, 1.0)).half())


def test_a_variance_that_rounds_below_0_is_0() -> None:
    number = Estimate(1.0, sampling=-1e-37)
    assert number.half() == number.se == 0.0
    assert number.p() == 0.0
