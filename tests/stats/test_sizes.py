"""Tests of equivalent sizes and crossings of laws, and of scatter that several laws share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rbptrack.stats import (
    Law,
    crossing,
    fit,
    independent_difference,
    middle_of_common_values,
    share_scatter,
    size_ratio,
)

S = np.geomspace(1e6, 1e9, 6)


def law(alpha: float, factor: float, scatter: float = 0.0, seed: int = 0) -> Law:
    """Return a law of 6 sizes without documents."""
    return fit(S, factor * S**-alpha * np.exp(scatter * np.random.default_rng(seed).standard_normal(6)))


def test_size_ratio_of_exact_laws_is_that_of_equal_values() -> None:
    """2 (S r)^-0.2 = 3 S^-0.1 at S = 1e9."""
    found = size_ratio(law(0.2, 2.0), law(0.1, 3.0), 1e9, independent_difference)
    assert found is not None
    expected = (1.5 * 1e9**0.1) ** -5
    assert np.exp(found.ln_ratio.value) == pytest.approx(expected, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((expected, expected), rel=1e-6)


def test_size_ratio_contains_exactly_the_places_at_which_the_difference_is_not_significant() -> None:
    first, second = law(0.1, 3.0, 0.01, 1), law(0.1, 3.3, 0.01, 2)
    found = size_ratio(first, second, 1e9, independent_difference)
    assert found is not None
    reference = second.at(1e9)
    df = independent_difference(first.at(1e9), reference).df
    for end in (found.low, found.high):
        difference = independent_difference(first.at(1e9 * end), reference)
        assert abs(difference.value) == pytest.approx(stats.t.ppf(0.975, df) * difference.se, rel=1e-6)
    p = independent_difference(first.at(1e9), reference).p()
    assert found.ln_ratio.p() == pytest.approx(p)
    assert (found.low < 1 < found.high) == (p > 0.05)


def test_size_ratio_is_unbounded_if_the_family_may_not_improve() -> None:
    """The exponent of the first law is positive but not significant, and its values are worse."""
    flat = law(0.001, 3.0, 0.02, 1)
    assert flat.alpha.value > 0
    assert flat.alpha.p() > 0.05
    found = size_ratio(flat, law(0.1, 3.0, 0.01, 2), 1e9, independent_difference)
    assert found is not None
    assert found.high == np.inf
    assert found.low > 1
    assert size_ratio(law(-0.1, 3.0), law(0.1, 3.0), 1e9, independent_difference) is None


def test_crossing_of_exact_laws() -> None:
    found = crossing(law(0.2, 3 * 1e7**0.1), law(0.1, 3.0), independent_difference)
    assert found.value == pytest.approx(1e7, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((1e7, 1e7), rel=1e-4)


def test_crossing_of_laws_whose_exponents_may_be_equal_is_unbounded() -> None:
    found = crossing(law(0.1, 3.0, 0.02, 1), law(0.1, 3.0, 0.02, 2), independent_difference)
    assert (found.low, found.high) == (0.0, np.inf)


def test_crossing_of_parallel_laws_that_differ_is_unbounded() -> None:
    first = law(0.1, 3.0, 0.02, 1)
    found = crossing(first, fit(S, 8 * first.y), independent_difference)
    assert (found.low, found.high) == (0.0, np.inf)


def test_middle_of_common_values_has_the_geometric_mean() -> None:
    first, second = law(0.1, 3.0), law(0.1, 3.3)
    s = middle_of_common_values(first, second)
    highest, lowest = 3.0 * S[0] ** -0.1, 3.3 * S[-1] ** -0.1
    assert 3.3 * s**-0.1 == pytest.approx(np.sqrt(highest * lowest))
    assert np.isnan(middle_of_common_values(first, law(0.1, 30.0)))


def test_share_scatter_averages_own_and_mean_scatter_of_families_with_few_sizes() -> None:
    rng = np.random.default_rng(3)
    fitted = [fit(S[:4], S[:4] ** -0.1 * np.exp(0.02 * rng.standard_normal(4))) for _ in range(3)]
    shared = share_scatter([{"ce": each} for each in fitted], ["a", "b", "b"])
    of_families = (fitted[0].scatter, (fitted[1].scatter + fitted[2].scatter) / 2)
    for own, [found] in zip(fitted, map(dict.values, shared), strict=True):
        expected = (own.scatter + np.mean(of_families)) / 2
        weights = own.alpha_weights
        assert found.alpha.scatter == pytest.approx(expected * weights @ weights)
        assert found.alpha.df == 4
        assert found.own_alpha == own.alpha


def test_share_scatter_keeps_the_scatter_of_one_family_and_of_many_sizes() -> None:
    one = law(0.1, 3.0, 0.02, 1)
    assert share_scatter([{"ce": one}, {"ce": one}], ["a", "b"])[0]["ce"].shared is None
    few = fit(S[:4], one.y[:4])
    assert share_scatter([{"ce": few}, {"ce": few}], ["a", "a"])[0]["ce"].shared is None
