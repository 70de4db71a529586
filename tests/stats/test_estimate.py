"""Tests of `Estimate`: intervals, p-values and differences of numbers with two variances."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rbptrack.stats import Estimate, independent_difference

variances = st.floats(1e-8, 1e3)


def test_estimate_with_sampling_variance_alone_has_normal_interval_and_p() -> None:
    number = Estimate(1.0, sampling=0.04)
    assert number.half_width() == pytest.approx(1.959963984540054 * 0.2)
    assert number.p() == pytest.approx(2 * stats.norm.sf(5.0))
    assert number.interval() == pytest.approx((1 - number.half_width(), 1 + number.half_width()))


def test_without_error_has_no_interval() -> None:
    assert math.isnan(Estimate(1.0, sampling=0.04).without_error().half_width())


def test_estimate_with_scatter_alone_has_t_interval_and_p() -> None:
    number = Estimate(1.0, scatter=0.04, df=3)
    assert number.half_width() == pytest.approx(stats.t.ppf(0.975, 3) * 0.2)
    assert number.p(0.5) == pytest.approx(2 * stats.t.sf(2.5, 3))


@given(variances, variances, st.floats(1, 50), st.floats(1, 50) | st.just(math.inf), st.floats(0.01, 0.9999))
def test_p_is_1_minus_level_of_interval_that_ends_at_null(
    sampling: float, scatter: float, df: float, sampling_df: float, level: float
) -> None:
    number = Estimate(2.0, sampling, scatter, df, sampling_df)
    assert number.p(2.0 + number.half_width(level)) == pytest.approx(1 - level, rel=1e-6)


def test_estimate_of_unknown_error_has_no_interval_no_p_and_no_se() -> None:
    for number in (Estimate(1.0, df=math.nan), Estimate(1.0, sampling=math.nan), Estimate(1.0, scatter=1.0, df=0)):
        assert math.isnan(number.half_width())
        assert math.isnan(number.p())
        assert math.isnan(number.se)


def test_p_far_from_null_is_tiny_but_not_0() -> None:
    assert 0 < Estimate(1.0, 1e-12, 1e-12, 50).p() < 1e-90
    assert Estimate(1.0, 0.0, 1e-12, 2).p() < 1e-10


def test_p_at_null_is_1() -> None:
    assert Estimate(3.0).p(3.0) == 1.0
    assert Estimate(3.0, 0.1, 0.1, 5).p(3.0 + 1e-9) == pytest.approx(1.0)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.integers(3, 40), st.integers(3, 40))
def test_difference_of_two_means_has_p_of_welchs_test(
    variance_a: float, variance_b: float, size_a: float, size_b: float
) -> None:
    sd_a, sd_b = math.sqrt(variance_a), math.sqrt(variance_b)
    welch = stats.ttest_ind_from_stats(1.0, sd_a, size_a, 0.0, sd_b, size_b, equal_var=False)
    mean_a = Estimate(1.0, scatter=variance_a / size_a, df=size_a - 1)
    mean_b = Estimate(0.0, scatter=variance_b / size_b, df=size_b - 1)
    assert independent_difference(mean_a, mean_b).p() == pytest.approx(welch.pvalue, rel=1e-6)


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_difference_of_known_variances_has_normal_p(variance_a: float, variance_b: float) -> None:
    difference = independent_difference(Estimate(1.0, scatter=variance_a), Estimate(0.0, scatter=variance_b))
    assert difference.p() == pytest.approx(2 * stats.norm.sf(1 / math.sqrt(variance_a + variance_b)), rel=1e-6)


def test_difference_from_estimate_of_unknown_error_has_no_interval() -> None:
    assert math.isnan(independent_difference(Estimate(1.0, df=math.nan), Estimate(0.0, 1.0)).half_width())


def test_estimate_with_variance_that_rounds_below_0_has_no_error() -> None:
    number = Estimate(1.0, sampling=-1e-37)
    assert number.half_width() == number.se == 0.0
    assert number.p() == 0.0


def test_difference_has_deciding_documents_by_rule_of_welch_and_satterthwaite() -> None:
    """Of the variance 4, 1 is decided by 10 documents, and 3 by 30: 1 / (1/16 / 10 + 9/16 / 30) = 40."""
    first = Estimate(1.0, sampling=1.0, sampling_df=9, deciding_documents=10)
    second = Estimate(0.5, sampling=3.0, sampling_df=29, deciding_documents=30)
    assert independent_difference(first, second).deciding_documents == pytest.approx(40)
    assert independent_difference(second, first).deciding_documents == pytest.approx(40)
