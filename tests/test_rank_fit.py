from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.lognormal.rank_distributions import CANDIDATES, Support
from rbptrack.plugins.lognormal.rank_fit import fit_all, fit_ranks, sampling_kl, vuong
from rbptrack.plugins.lognormal.rank_lognormal import fit_lognormal, information_covariance, log_sums

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankHistogram
from tests.test_rank_distributions import THETA

V = 4096
HOLDS = {
    "zipf": {"lognormal", "zipf_mandelbrot", "weibull", "point_mass_lognormal", "two_lognormals", "shifted_cutoff"},
    "lognormal": {"point_mass_lognormal", "two_lognormals"},
    "zipf_mandelbrot": {"shifted_cutoff"},
    "point_mass_lognormal": {"two_lognormals"},
}
"""Candidates that contain another one, at its border or exactly."""


def histogram(count: np.ndarray) -> RankHistogram:
    rank = np.flatnonzero(count) + 1
    return RankHistogram(rank, count[rank - 1], np.full(len(rank), -1.0), len(count))


def drawn(name: str, *, tokens: int = 300_000, vocab_size: int = V) -> RankHistogram:
    p = np.exp(CANDIDATES[name].log_pmf(np.array(THETA[name]), Support.exact(vocab_size)))
    return histogram(np.random.default_rng(7).multinomial(tokens, p / p.sum()))


@pytest.mark.parametrize("name", list(CANDIDATES))
def test_parameters_are_recovered_and_the_right_candidate_wins(name: str) -> None:
    data = drawn(name)
    fits = fit_ranks(data)
    truth = CANDIDATES[name].report(np.array(THETA[name]))
    for value, true in zip(fits[name].parameters.values(), truth, strict=True):
        assert value == pytest.approx(true, rel=0.1, abs=0.02)
    for other in fits.values():
        if other.candidate.name in HOLDS.get(name, ()):  # its extra parameters gain what chance gives
            assert other.aic > fits[name].aic - 6
        else:
            assert other.aic >= fits[name].aic
    assert fits[name].kl == pytest.approx(sampling_kl(fits[name], tokens=data.num_tokens), rel=0.3)
    assert fits[name].ks < 0.003


def test_numbers_of_a_fit_are_those_of_the_definition() -> None:
    data = drawn("shifted_cutoff", tokens=20_000)
    fit = fit_ranks(data, ["lognormal"])["lognormal"]
    p = np.exp(fit.log_pmf)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    observed = np.bincount(data.rank, weights=data.count, minlength=V + 1)[1:] / data.num_tokens
    seen = observed > 0
    assert fit.kl == pytest.approx(float(np.sum(observed[seen] * np.log(observed[seen] / p[seen]))))
    gap = np.abs(np.cumsum(p) - data.rbp_curve(np.arange(1, V + 1)))
    assert fit.ks == pytest.approx(gap.max())
    assert gap[fit.ks_at - 1] == gap.max()
    assert fit.log_likelihood == pytest.approx(float(np.sum(data.count * np.log(p[data.rank - 1]))))
    assert fit.entropy == pytest.approx(float(-np.sum(p * np.log(p))))
    assert fit.aic == pytest.approx(4 - 2 * fit.log_likelihood)


def test_a_maximum_is_a_maximum_of_the_exact_likelihood() -> None:
    """The nodes lead to the same optimum as term-by-term sums: no step away from it is better."""
    data = drawn("two_lognormals", vocab_size=20_000)
    every = Support.exact(20_000)
    for name, fit in fit_ranks(data).items():
        here = fit.log_likelihood / data.num_tokens
        for move in np.concatenate([np.eye(len(fit.theta)), -np.eye(len(fit.theta))]) * 1e-3:
            if name == "point_mass_lognormal" and (fit.theta + move)[0] <= 0:
                continue
            log_pmf = fit.candidate.log_pmf(fit.theta + move, every)
            if name in ("lognormal", "point_mass_lognormal") and (fit.theta + move)[-1] < 0:
                continue  # no lognormal beyond the border
            assert data.count @ log_pmf[data.rank - 1] / data.num_tokens < here + 1e-9, name


def test_convex_data_end_at_the_border() -> None:
    p = np.exp(CANDIDATES["two_lognormals"].log_pmf(np.array([1.0, 3.0, -9.0, 0.3, -9.0]), Support.exact(V)))
    data = histogram(np.random.default_rng(1).multinomial(100_000, p / p.sum()))
    fits = fit_ranks(data, ["zipf", "lognormal"])
    assert fits["lognormal"].parameters["gamma"] == 0
    assert fits["lognormal"].parameters["beta"] == pytest.approx(fits["zipf"].parameters["beta"])
    for both in fit_all([data, drawn("two_lognormals")], ["zipf", "lognormal"]):
        if both["lognormal"].theta[1] == 0:
            support = Support.nodes(V)
            documents = np.random.default_rng(0).poisson(50, (20, len(support.x))).astype(float)
            assert vuong(both["zipf"], both["lognormal"], documents, support) == 0, "they are the same"
    points = Support.nodes(V).project(data.rank, data.count)
    assert fit_lognormal(log_sums(points, Support.nodes(V)), Support.nodes(V))[1] < -0.01


def test_replicates_are_fitted_together_as_one_by_one() -> None:
    rng = np.random.default_rng(5)
    support = Support.nodes(V)
    p = np.exp(CANDIDATES["lognormal"].log_pmf(np.array(THETA["lognormal"]), Support.exact(V)))
    several = np.stack([support.project(np.arange(1, V + 1), rng.multinomial(5000, p / p.sum())) for _ in range(4)])
    sums = log_sums(several, support)
    np.testing.assert_allclose(sums[:, 0], 5000)
    together = fit_lognormal(sums, support, start=np.array(THETA["lognormal"]))
    np.testing.assert_allclose(together, [fit_lognormal(one, support) for one in sums], atol=1e-8)


def test_the_information_gives_the_spread_of_independent_samples() -> None:
    rng = np.random.default_rng(2)
    support, theta = Support.nodes(V), np.array(THETA["lognormal"])
    p = np.exp(CANDIDATES["lognormal"].log_pmf(theta, Support.exact(V)))
    draws = np.stack([support.project(np.arange(1, V + 1), c) for c in rng.multinomial(5000, p / p.sum(), size=300)])
    spread = np.cov(fit_lognormal(log_sums(draws, support), support).T)
    np.testing.assert_allclose(spread, information_covariance(theta, support, tokens=5000), rtol=0.3)
    assert np.corrcoef(fit_lognormal(log_sums(draws, support), support).T)[0, 1] < -0.9


def test_vuong_prefers_the_truth_and_counts_documents_not_tokens() -> None:
    data = drawn("shifted_cutoff", tokens=50_000)
    fits = fit_ranks(data, ["lognormal", "shifted_cutoff"])
    support = Support.nodes(V)
    tokens = np.random.default_rng(0).permutation(np.repeat(data.rank, data.count))
    documents = support.project_groups(np.arange(50_000) // 500, tokens, np.ones(50_000), groups=100)
    np.testing.assert_allclose(documents.sum(axis=0), support.project(data.rank, data.count), atol=1e-6)
    z = vuong(fits["shifted_cutoff"], fits["lognormal"], documents, support)
    assert z > 5
    assert vuong(fits["lognormal"], fits["shifted_cutoff"], documents, support) == pytest.approx(-z)
    per_token = fits["shifted_cutoff"].log_pmf - fits["lognormal"].log_pmf
    ratio = per_token[tokens - 1].reshape(100, 500).sum(axis=1)
    assert z == pytest.approx(ratio.sum() / np.sqrt(((ratio - ratio.mean()) ** 2).sum()), rel=1e-6)
    repeated = np.repeat(documents[:10], 10, axis=0)  # ten times the same ten documents, as if they were a hundred
    assert vuong(fits["shifted_cutoff"], fits["lognormal"], repeated, support) > z / 10


def test_a_billion_tokens_cost_what_a_hundred_thousand_do() -> None:
    """Only the histogram is read: the same shares give the same fit, whatever they are shares of."""
    few = drawn("shifted_cutoff", tokens=100_000, vocab_size=256_000)
    many = RankHistogram(few.rank, few.count * 10_000, few.logprob * 10_000, few.vocab_size)
    a, b = (fit_ranks(h, ["shifted_cutoff"])["shifted_cutoff"] for h in (few, many))
    np.testing.assert_allclose(a.theta, b.theta, rtol=1e-7)
    assert (a.kl, a.ks) == pytest.approx((b.kl, b.ks))
    assert len(Support.nodes(256_000).x) < 300


def test_too_few_ranks_are_refused() -> None:
    with pytest.raises(RbptrackError, match="only 3 different ranks occur"):
        fit_ranks(histogram(np.array([5, 2, 1, 0, 0])))
