import numpy as np
import pytest

from rbptrack.stats.forecasts import backtest
from rbptrack.stats.power_law import fit_power_law

S = np.geomspace(1e6, 1e9, 7)


def scattered(alpha, tau):
    return (S / S.max()) ** -alpha * np.exp(tau * np.random.default_rng(0).standard_normal(7))


def broken(bend, part):
    """A law of exponent 0.1 whose exponent is `bend` times that from a part of the way on; the truth at 5 times S."""
    x = np.log(np.append(S, 5 * S.max()) / S.max())
    return np.exp(-0.1 * (x + (bend - 1) * np.maximum(x - (1 - part) * x[0], 0)))


def floor(share):
    every = np.append(S, 5 * S.max())
    return share + (1 - share) * (every / S.max()) ** -0.1


@pytest.mark.parametrize("truth", [floor(0.0), floor(0.1), floor(0.3), broken(2.0, 0.8), broken(0.5, 0.8)])
def test_what_forecasts_say_of_a_law_that_bends_holds(truth):
    rng, right = np.random.default_rng(0), []
    for _ in range(40):
        y = truth[:-1] * np.exp(0.005 * rng.standard_normal(7))
        forecast = backtest([fit_power_law(S, y)]).forecast(0, 5 * S.max())
        right.append(bool(forecast.refused) or forecast.y.low <= truth[-1] <= forecast.y.high)
    assert np.mean(right) >= 0.9


def test_near_the_largest_size_most_are_answered():
    """At 1.46 times the largest size five of the demo's ten were refused."""
    rng = np.random.default_rng(1)
    laws = [fit_power_law(S, floor(share)[:-1] * np.exp(0.01 * rng.standard_normal(7))) for share in (0, 0.1, 0.3) * 3]
    tests = backtest(laws)
    assert not any(tests.forecast(i, 1.46 * S.max()).refused for i in range(9))


def test_no_forecast_where_none_was_tried():
    exact = backtest([fit_power_law(S, S**-0.1)])
    assert not exact.forecast(0, 10 * S.max()).refused
    assert "beyond 10 times the largest size" in exact.forecast(0, 11 * S.max()).refused, "100 times is tried once only"
    assert "4 sizes" in backtest([fit_power_law(S[:3], S[:3] ** -0.1)]).forecast(0, S[3]).refused
    assert "includes 0" in backtest([fit_power_law(S, scattered(0.001, 0.1))]).forecast(0, 2e9).refused
    assert "within a factor" in backtest([fit_power_law(S[:4], scattered(0.3, 0.15)[:4])]).forecast(0, S[4]).refused


def test_models_that_are_left_out_count_once():
    laws = [fit_power_law(S, floor(0.1)[:-1] ** power) for power in (1, 2, 3)]
    assert backtest(laws).models == 3
    assert backtest(laws, ["pythia", "pythia", "opt"]).models == 6
    assert len(backtest(laws).made) == 3 * (1 + 2 + 3)


def test_a_law_that_was_worse_predicted_than_the_others_has_its_own_width():
    odd, plain = fit_power_law(S, floor(0.4)[:-1]), fit_power_law(S, S**-0.1 * np.exp(1e-3 * np.cos(np.arange(7))))
    forecast = backtest([odd, *[plain] * 9], list("abcdefghij")).forecast(0, 2 * S.max())
    truth = 0.4 + 0.6 * 2**-0.1
    assert forecast.y.low <= truth <= forecast.y.high


def test_a_plain_law_without_scatter_is_forecast_closely():
    forecast = backtest([fit_power_law(S, S**-0.1)]).forecast(0, 10 * S.max())
    assert forecast.y.value == pytest.approx((10 * S.max()) ** -0.1, rel=1e-9)
    assert 1 <= forecast.y.high / forecast.y.low < 1.0001
