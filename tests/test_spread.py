import numpy as np
import pytest
from scipy import stats

from rbptrack.stats.power_law import fit_power_law
from rbptrack.stats.spread import Spread

KNOWN = Spread(known=4.0, beyond=4.0, residual=0.0, freedom=2.0)


def test_what_is_known_is_normal() -> None:
    assert KNOWN.se == 2
    assert KNOWN.half(0.95) == pytest.approx(2 * stats.norm.ppf(0.975))
    assert KNOWN.p(3.0) == pytest.approx(2 * stats.norm.sf(1.5))


def test_what_is_estimated_is_t() -> None:
    spread = Spread.estimated(2.0, 3)
    assert spread.half(0.9) == pytest.approx(2 * stats.t.ppf(0.95, 3))
    assert spread.p(3.0) == pytest.approx(2 * stats.t.sf(1.5, 3))


def test_a_difference_of_estimates_is_welchs() -> None:
    a, b = np.array([1.0, 2.0, 4.0, 3.5]), np.array([0.5, 0.1, 0.9])
    both = Spread.estimated(stats.sem(a), 3) + Spread.estimated(stats.sem(b), 2)
    expected = stats.ttest_ind(a, b, equal_var=False)
    low, high = expected.confidence_interval(0.9)
    assert both.half(0.9) == pytest.approx((high - low) / 2)
    assert both.p(a.mean() - b.mean()) == pytest.approx(expected.pvalue)


def test_p_and_half_are_each_others_inverse() -> None:
    mixed = Spread(known=1.0, beyond=0.7, residual=0.5, freedom=2.5)
    for level in (0.5, 0.9, 0.999):
        assert mixed.p(mixed.half(level)) == pytest.approx(1 - level)
    assert mixed.half(0.95) >= stats.norm.ppf(0.975), "never narrower than what is known"
    assert mixed.p_beyond(0.0) == 0.5
    assert mixed.p_beyond(-1.0) + mixed.p_beyond(1.0) == pytest.approx(1)


def test_what_both_share_is_taken_off() -> None:
    assert (KNOWN + KNOWN).minus_shared(4.0).se == 0
    assert (KNOWN + KNOWN).minus_shared(1.0).se == pytest.approx(np.sqrt(6))


def test_values_far_away_have_p_0_also_with_one_degree_of_freedom() -> None:
    assert Spread(known=1.0, beyond=0.9, residual=0.1, freedom=1.0).p(1e30) == 0


def test_no_error_at_all() -> None:
    nothing = Spread(0.0, 0.0, 0.0, 3.0)
    assert (nothing.half(0.95), nothing.p(0.0), nothing.p(0.1)) == (0, 1, 0)


@pytest.mark.parametrize(
    ("m", "tau", "low", "high"), [(4, 0.0, 0.96, 0.995), (4, 2.0, 0.94, 0.98), (6, 0.0, 0.95, 0.99)]
)
def test_known_noise_narrows_intervals_of_few_sizes(m: int, tau: float, low: float, high: float) -> None:
    """With t for all of it 4 sizes without scatter were covered in 100%; noise that tilts the line is known."""
    rng = np.random.default_rng(m)
    s, x = np.geomspace(1e5, 1e9, m), np.linspace(-1, 1, m)
    noise = 0.01**2 * (np.eye(m) + 0.5 * np.outer(x, x))
    root = np.linalg.cholesky(noise + (0.01 * tau) ** 2 * np.eye(m))
    hits = 0
    for _ in range(1000):
        fit = fit_power_law(s, s**-0.1 * np.exp(root @ rng.standard_normal(m)), covariance=noise)
        hits += fit.low <= 0.1 <= fit.high
    assert low <= hits / 1000 <= high
