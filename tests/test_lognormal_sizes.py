from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.lognormal.rank_sizes import lognormal_trend, mu_over_sigma

S = np.geomspace(1e4, 1e7, 6)
X = np.log(S) - np.log(S).mean()


def theta_of(gamma: float) -> np.ndarray:
    """beta and gamma as lines in ln S."""
    return np.column_stack([0.8 + 0.03 * X, gamma + 0.004 * X])


def drawn(rng: np.random.Generator, truth: np.ndarray, scatter: float) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and replicates whose sampling errors in beta and gamma are correlated at -0.9, shared between sizes."""
    root = np.linalg.cholesky([[1, -0.9], [-0.9, 1]]) * [[0.02], [0.004]]

    def errors(n: int) -> np.ndarray:
        shared, own = rng.standard_normal((n, 1, 2)), rng.standard_normal((n, len(S), 2))
        return (0.8 * shared + 0.6 * own) @ root.T

    models = scatter * rng.standard_normal(truth.shape) * [0.02, 0.004]
    estimate = truth + models + errors(1)[0]
    return estimate, estimate[:, None] + np.moveaxis(errors(300), 0, 1)


def test_lines_without_error_are_recovered() -> None:
    theta = theta_of(0.08)
    trend = lognormal_trend(S, theta, np.repeat(theta[:, None], 10, axis=1), level=0.95)
    assert trend.beta.value == pytest.approx(0.03)
    assert trend.gamma.value == pytest.approx(0.004)
    assert trend.r2 == pytest.approx([1, 1])
    assert trend.mu_over_sigma is not None
    near = [np.array([0.8 + 0.03 * x, 0.08 + 0.004 * x]) for x in (-1e-5, 1e-5)]
    derivative = (mu_over_sigma(near[1]) - mu_over_sigma(near[0])) / 2e-5
    assert trend.mu_over_sigma.value == pytest.approx(float(derivative), rel=1e-6)
    assert trend.mu_over_sigma.low == pytest.approx(trend.mu_over_sigma.high)


@pytest.mark.parametrize("scatter", [0.0, 2.0])
def test_intervals_cover_with_and_without_scatter_between_models(scatter: float) -> None:
    rng, truth = np.random.default_rng(1), theta_of(0.05)
    exact = lognormal_trend(S, truth, np.repeat(truth[:, None], 10, axis=1), level=0.95).mu_over_sigma
    assert exact is not None
    inside = []
    for _ in range(120):
        trend = lognormal_trend(S, *drawn(rng, truth, scatter), level=0.95)
        inside.append([trend.beta.low < 0.03 < trend.beta.high, trend.gamma.low < 0.004 < trend.gamma.high])
        if trend.mu_over_sigma:
            inside[-1].append(trend.mu_over_sigma.low < exact.value < trend.mu_over_sigma.high)
    assert all(np.mean([row[i] for row in inside]) > 0.9 for i in range(2))
    ratios = [row[2] for row in inside if len(row) > 2]
    assert len(ratios) > 60
    assert np.mean(ratios) > 0.88


def test_near_zipf_there_is_no_mu_over_sigma() -> None:
    trend = lognormal_trend(S, *drawn(np.random.default_rng(0), theta_of(0.001), 1.0), level=0.95)
    assert trend.mu_over_sigma is None
