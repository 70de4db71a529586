from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.power_law import PowerLaw
from rbptrack.plugins.reproduction.uncertainty import implied_se, rounding_se
from scipy import stats

from rbptrack.reporting.computing import computed
from rbptrack.stats.intervals import (
    fieller,
    percentiles,
    share_interval,
    simultaneous,
    studentized,
    widening,
    worth,
    worth_of_share,
)
from tests.synthetic import family_runs


def test_a_share_of_documents_by_hand() -> None:
    half = share_interval(0.5, 10, level=0.95)
    assert (half.low, half.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)  # Wilson 1927
    assert share_interval(0.0, 10, level=0.95).low == 0
    assert share_interval(1.0, 10, level=0.95).high == 1


def test_alike_answers_of_a_source_count_as_one() -> None:
    rng, trials = np.random.default_rng(0), np.full(400, 10.0)
    one, all_alike = rng.binomial(10, 0.4, 400), 10.0 * rng.binomial(1, 0.4, 400)
    assert worth_of_share(one, trials, level=0.95) == pytest.approx(4000, rel=0.1)
    assert worth_of_share(all_alike, trials, level=0.95) == pytest.approx(400, rel=0.05)
    assert worth_of_share(np.zeros(400), trials, level=0.95) == 400, "of no success nothing tells sources from answers"


def test_a_ratio_by_hand() -> None:
    low, high = fieller(1.0, 2.0, 0.0, 0.1, quantile=2.0)  # an exact numerator: 1 over the interval of the denominator
    assert (low, high) == pytest.approx((1 / 2.2, 1 / 1.8))
    assert fieller(3.0, 2.0, 0.1, 0.0, quantile=2.0) == pytest.approx((1.4, 1.6))


def test_a_ratio_to_what_may_be_zero_has_no_interval() -> None:
    assert fieller(1.0, 0.1, 0.1, 0.1, quantile=2.0) == (-np.inf, np.inf)
    assert fieller(1.0, 0.0, 0.1, 0.0, quantile=2.0) == (-np.inf, np.inf)


def test_percentiles_are_draws_and_reach_minus_infinity() -> None:
    draws = np.arange(101.0)
    assert percentiles(draws, level=0.9) == (5, 95)
    draws[:4] = -np.inf
    assert percentiles(draws, level=0.95)[0] == -np.inf


def test_the_error_that_a_published_r2_implies() -> None:
    x = np.linspace(0, 9, 10)
    line = stats.linregress(x, 0.3 * x + np.random.default_rng(0).normal(0, 0.2, 10))
    assert implied_se(line.slope, line.rvalue**2, 10, unit=1e-9) == pytest.approx(line.stderr)
    assert implied_se(0.066, 1.0, 10, unit=0.001) > rounding_se(0.001) == pytest.approx(0.000289, abs=1e-6)


def test_a_studentized_interval_by_hand() -> None:
    draws, se = np.arange(-50, 51) / 10 + 2.0, np.full(101, 1.0)  # t even from -5 to 5
    one = studentized(2.0, 0.1, draws, se, level=0.8)
    assert (one.low, one.high) == pytest.approx((1.6, 2.4), abs=0.011)
    skewed = studentized(2.0, 0.1, np.where(draws > 2, 2 + 2 * (draws - 2), draws), se, level=0.8)
    assert 2.0 - skewed.low > skewed.high - 2.0 > 0.4  # t is skewed to the right, so the interval is to the left
    exact = studentized(2.0, 0.0, draws, se, level=0.8)
    assert (exact.low, exact.high) == (2.0, 2.0)


def test_intervals_of_several_numbers_hold_all_at_once() -> None:
    draws, value = np.random.default_rng(0).normal(size=(4000, 5)), np.full(5, 0.2)
    half = simultaneous(value, draws, level=0.9)
    assert (np.abs(draws - value) <= half).all(axis=1).mean() == pytest.approx(0.9, abs=0.005)
    assert simultaneous(np.zeros(5), draws, level=0.9) == pytest.approx(
        stats.norm.ppf((1 + 0.9 ** (1 / 5)) / 2), abs=0.15
    )
    same = np.repeat(draws[:, :1], 5, axis=1)
    np.testing.assert_allclose(simultaneous(np.zeros(5), same, level=0.9), stats.norm.ppf(0.95), atol=0.05)


def test_some_replicates_without_success_widen_an_interval_and_many_leave_none() -> None:
    draws = np.random.default_rng(0).normal(size=(1000, 2))
    exact = simultaneous(np.zeros(2), draws, level=0.95)
    draws[:20, 0] = -np.inf
    some = simultaneous(np.zeros(2), draws, level=0.95)
    assert np.isfinite(some).all()
    assert (some > exact).all()
    draws[:60, 0] = -np.inf
    many = simultaneous(np.zeros(2), draws, level=0.95)
    assert np.isinf(many[0])
    assert many[1] < some[1]  # a number that cannot be told does not widen the others' intervals


def test_documents_that_weigh_unequally_count_as_fewer() -> None:
    assert worth(np.ones(20)) == pytest.approx(20)
    assert worth(np.array([1.0, -1, 0, 0])) == pytest.approx(2)
    assert worth(np.array([1.0, 1, 1e6])) == pytest.approx(1)
    assert worth(np.zeros(7)) == 7
    assert widening(10, 0.95) == pytest.approx(2.262157 / 1.959964 * np.sqrt(10 / 9))
    assert widening(1e6, 0.95) == pytest.approx(1, abs=1e-5)
    assert widening(1, 0.95) == widening(2, 0.95)


@pytest.mark.parametrize(("documents", "known"), [(9, False), (10, True)])
def test_below_ten_documents_no_interval_is_printed(documents: int, known: bool) -> None:
    """One place takes them out of tables and findings, whatever the analyzer."""
    runs = family_runs(np.geomspace(1e4, 1e7, 4), alpha=0.1, a=3.0, documents=documents)
    report = computed(PowerLaw(ks=[1], replicates=50), runs)
    rows = report.tables["fits"].frame
    assert rows["alpha"].notna().all()
    assert rows[["alpha_low", "alpha_high", "alpha_se"]].notna().all(axis=None) == known
    assert all(np.isfinite(one.low) == known for one in report.findings if one.question == "law in size")
