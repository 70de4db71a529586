from __future__ import annotations

import numpy as np
import pytest

from rbptrack.stats.intervals import fieller, percentiles, share_interval


def test_a_share_of_documents_by_hand() -> None:
    assert share_interval(0.5, 10, level=0.95) == pytest.approx((0.2366, 0.7634), abs=1e-4)  # Wilson 1927
    assert share_interval(0.0, 10, level=0.95)[0] == 0
    assert share_interval(1.0, 10, level=0.95)[1] == 1


def test_a_mean_over_runs_is_rounded_to_whole_documents() -> None:
    assert share_interval(0.34, 10, level=0.9) == share_interval(0.3, 10, level=0.9)


def test_a_ratio_by_hand() -> None:
    low, high = fieller(1.0, 2.0, 0.0, 0.1, quantile=2.0)  # an exact numerator: 1 over the interval of the denominator
    assert (low, high) == pytest.approx((1 / 2.2, 1 / 1.8))
    assert fieller(3.0, 2.0, 0.1, 0.0, quantile=2.0) == pytest.approx((1.4, 1.6))


def test_a_ratio_to_what_may_be_zero_has_no_interval() -> None:
    assert fieller(1.0, 0.1, 0.1, 0.1, quantile=2.0) == (-np.inf, np.inf)


def test_percentiles_are_draws_and_reach_minus_infinity() -> None:
    draws = np.arange(101.0)
    assert percentiles(draws, level=0.9) == (5, 95)
    draws[:4] = -np.inf
    assert percentiles(draws, level=0.95)[0] == -np.inf
