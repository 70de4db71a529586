import numpy as np
import pytest

from rbptrack.stats.law_forms import compare_forms
from rbptrack.stats.power_law import fit_power_law, huber_alpha, pool, without_each


def noise(m: int, sd: float) -> np.ndarray:
    return sd**2 * (0.8 * np.ones((m, m)) + 0.2 * np.eye(m))


def test_no_irreducible_term_is_spoken_of_below_six_sizes() -> None:
    s = np.geomspace(1e6, 1e9, 5)
    verdict = compare_forms(s, 0.5 + 30 * s**-0.2, noise(5, 0.002))
    assert [fit.form for fit in verdict.fits] == ["M0"]
    assert verdict.text == "an irreducible term is not identifiable from 5 sizes"
    assert verdict.irreducible is None


def test_a_planted_irreducible_term_is_found() -> None:
    rng = np.random.default_rng(1)
    s = np.geomspace(1e6, 1e10, 10)
    y = (1.5 + 60 * s**-0.25) * np.exp(rng.normal(0, 0.003, 10))
    verdict = compare_forms(s, y, noise(10, 0.002))
    fit = verdict["M1"]
    assert verdict.preferred == "M1"
    assert fit.agreed
    assert fit.values["E"] == pytest.approx(1.5, abs=3 * fit.se["E"])
    assert fit.values["alpha"] == pytest.approx(0.25, abs=3 * fit.se["alpha"])
    assert fit.se["E"] < 0.2
    assert verdict.irreducible.p <= 0.0025
    assert verdict.irreducible.e_low < 1.5 < verdict.irreducible.e_high
    np.testing.assert_allclose(fit.predict(s), y, rtol=0.02)
    plain = fit_power_law(s, y)
    assert plain.r2 > 0.9, "R^2 hides it"
    assert plain.alpha < 0.2


def test_a_plain_law_is_rarely_called_richer() -> None:
    rng = np.random.default_rng(2)
    s = np.geomspace(1e6, 1e10, 8)
    chosen = []
    for _ in range(40):
        y = 30 * s**-0.1 * np.exp(rng.normal(0, 0.02, 8))
        chosen.append(compare_forms(s, y, noise(8, 0.002)).preferred)
    assert chosen.count("M0") >= 34  # a test of size 0.05


def test_a_planted_break_is_found_from_twelve_sizes() -> None:
    s = np.geomspace(1e6, 1e10, 14)
    y = 30 * s**-0.1 * np.where(s > 1e8, (s / 1e8) ** -0.15, 1) * np.exp(np.random.default_rng(3).normal(0, 0.01, 14))
    verdict = compare_forms(s, y, noise(14, 0.002))
    assert verdict.preferred == "M2"
    assert verdict["M2"].values["alpha"] == pytest.approx(0.1, abs=0.03)
    assert verdict["M2"].values["alpha2"] == pytest.approx(0.25, abs=0.03)


def test_an_exact_law_gives_its_parameters() -> None:
    s = np.geomspace(1e6, 1e9, 7)
    verdict = compare_forms(s, 30 * s**-0.2, np.zeros((7, 7)))
    assert verdict.preferred == "M0"
    assert verdict["M0"].values["alpha"] == pytest.approx(0.2, abs=1e-6)


def test_aicc_counts_tau() -> None:
    """Independent noise of unknown variance: the textbook formula of AICc for a line with 3 parameters."""
    rng = np.random.default_rng(4)
    s = np.geomspace(1e6, 1e9, 9)
    logs = np.log(30 * s**-0.1) + rng.normal(0, 0.05, 9)
    residual = logs - np.polyval(np.polyfit(np.log(s), logs, 1), np.log(s))
    variance = float(residual @ residual) / 9
    expected = 9 * np.log(2 * np.pi * variance) + 9 + 2 * 3 + 2 * 3 * 4 / (9 - 3 - 1)
    assert compare_forms(s, np.exp(logs), np.zeros((9, 9)))["M0"].aicc == pytest.approx(expected, abs=1e-3)


def test_influence_and_huber() -> None:
    s = np.geomspace(1e6, 1e9, 8)
    y = 30 * s**-0.1
    y[-1] *= 1.3
    without = without_each(s, y)
    assert without[-1] == pytest.approx(0.1)
    assert abs(without[:-1] - 0.1).min() > 0.01
    assert abs(huber_alpha(s, y) - 0.1) < abs(fit_power_law(s, y).alpha - 0.1)
    assert np.isnan(without_each(s[:3], y[:3])).all()


@pytest.mark.parametrize("m", [4, 6, 10])
def test_forecasts_cover(m: int) -> None:
    rng = np.random.default_rng(m)
    s, target = np.geomspace(1e6, 1e9, m), 1e10
    hits = 0
    for _ in range(500):
        noisy = 30 * s**-0.1 * np.exp(rng.normal(0, 0.02, m))
        _, low, high = fit_power_law(s, noisy).forecast(target)
        hits += low <= 30 * target**-0.1 * np.exp(rng.normal(0, 0.02)) <= high
    assert 0.92 <= hits / 500 <= 0.98


def test_pooling() -> None:
    same = pool([0.10, 0.11, 0.09], [0.02, 0.02, 0.02])
    assert same.between == 0
    assert same.shrunk == pytest.approx([0.10] * 3)
    apart = pool([0.1, 0.2, 0.3], [0.001] * 3)
    assert apart.between == pytest.approx(0.1, rel=0.01)
    assert apart.shrunk == pytest.approx([0.1, 0.2, 0.3], abs=1e-4)
    assert apart.low < 0.2 < apart.high
