"""Known answers for what ends a law at large k."""

from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.lack_of_fit.each_k import design_effect, expected_r2
from rbptrack.plugins.lack_of_fit.surface import largest_k_without_gap

from rbptrack.stats.power_law import fit_power_law


def test_independent_tokens_have_a_design_effect_of_1() -> None:
    draws = np.random.default_rng(0).binomial(10_000, 0.9, 4000) / 10_000
    assert design_effect(0.9, draws, tokens=10_000) == pytest.approx(1, abs=0.08)
    assert design_effect(0.9, 0.9 + 3 * (draws - 0.9), tokens=10_000) == pytest.approx(9, abs=0.8)
    assert np.isnan(design_effect(1.0, draws, tokens=10_000))


def test_r2_falls_with_the_noise() -> None:
    s = np.geomspace(1e4, 1e7, 6)
    law, rng = fit_power_law(s, 3 * s**-0.1), np.random.default_rng(0)
    exact = expected_r2(law, np.zeros((6, 6)), replicates=100, level=0.9, rng=rng)
    assert (exact.low, exact.value, exact.high) == pytest.approx((1, 1, 1))
    noisy = expected_r2(law, 0.2**2 * np.eye(6), replicates=1000, level=0.9, rng=rng)
    assert 0 < noisy.low < noisy.value < noisy.high < 1


def test_the_largest_k_before_the_first_gap() -> None:
    ks = [1, 3, 10, 30]
    assert largest_k_without_gap(ks, [True, True, False, True]) == 3
    assert largest_k_without_gap(ks, [True] * 4) == 30
    assert largest_k_without_gap(ks, [False, True, True, True]) == 0
