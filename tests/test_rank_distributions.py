from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rbptrack.plugins.lognormal.rank_distributions import CANDIDATES, Support, lognormal, lognormal_cdfdiff
from rbptrack.plugins.lognormal.rank_lognormal import integral_approximation
from scipy import stats

THETA = {
    "zipf": [1.3],
    "lognormal": [0.8, 0.06],
    "lognormal_cdfdiff": [0.8, np.log(0.06)],
    "zipf_mandelbrot": [1.5, np.log(0.5)],
    "weibull": [np.log(0.2), np.log(0.6)],
    "negative_binomial": [np.log(0.15), -6.0],
    "point_mass_lognormal": [0.3, 0.6, 0.06],
    "two_lognormals": [0.3, 1.5, np.log(0.3), 0.2, np.log(0.08)],
    "shifted_cutoff": [1.1, np.log(0.4), np.log(1e-3)],
}


@pytest.mark.parametrize("vocab_size", [40, 97, 4096, 50304, 152064])
@pytest.mark.parametrize("name", list(CANDIDATES))
def test_sums_over_nodes_equal_sums_over_every_rank(name: str, vocab_size: int) -> None:
    log_pmf, theta = CANDIDATES[name].log_pmf, np.array(THETA[name])
    nodes, every = Support.nodes(vocab_size), Support.exact(vocab_size)
    exact, short = log_pmf(theta, every), log_pmf(theta, nodes)
    p = np.exp(exact)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert len(nodes.x) < 300
    np.testing.assert_allclose(short[:30], exact[:30], rtol=1e-10)
    data = nodes.project(np.arange(1, vocab_size + 1), p)
    assert data @ short == pytest.approx(p @ exact, rel=1e-9)  # the same likelihood


@given(beta=st.floats(-3, 5), gamma=st.floats(0, 3), vocab_size=st.sampled_from([300, 4096, 50304]))
def test_lognormals_of_any_shape_are_summed_exactly(beta: float, gamma: float, vocab_size: int) -> None:
    theta = np.array([beta, gamma])
    nodes, every = lognormal(theta, Support.nodes(vocab_size)), lognormal(theta, Support.exact(vocab_size))
    assert nodes[0] == pytest.approx(every[0], rel=1e-9, abs=1e-9)


def test_nodes_of_a_large_vocabulary_and_of_a_small_one() -> None:
    assert Support.nodes(50) is Support.exact(50)
    assert Support.nodes(256_000).weight.sum() == pytest.approx(256_000, rel=1e-12)


@pytest.mark.parametrize(("mu", "sigma"), [(-1.0, 2.5), (1.5, 1.0), (-8.0, 4.0)])
def test_brute_force(mu: float, sigma: float) -> None:
    k = np.arange(1, 3001)
    beta, gamma = 1 - mu / sigma**2, 1 / (2 * sigma**2)
    density = np.exp(-np.log(k) - (np.log(k) - mu) ** 2 / (2 * sigma**2))
    exact = Support.exact(3000)
    np.testing.assert_allclose(np.exp(lognormal(np.array([beta, gamma]), exact)), density / density.sum(), rtol=1e-10)
    above = stats.norm.sf((np.log(np.append(0.5, k + 0.5)) - mu) / sigma)  # the tail's differences, where cdf is 1
    cells = -np.diff(above) / (above[0] - above[-1])
    np.testing.assert_allclose(
        np.exp(lognormal_cdfdiff(np.array([beta, np.log(gamma)]), exact)), cells, rtol=1e-9, atol=1e-15
    )
    r, p = 0.3, 0.01
    nb = stats.nbinom.pmf(k - 1, r, p)
    theta = np.array([np.log(r), np.log(p / (1 - p))])
    np.testing.assert_allclose(np.exp(CANDIDATES["negative_binomial"].log_pmf(theta, exact)), nb / nb.sum(), rtol=1e-9)


def test_the_appendix_approximates_where_the_distribution_is_wide_and_fails_where_it_is_narrow() -> None:
    def exact(mu: float, sigma: float) -> tuple[float, float]:
        log_p = lognormal(np.array([1 - mu / sigma**2, 1 / (2 * sigma**2)]), Support.exact(200_000))
        return -float(log_p[0]), -float(np.exp(log_p) @ log_p)

    wide, (p1, entropy) = integral_approximation(3.0, 1.2), exact(3.0, 1.2)
    assert wide.entropy == pytest.approx(entropy, abs=0.02)
    assert wide.neg_log_p1_corrected == pytest.approx(p1, abs=0.005)
    steep = integral_approximation(-2.0, 1.0)
    assert steep.neg_log_p1 < 0 < exact(-2.0, 1.0)[0]  # the integral gives p_1 > 1
    assert abs(steep.entropy - exact(-2.0, 1.0)[1]) > 0.05
