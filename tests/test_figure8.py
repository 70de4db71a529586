"""Figures 8b and 8c of the paper, against the package and the formulas that the authors used."""

from __future__ import annotations

import numpy as np
import powerlaw
import pytest
from rbptrack.plugins.reproduction import Reproduction
from rbptrack.plugins.reproduction.figure8 import (
    document_p,
    fit_ranks,
    likelihood_ratio,
    log_lognormal,
    log_power_law,
    predicted,
)
from scipy import integrate

from rbptrack.ranks import RankHistogram
from tests.synthetic import family_runs

VOCABULARY = 4096


def drawn(mu: float, sigma: float, tokens: int, seed: int) -> np.ndarray:
    ranks = np.rint(np.exp(np.random.default_rng(seed).normal(mu, sigma, tokens))).astype(int)
    return ranks[(ranks >= 1) & (ranks <= VOCABULARY)]


def histogram(ranks: np.ndarray) -> RankHistogram:
    rank, count = np.unique(ranks, return_counts=True)
    return RankHistogram(rank, count, -np.log(rank) * count, VOCABULARY)


@pytest.mark.parametrize(("mu", "sigma"), [(0.7, 2.3), (2.0, 1.0), (-1.0, 2.5)])
def test_fits_and_likelihood_ratio_are_those_of_powerlaw(mu: float, sigma: float) -> None:
    ranks = drawn(mu, sigma, 3000, seed=0)
    theirs = powerlaw.Fit(ranks, discrete=True, verbose=False, xmin=1)
    r, p = theirs.distribution_compare("power_law", "lognormal")
    counts = histogram(ranks)
    fit = fit_ranks(counts)
    assert fit.alpha == pytest.approx(theirs.power_law.alpha, rel=1e-9)
    assert fit.mu == pytest.approx(theirs.lognormal.mu, abs=1e-3)
    assert fit.sigma == pytest.approx(theirs.lognormal.sigma, rel=1e-3)
    ratio, ours = likelihood_ratio(fit.log_ratio(counts.rank), counts.count)
    assert ratio == pytest.approx(float(r), rel=1e-4)
    assert np.log(max(ours, 1e-300)) == pytest.approx(np.log(max(float(p), 1e-300)), rel=1e-3)


def test_both_distributions_sum_to_1() -> None:
    every = np.arange(1, 2_000_000)
    assert np.exp(log_lognormal(every, 0.5, 1.5)).sum() == pytest.approx(1, abs=1e-9)
    assert np.exp(log_power_law(every, 3.0)).sum() == pytest.approx(1, abs=1e-9)


def test_no_digits_are_lost_in_either_tail() -> None:
    """At 20 and more standard deviations the masses are beyond float64's cancellation."""
    for mu in (-30.0, 12.0):
        (mass,) = log_lognormal(np.array([5]), mu, 0.5)
        density = -((np.log(5) - mu) ** 2) / 0.5
        assert np.isfinite(mass)
        if mu > 0:
            assert mass == pytest.approx(density, rel=0.2)


def test_predictions_are_the_integrals_over_the_lognormal() -> None:
    """RBP_1 = p(1), and CE is the entropy, of exp(-(ln k - mu)^2 / 2 sigma^2) / k, summed by Euler and Maclaurin."""
    mu, sigma = 1.5, 2.0

    def psi(k: float) -> float:
        return float(np.exp(-((np.log(k) - mu) ** 2) / (2 * sigma**2)) / k)

    def summed(of_t: object) -> float:
        """Half the term at k = 1 and the integral over ln k."""
        inside, _ = integrate.quad(lambda t: of_t(np.exp(t)) * np.exp(t), 0, 60)
        return inside + of_t(1.0) / 2

    z = summed(psi)
    entropy = np.log(z) - summed(lambda k: psi(k) * np.log(psi(k)) if psi(k) > 0 else 0.0) / z
    neg_log_rbp, ce = predicted(mu, sigma)
    assert neg_log_rbp == pytest.approx(np.log(z) - np.log(psi(1.0)), rel=1e-9)
    assert ce == pytest.approx(entropy, rel=1e-6)


def test_documents_that_stick_together_raise_p() -> None:
    """Ten equal tokens a document: the variance of R is ten times that of independent tokens."""
    rng = np.random.default_rng(1)
    each = rng.normal(0.02, 1.0, 400)
    z = abs(each.sum() * 10) / np.sqrt(((10 * each - 10 * each.mean()) ** 2).sum() * 400 / 399)
    assert document_p(10 * each, np.full(400, 10.0)) == pytest.approx(2 * _tail(z), rel=1e-9)
    _, tokens_p = likelihood_ratio(each, np.full(400, 10))
    assert document_p(10 * each, np.full(400, 10.0)) > tokens_p
    assert np.isnan(document_p(each[:1], np.ones(1)))


def _tail(z: float) -> float:
    tail, _ = integrate.quad(lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), z, np.inf)
    return tail


def test_a_report_shows_theirs_beside_the_measured() -> None:
    runs = family_runs(np.geomspace(1e6, 1e9, 4), alpha=0.066, a=3.0, family="pythia", dataset="c4", tokens=2000)
    tables = Reproduction().analyze(runs).tables
    models = tables["figure_8b"].frame
    assert len(models) == 4
    first = models.iloc[0]
    counts = runs.histogram(runs.frame.sort_values("non_embedding_params")["run_id"].iloc[0])
    fit = fit_ranks(counts)
    assert first["mu"] == pytest.approx(fit.mu)
    assert first["neg_log_rbp_1"] == pytest.approx(predicted(fit.mu, fit.sigma)[0])
    assert first["neg_log_rbp_1_measured"] == pytest.approx(-np.log(counts.rbp(1)))
    assert first["ce_measured"] == pytest.approx(counts.ce)
    laws = tables["figure_8c"].frame.set_index("metric")
    assert laws.loc["ce", "measured"] == pytest.approx(0.066, abs=1e-3)
    expected = -np.polyfit(np.log(models["S"]), np.log(models["ce"]), 1)[0]
    assert laws.loc["ce", "predicted"] == pytest.approx(expected, rel=1e-9)
