import numpy as np
import pytest
from rbptrack.plugins.lack_of_fit.law_forms import fit_forms

from rbptrack.stats.nested import pool
from rbptrack.stats.power_law import fit_power_law, huber_alpha, point_diagnostics


def noise(m: int, sd: float) -> np.ndarray:
    return sd**2 * (0.8 * np.ones((m, m)) + 0.2 * np.eye(m))


def test_a_floor_is_fitted_from_six_sizes_and_a_break_from_twelve() -> None:
    for m, forms in ((5, ["M0"]), (6, ["M0", "M1"]), (12, ["M0", "M1", "M2"])):
        s = np.geomspace(1e6, 1e9, m)
        assert [fit.form for fit in fit_forms([(s, 0.5 + 30 * s**-0.2, noise(m, 0.002))])[0].fits] == forms
    assert [fit.form for fit in fit_forms([(s, s**0.1, noise(12, 0.002))])[0].fits] == ["M0"], "it does not fall"


def test_a_planted_break_is_found_from_twelve_sizes() -> None:
    s = np.geomspace(1e6, 1e10, 14)
    y = 30 * s**-0.1 * np.where(s > 1e8, (s / 1e8) ** -0.15, 1) * np.exp(np.random.default_rng(3).normal(0, 0.01, 14))
    forms = fit_forms([(s, y, noise(14, 0.002))])[0]
    assert forms.broken
    assert forms.fits[2].alpha == pytest.approx(0.1, abs=0.03)
    assert not fit_forms([(s, 30 * s**-0.1, noise(14, 0.002))])[0].broken


def test_an_exact_law_gives_its_parameters() -> None:
    s = np.geomspace(1e6, 1e9, 7)
    assert fit_forms([(s, 30 * s**-0.2, np.zeros((7, 7)))])[0].fits[0].alpha == pytest.approx(0.2, abs=1e-5)


def test_aicc_counts_tau() -> None:
    """Independent noise of unknown variance: the textbook formula of AICc for a line with 3 parameters."""
    rng = np.random.default_rng(4)
    s = np.geomspace(1e6, 1e9, 9)
    logs = np.log(30 * s**-0.1) + rng.normal(0, 0.05, 9)
    residual = logs - np.polyval(np.polyfit(np.log(s), logs, 1), np.log(s))
    variance = float(residual @ residual) / 9
    expected = 9 * np.log(2 * np.pi * variance) + 9 + 2 * 3 + 2 * 3 * 4 / (9 - 3 - 1)
    assert fit_forms([(s, np.exp(logs), np.zeros((9, 9)))])[0].fits[0].aicc == pytest.approx(expected, abs=1e-3)


def test_influence_and_huber() -> None:
    s = np.geomspace(1e6, 1e9, 8)
    y = 30 * s**-0.1
    y[-1] *= 1.3
    without = point_diagnostics(fit_power_law(s, y))["alpha_without"]
    assert without[-1] == pytest.approx(0.1)
    assert abs(without[:-1] - 0.1).min() > 0.01
    assert abs(huber_alpha(s, y) - 0.1) < abs(fit_power_law(s, y).alpha - 0.1)
    assert np.isnan(point_diagnostics(fit_power_law(s[:3], y[:3]))["alpha_without"]).all()


def test_pooling() -> None:
    same = pool([0.10, 0.11, 0.09], [0.02, 0.02, 0.02])
    assert same.between == 0
    assert same.shrunk == pytest.approx([0.10] * 3)
    apart = pool([0.1, 0.2, 0.3], [0.001] * 3)
    assert apart.between == pytest.approx(0.1, rel=0.01)
    assert apart.shrunk == pytest.approx([0.1, 0.2, 0.3], abs=1e-4)
    assert apart.mean.low < 0.2 < apart.mean.high
