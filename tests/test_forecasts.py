import numpy as np
import pytest

from rbptrack.stats.forecasts import forecast
from rbptrack.stats.power_law import fit_power_law
from tests.test_irreducible import NOISE, S, law


def test_forecasts_cover_an_irreducible_share():
    covered = []
    for seed in range(40):
        y = law(0.5, alpha=0.1, tau=0.005, seed=seed)
        truth = 0.5 + 0.5 * 10**-0.1
        found = forecast(S, y, NOISE, S.max() * 10)
        covered.append(bool(found.refused) or found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.9
    plain = fit_power_law(S, law(0.5, tau=0.001), covariance=NOISE).forecast(S.max() * 10)
    assert plain[2] < 0.5 + 0.5 * 10**-0.3  # what the plain law says is too low


def test_forecasts_are_refused_where_forms_lie_far_apart():
    assert "factor" in forecast(S, law(0.3, alpha=0.6, tau=0.1), NOISE, S.max() * 1e4).refused
    assert "6 sizes" not in forecast(S[:6], law(0.0, s=S[:6]), NOISE[:6, :6], 2e9).refused
    assert "5 sizes" in forecast(S[:5], law(0.0, s=S[:5]), NOISE[:5, :5], 2e9).refused


def test_forecasts_are_refused_where_points_steepen():
    x = np.log(S / S[0])
    assert "steepen" in forecast(S, np.exp(-0.01 * x**2), NOISE, S.max() * 10).refused


@pytest.mark.parametrize(
    ("bend", "part", "tau"), [(2.0, 0.8, 0.005), (2.0, 0.8, 0.02), (0.5, 0.8, 0.005), (1.5, 0.6, 0.01)]
)
def test_what_a_broken_law_reaches_is_covered_or_refused(bend, part, tau):
    """Where M0 and M1 alone were allowed, intervals at ten times the largest size held the truth in 0 to 25 %."""
    every = np.append(S, 10 * S.max())
    x = np.log(every / S.max())
    place = (1 - part) * x[0]
    truth = np.exp(-0.1 * (x + (bend - 1) * np.maximum(x - place, 0)))
    rng, right = np.random.default_rng(0), []
    for _ in range(40):
        found = forecast(S, truth[:-1] * np.exp(tau * rng.standard_normal(len(S))), NOISE, every[-1])
        right.append(bool(found.refused) or found.low <= truth[-1] <= found.high)
    assert np.mean(right) >= 0.9


def test_a_plain_law_without_scatter_is_forecast_closely():
    found = forecast(S, S**-0.1, 1e-12 * np.eye(7), 10 * S.max())
    assert found.y == pytest.approx((10 * S.max()) ** -0.1, rel=1e-3)
    assert 1 < found.high / found.low < 1.02
