from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from rbptrack.ranks import log_grid
from rbptrack.stats.k_law import fit_k_law, k_slopes, size_factor_read_off

KS = log_grid(100)


def test_a_law_is_recovered_for_every_size() -> None:
    y = np.array([[3.0], [2.0]]) * KS ** np.array([[-0.5], [-0.4]])
    fit = fit_k_law(KS, y)
    assert fit.beta == pytest.approx([0.5, 0.4])
    assert np.exp(fit.log_b) == pytest.approx([3, 2])
    assert fit.r2 == pytest.approx(1)
    assert fit.largest_deviation == pytest.approx(0, abs=1e-12)
    assert fit.local_beta(10) == pytest.approx([0.5, 0.4])
    np.testing.assert_allclose(fit.fitted, y)


def test_a_bend_is_the_parabola_s() -> None:
    t = np.log(KS)
    fit = fit_k_law(KS, np.exp(1 - 0.3 * t - 0.05 * t**2)[None])
    assert fit.local_beta(1)[0] == pytest.approx(0.3)
    assert fit.local_beta(100)[0] == pytest.approx(0.3 + 0.1 * np.log(100))


def test_the_line_is_plain_least_squares() -> None:
    y = np.random.default_rng(0).uniform(0.5, 2, size=(1, len(KS)))
    fit, line = fit_k_law(KS, y), stats.linregress(np.log(KS), np.log(y[0]))
    assert (fit.beta[0], fit.log_b[0], fit.r2[0]) == pytest.approx((-line.slope, line.intercept, line.rvalue**2))
    np.testing.assert_allclose(k_slopes(KS, np.stack([y, y])), [fit.beta, fit.beta])


def test_a_size_is_read_off_between_measured_ones() -> None:
    s = np.geomspace(1e4, 1e7, 4)
    factor, sizes = size_factor_read_off(s, 5 * s**-0.2, 5 * s**-0.2 / 2)  # 2 = factor^0.2
    assert factor == pytest.approx(32)
    assert sizes == 2  # a size 32 times the larger two was not measured


def test_nothing_is_read_off_where_a_larger_model_is_not_better() -> None:
    s = np.geomspace(1e4, 1e6, 3)
    factor, sizes = size_factor_read_off(s, np.array([2.0, 2.5, 1.0]), np.array([1.9, 2.4, 0.9]))
    assert np.isnan(factor)
    assert sizes == 0
