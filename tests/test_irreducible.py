import numpy as np
import pytest

from rbptrack.errors import RbptrackError
from rbptrack.stats.irreducible import SHARES, Profile, irreducible_term

S = np.geomspace(1e6, 1e9, 7)
NOISE = np.full((7, 7), 0.02**2) + np.eye(7) * 1e-6  # documents move all sizes together


def law(share, *, alpha=0.3, tau=0.0, seed=0, s=S):
    """y = E + A S^-alpha whose E is this share of y at the largest size, where y = 1."""
    y = share + (1 - share) * (s / s.max()) ** -alpha
    return y * np.exp(tau * np.random.default_rng(seed).standard_normal(len(s)))


def test_a_clear_irreducible_term_is_supported_and_its_share_found():
    found = irreducible_term(S, law(0.6, tau=0.001), NOISE)
    assert found.verdict == "supported"
    assert found.p <= 0.01
    assert found.share_low < 0.6 < found.share_high
    assert found.e == pytest.approx(0.6, abs=0.05)
    assert found.alpha == pytest.approx(0.3, abs=0.05)


def test_six_sizes_are_enough_where_the_data_are_clear():
    s = S[:6]
    assert irreducible_term(s, law(0.6, s=s, tau=0.001), NOISE[:6, :6]).verdict == "supported"


def test_a_plain_law_with_little_scatter_excludes_it():
    found = irreducible_term(S, law(0.0, tau=0.0005), NOISE)
    assert found.verdict == "rejected"
    assert found.share_high <= 0.1


def test_much_scatter_leaves_it_open():
    found = irreducible_term(S, law(0.3, tau=0.08, seed=1), NOISE)
    assert found.verdict == "undecided"
    assert found.share_high > 0.5


def test_the_grid_gives_the_likelihood_of_its_laws():
    """-2 ln L at a grid point is that of the normal density with the level at its best."""
    profile = Profile.of(S, law(0.3, tau=0.01), NOISE)
    deviance, level = profile.own
    at = (5, 11, 4)
    fitted = level[at] + profile.shape(profile.x)[at[0], at[1]]
    v = NOISE + profile.tau2[at[2]] * np.eye(7)
    r = profile.values - fitted
    expected = np.linalg.slogdet(v)[1] + r @ np.linalg.solve(v, r)
    assert deviance[at] == pytest.approx(expected, rel=1e-6)
    assert np.ones(7) @ np.linalg.solve(v, r) == pytest.approx(0, abs=1e-6)  # no better level


def test_shapes_have_the_slope_and_share_they_are_named_by():
    profile = Profile.of(S, law(0.3, tau=0.01), NOISE)
    middle, h = profile.x.mean(), 1e-4
    shape = profile.shape(np.array([middle - h, middle + h, 0.0]))
    np.testing.assert_allclose(
        (shape[..., 0] - shape[..., 1])[:-2] / (2 * h), np.tile(profile.slopes, (len(SHARES) - 2, 1)), rtol=1e-3
    )
    np.testing.assert_allclose(shape[..., 2], 0, atol=1e-12)


def test_too_few_sizes():
    with pytest.raises(RbptrackError, match="at least 4 sizes; got 3"):
        irreducible_term(S[:3], law(0.0)[:3], NOISE[:3, :3])
