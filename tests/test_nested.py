import numpy as np
import pytest
from scipy import stats

from rbptrack.base.errors import RbptrackError
from rbptrack.stats.nested import fit_nested, pure_error
from rbptrack.stats.power_law import fit_power_law

SIZES = np.geomspace(1e4, 1e6, 6)


def drawn(rng, *, seeds, recipe=0.0, seed=0.0, bend=0.0):
    s = np.repeat(SIZES, seeds)
    x = np.log(s / 1e5)
    y = np.exp(-0.2 * x + bend * x**2 + np.repeat(recipe * rng.standard_normal(6), seeds))
    return s, y * np.exp(seed * rng.standard_normal(len(s)))


def test_scatters_are_told_apart():
    rng = np.random.default_rng(0)
    fits = [fit_nested(*drawn(rng, seeds=6, recipe=0.03, seed=0.01)) for _ in range(20)]
    assert np.median([f.recipe for f in fits]) == pytest.approx(0.03, rel=0.3)
    assert np.median([f.seed for f in fits]) == pytest.approx(0.01, rel=0.15)


def test_one_run_per_size_is_the_plain_law():
    s, y = drawn(np.random.default_rng(1), seeds=1, recipe=0.02)
    nested, plain = fit_nested(s, y), fit_power_law(s, y)
    assert nested.exponent.value == pytest.approx(plain.alpha)
    assert nested.log_a == pytest.approx(plain.log_a)
    assert nested.recipe == pytest.approx(plain.tau, rel=1e-3)
    assert nested.se == pytest.approx(stats.linregress(np.log(s), np.log(y)).stderr, rel=1e-3)
    assert np.isnan(nested.p)


def test_sizes_with_more_runs_weigh_more():
    x = np.log(SIZES / SIZES[0])
    y = np.exp(-0.2 * x)
    y[-1] *= 1.2
    one = fit_nested(SIZES, y).exponent.value
    s = np.concatenate([SIZES, np.repeat(SIZES[:-1], 5)])
    noise = np.exp(0.05 * np.random.default_rng(2).standard_normal(25))
    more = fit_nested(s, np.concatenate([y, np.repeat(y[:-1], 5) * noise])).exponent.value
    assert abs(more - 0.2) < abs(one - 0.2)


def test_pure_error_rejects_a_bend_and_keeps_a_line():
    rng = np.random.default_rng(3)
    lines = [pure_error(*drawn(rng, seeds=3, seed=0.01))[1] for _ in range(300)]
    assert np.mean(np.array(lines) < 0.05) == pytest.approx(0.05, abs=0.04)
    assert fit_nested(*drawn(rng, seeds=3, seed=0.01, bend=0.01)).p < 0.001


def test_documents_that_tilt_all_sizes_are_no_lack_of_fit():
    """Sampling error that bends every size alike is taken off."""
    rng = np.random.default_rng(4)
    x = np.log(np.repeat(SIZES, 3) / 1e5)
    curve = 0.02 * x**2 / (x**2).max()
    rejected = []
    for _ in range(100):
        s, y = drawn(rng, seeds=3, seed=0.005)
        y = y * np.exp(curve * rng.standard_normal())
        rejected.append(pure_error(s, y, np.outer(curve, curve))[1] < 0.05)
    assert 0 < np.mean(rejected) < 0.12


def test_what_cannot_be_fitted():
    with pytest.raises(RbptrackError, match="at least 3 sizes"):
        fit_nested([1.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    with pytest.raises(RbptrackError, match="positive"):
        fit_nested(SIZES, -SIZES)
