"""What laws in size are fitted to, and the one rule of when there is none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rbptrack.ranks import DocumentCounts
from rbptrack.stats.bootstrap import paired_covariance
from rbptrack.stats.power_law import fit_power_law, point_diagnostics
from rbptrack.stats.size_laws import fit_law, law_values, positive

SIZES = np.array([1e4, 1e5, 1e6, 1e7])
RNG = np.random.default_rng(0)
Y = 5 * SIZES**-0.2
DRAWS = Y[:, None] * np.exp(RNG.normal(0, 0.01, (4, 200)))


def test_positive_means_finite_and_above_0() -> None:
    values = np.array([[1.0, 0.0, 2.0], [3.0, 4.0, np.inf]])
    assert positive(values, axis=0).tolist() == [True, False, False]
    assert not positive(values)
    assert not positive(np.nan)
    assert positive(values[:, 0])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_one_bad_value_or_replicate_means_no_law(bad: float) -> None:
    y, draws = Y.copy(), DRAWS.copy()
    y[2], draws[1, 7] = bad, bad
    assert fit_law(SIZES, y, DRAWS) is None
    assert fit_law(SIZES, Y, draws) is None


def test_a_law_with_the_covariance_of_its_replicates() -> None:
    law = fit_law(SIZES, Y, DRAWS, level=0.9)
    expected = fit_power_law(SIZES, Y, covariance=paired_covariance(list(np.log(DRAWS))), level=0.9)
    assert law is not None
    assert (law.alpha, law.low, law.high) == (expected.alpha, expected.low, expected.high)
    np.testing.assert_array_equal(law.covariance, np.cov(np.log(DRAWS)))


def test_values_are_those_of_the_counts() -> None:
    hits = np.array([[3, 8], [1, 9]])
    counts = DocumentCounts((1, 5), np.array([0, 1]), np.array([10, 10]), np.array([20.0, 30.0]), hits)
    law_inputs = law_values([counts, counts], replicates=50)
    assert law_inputs.metrics == ("ce", "rbp_1", "rbp_5")
    np.testing.assert_allclose(law_inputs.values[0], [2.5, -np.log(4 / 20), -np.log(17 / 20)])
    y, draws = law_inputs.of("rbp_5")
    assert draws.shape == (2, 50)
    assert set(np.round(np.exp(-draws[0]), 6)) <= {0.8, 0.85, 0.9}, "one document twice, or each once"
    np.testing.assert_allclose(y, -np.log(0.85))


def test_diagnostics_of_a_point_off_the_line() -> None:
    y = Y * np.array([1, 1, 1, 1.1])
    law = fit_power_law(SIZES, y)
    points = point_diagnostics(law)
    kept = stats.linregress(np.log(SIZES[:3]), np.log(y[:3]))
    assert points["alpha_without"][3] == pytest.approx(-kept.slope)
    assert points["influence"][3] == pytest.approx((law.alpha + kept.slope) / law.se)
    assert points["residual"].sum() == pytest.approx(0)
