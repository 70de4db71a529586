"""Fits of rank distributions: known parameters come back, sums are exact, Zipf's limit is said to be one."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.lognormal import Lognormal, RankSums, fit_ranks, integral_of_p1, largest_difference, maximum_likelihood
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

V = 512
SIZES = (1e6, 1e7, 1e8, 1e9)


def pmf(beta: float, gamma: float, vocab_size: int = V) -> np.ndarray:
    log = np.log(np.arange(1, vocab_size + 1))
    p = np.exp(-beta * log - gamma * log**2)
    return p / p.sum()


def drawn(beta: float, gamma: float, *, documents: int = 200, tokens: int = 100, seed: int = 0) -> RankTable:
    ranks = np.random.default_rng(seed).choice(np.arange(1, V + 1), size=documents * tokens, p=pmf(beta, gamma))
    return rank_table(ranks, documents=documents, vocab_size=V)


def sums_of(table: RankTable, *, documents: int) -> RankSums:
    log = np.log(table.rank).reshape(documents, -1)
    sums = np.column_stack([np.full(documents, log.shape[1]), log.sum(axis=1), (log**2).sum(axis=1)])
    return RankSums(sums, table.histogram())


@pytest.mark.parametrize(("beta", "gamma"), [(0.5, 0.05), (1.2, 0.0), (1.5, -0.02), (-1.0, 0.4)])
def test_the_likelihood_has_its_maximum_at_the_truth(beta: float, gamma: float) -> None:
    """From exact means of a distribution its own parameters come back."""
    p = pmf(beta, gamma)
    log = np.log(np.arange(1, V + 1))
    exponents, information, log_pmf = maximum_likelihood(np.array([p @ log, p @ log**2]), V)
    np.testing.assert_allclose(exponents, [beta, gamma], atol=1e-9)
    np.testing.assert_allclose(np.exp(log_pmf), p, rtol=1e-9)
    assert information[0, 0] == pytest.approx(p @ log**2 - (p @ log) ** 2)


def test_zipf_is_fitted_to_the_mean_logarithm_of_ranks() -> None:
    p = pmf(1.3, 0.0)
    exponents, *_ = maximum_likelihood(np.array([p @ np.log(np.arange(1, V + 1))]), V)
    assert exponents[0] == pytest.approx(1.3, abs=1e-9)


def test_the_largest_difference_by_hand() -> None:
    histogram = rank_table([1, 1, 1, 3], vocab_size=4).histogram()
    assert largest_difference(histogram, np.log(np.full(4, 0.25))) == pytest.approx(0.5)  # RBP_1 is 0.75 against 0.25


def test_the_gain_over_zipf_is_the_truth_of_the_distributions() -> None:
    """Ranks drawn from a lognormal: KL from the nearest Zipf's law, by exact sums, lies in the interval."""
    p = pmf(0.5, 0.1)
    zipf = maximum_likelihood(np.array([p @ np.log(np.arange(1, V + 1))]), V)[2]
    truth = float(p @ (np.log(p) - zipf))
    gain = Lognormal().analyze(family_runs({1e6: drawn(0.5, 0.1)})).frame("gain").iloc[0]
    assert gain["low"] < truth < gain["high"]
    assert gain["gain"] == pytest.approx(truth, rel=0.15)


def test_the_gain_is_that_of_the_log_likelihoods() -> None:
    table = drawn(0.6, 0.04)
    fitted = fit_ranks(sums_of(table, documents=200))
    expected = (fitted.lognormal - fitted.zipf)[table.rank - 1].mean()
    assert fitted.gain.value == pytest.approx(expected, rel=1e-9)


def test_leaving_a_document_out_is_a_step_from_the_maximum() -> None:
    """The jackknife's linear step agrees with a new fit without the document."""
    counts = sums_of(drawn(0.6, 0.04, documents=30), documents=30)
    fitted = fit_ranks(counts)
    rest = counts.sums[1:].sum(axis=0)
    again, *_ = maximum_likelihood(rest[1:] / rest[0], V)
    np.testing.assert_allclose(fitted.quantities(rest)[:2], again, atol=2e-4)
    assert abs(again - fitted.exponents).max() > 1e-4


def test_mu_over_sigma_of_a_family_changes_in_ln_s() -> None:
    """gamma is the same, beta rises with ln S: mu/sigma = (1 - beta)/sqrt(2 gamma) falls on a line."""
    gamma = 0.1
    betas = [0.2, 0.4, 0.6, 0.8]
    runs = family_runs({s: drawn(b, gamma, seed=i) for i, (s, b) in enumerate(zip(SIZES, betas, strict=True))})
    report = Lognormal().analyze(runs)
    check_charts_and_notes(report)
    assert (report.frame("gamma")["verdict"] == "above").all()
    assert (report.frame("gamma")["limit"] == "no").all()
    np.testing.assert_allclose(report.frame("beta")["beta"], betas, atol=0.08)
    slopes = report.frame("slope").set_index("quantity")
    expected = -0.2 / np.log(10) / np.sqrt(2 * gamma)
    assert slopes.loc["mu_over_sigma", "low"] < expected < slopes.loc["mu_over_sigma", "high"]
    rows = report.frame("mu_over_sigma")
    np.testing.assert_allclose(rows["mu"] / rows["sigma"], rows["mu_over_sigma"], rtol=1e-9)
    assert set(report.figures) == {"distribution", "implied", "mu_over_sigma"}


def test_zipf_s_limit_has_no_mu_and_sigma() -> None:
    report = Lognormal().analyze(family_runs({s: drawn(1.2, -0.03, seed=i) for i, s in enumerate(SIZES)}))
    check_charts_and_notes(report)
    gamma = report.frame("gamma")
    assert (gamma["limit"] == "yes").all()
    gain = report.frame("gain")
    assert (gain["gain"] == 0).all(), "the nearest lognormal is Zipf's law"
    assert gain[["low", "high"]].isna().all(axis=None)
    np.testing.assert_allclose(gain["ks_lognormal"], gain["ks_zipf"])
    assert "mu_over_sigma" not in report.questions
    assert "mu_over_sigma" not in set(report.frame("slope")["quantity"])
    assert any("mu/sigma" in note for note in report.notes)


def test_few_documents_decide_nothing() -> None:
    report = Lognormal().analyze(family_runs({s: drawn(0.5, 0.1, documents=100) for s in SIZES[:2]}))
    assert (report.frame("gamma")["limit"] == "unknown").all()
    assert "mu_over_sigma" not in report.questions
    assert report.tables["implied"]["neg_log_p1_integral"].isna().all(), "no mu and sigma, nor what follows from them"
    assert report.frame("gain")[["low", "high"]].isna().all(axis=None)
    assert "above 0" not in report.headline
    assert report.headline.startswith("No RBP_k"), "the answer comes before what cannot be tested"


def test_too_few_ranks_are_named() -> None:
    runs = family_runs({1e6: drawn(0.5, 0.1), 1e7: rank_table([1, 2, 1, 3] * 5000, documents=200, vocab_size=V)})
    report = Lognormal().analyze(runs)
    assert len(report.frame("gamma")) == 1
    assert "1e+07" in report.notes[0]


def test_runs_without_ranks_are_a_note() -> None:
    runs = family_runs({1e6: drawn(0.5, 0.1)}, without_ranks=True)
    runs.store.tables.clear()
    report = Lognormal().analyze(runs)
    assert not len(report.results)
    assert report.notes


def test_the_appendix_s_integral_can_exceed_1() -> None:
    """The integral equals the sum in the limit of wide distributions only; near rank 1 it gives p_1 > 1."""
    assert integral_of_p1(0.0, 0.3) < 0
    mu, sigma = 3.0, 6.0
    log = np.log(np.arange(1, 10**6))
    exact = np.log(np.exp(-log - (log - mu) ** 2 / (2 * sigma**2)).sum()) + mu**2 / (2 * sigma**2)
    assert integral_of_p1(mu, sigma) == pytest.approx(exact, abs=0.2)


class TestLognormal(NeedsRanks):
    analyzer = Lognormal()
