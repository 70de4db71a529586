"""Tests of the analyzer `lognormal`, which fits a lognormal distribution and Zipf's law to ranks."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from plugins.lognormal import Lognormal, LogRankSums, fit_ranks, largest_difference, maximum_likelihood
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

V = 512
SIZES = (1e6, 1e7, 1e8, 1e9)


def lognormal_pmf(beta: float, gamma: float) -> np.ndarray:
    """Return the probabilities of the ranks R from 1 to V, (V,), which are proportional to R^-(beta + gamma ln R)."""
    log = np.log(np.arange(1, V + 1))
    p = np.exp(-beta * log - gamma * log**2)
    return p / p.sum()


def lognormal_ranks(beta: float, gamma: float, *, documents: int = 200, seed: int = 0) -> RankTable:
    """Return ranks drawn from `lognormal_pmf`, in documents of 100 tokens."""
    rng = np.random.default_rng(seed)
    ranks = rng.choice(np.arange(1, V + 1), size=documents * 100, p=lognormal_pmf(beta, gamma))
    return rank_table(ranks, documents=documents, vocab_size=V)


def rank_sums(table: RankTable, *, documents: int) -> LogRankSums:
    """Return the sums over documents of equal length: tokens, ln R and (ln R)^2."""
    log = np.log(table.rank).reshape(documents, -1)
    sums = np.column_stack([np.full(documents, log.shape[1]), log.sum(axis=1), (log**2).sum(axis=1)])
    return LogRankSums(sums, table.histogram())


@pytest.mark.parametrize(("beta", "gamma"), [(0.5, 0.05), (1.2, 0.0), (1.5, -0.02), (-1.0, 0.4)])
def test_maximum_likelihood_recovers_parameters_from_exact_means(beta: float, gamma: float) -> None:
    p = lognormal_pmf(beta, gamma)
    log = np.log(np.arange(1, V + 1))
    exponents, information, log_pmf = maximum_likelihood(np.array([p @ log, p @ log**2]), V)
    np.testing.assert_allclose(exponents, [beta, gamma], atol=1e-9)
    np.testing.assert_allclose(np.exp(log_pmf), p, rtol=1e-9)
    assert information[0, 0] == pytest.approx(p @ log**2 - (p @ log) ** 2)


def test_log_rank_sums_add_their_histograms_and_cannot_be_joined() -> None:
    """A histogram is that of all documents, so joined sums would have the histogram of one part."""
    sums = rank_sums(lognormal_ranks(1.0, 0.1, documents=2), documents=2)
    assert (sums + sums).histogram.num_tokens == 2 * sums.histogram.num_tokens
    with pytest.raises(TypeError):
        LogRankSums.concatenate([sums, sums])


def test_maximum_likelihood_of_one_mean_recovers_exponent_of_zipfs_law() -> None:
    p = lognormal_pmf(1.3, 0.0)
    exponents, *_ = maximum_likelihood(np.array([p @ np.log(np.arange(1, V + 1))]), V)
    assert exponents[0] == pytest.approx(1.3, abs=1e-9)


def test_largest_difference_of_four_tokens_from_uniform_distribution() -> None:
    """RBP_1 is 0.75 if the ranks are 1, 1, 1 and 3, and 0.25 in the uniform distribution over four ranks."""
    rbp = np.array([0.75, 0.75, 1.0, 1.0])
    assert largest_difference(rbp, np.log(np.full(4, 0.25))) == pytest.approx(0.5)


def test_gain_of_lognormal_ranks_covers_exact_kl_from_nearest_zipf_law() -> None:
    p = lognormal_pmf(0.5, 0.1)
    log_zipf_pmf = maximum_likelihood(np.array([p @ np.log(np.arange(1, V + 1))]), V)[2]
    kl = float(p @ (np.log(p) - log_zipf_pmf))
    gain = Lognormal().analyze(family_runs({1e6: lognormal_ranks(0.5, 0.1)})).frame("gain").iloc[0]
    assert gain["low"] < kl < gain["high"]
    assert gain["gain"] == pytest.approx(kl, rel=0.15)


def test_gain_is_mean_difference_of_log_likelihoods() -> None:
    table = lognormal_ranks(0.6, 0.04)
    fitted = fit_ranks(rank_sums(table, documents=200))
    expected = (fitted.lognormal - fitted.zipf)[table.rank - 1].mean()
    assert fitted.gain.value == pytest.approx(expected, rel=1e-9)


def test_quantities_without_a_document_are_those_of_new_fit() -> None:
    """`quantities` takes one linear step from the maximum; `maximum_likelihood` fits anew."""
    counts = rank_sums(lognormal_ranks(0.6, 0.04, documents=30), documents=30)
    fitted = fit_ranks(counts)
    totals = counts.sums[1:].sum(axis=0)
    exponents, *_ = maximum_likelihood(totals[1:] / totals[0], V)
    np.testing.assert_allclose(fitted.quantities(totals)[:2], exponents, atol=2e-4)
    assert abs(exponents - fitted.exponents).max() > 1e-4


GAMMA = 0.1
BETAS = [0.2, 0.4, 0.6, 0.8]


@pytest.fixture(scope="module")
def report_of_four_sizes() -> Report:
    """The report on four sizes with the same gamma, and with beta rising by 0.2 per decade of S."""
    tables = {s: lognormal_ranks(BETAS[i], GAMMA, seed=i) for i, s in enumerate(SIZES)}
    return Lognormal().analyze(family_runs(tables))


def test_lognormal_recovers_beta_and_positive_gamma(report_of_four_sizes: Report) -> None:
    assert (report_of_four_sizes.frame("gamma")["verdict"] == "above").all()
    assert (report_of_four_sizes.frame("gamma")["limit"] == "no").all()
    np.testing.assert_allclose(report_of_four_sizes.frame("beta")["beta"], BETAS, atol=0.08)


def test_slope_of_mu_over_sigma_covers_true_slope_in_ln_s(report_of_four_sizes: Report) -> None:
    """mu/sigma = (1 - beta)/sqrt(2 gamma)."""
    slope = report_of_four_sizes.frame("slope").set_index("quantity").loc["mu_over_sigma"]
    expected = -0.2 / np.log(10) / np.sqrt(2 * GAMMA)
    assert slope["low"] < expected < slope["high"]


def test_mu_over_sigma_is_ratio_of_mu_and_sigma(report_of_four_sizes: Report) -> None:
    rows = report_of_four_sizes.frame("mu_over_sigma")
    np.testing.assert_allclose(rows["mu"] / rows["sigma"], rows["mu_over_sigma"], rtol=1e-9)


def test_r2_in_s_is_that_of_a_line_in_s(report_of_four_sizes: Report) -> None:
    slope = report_of_four_sizes.frame("slope").set_index("quantity").loc["beta"]
    betas = report_of_four_sizes.frame("beta")["beta"].to_numpy()
    assert slope["slope"] == pytest.approx(stats.linregress(np.log(SIZES), betas).slope)
    assert slope["R2_in_S"] == pytest.approx(stats.linregress(SIZES, betas).rvalue ** 2)


def test_implied_entropy_is_that_of_the_shares_of_ranks() -> None:
    table = lognormal_ranks(0.5, 0.1)
    (row,) = Lognormal().analyze(family_runs({1e6: table})).tables["implied"].to_dict("records")
    assert row["entropy"] == pytest.approx(stats.entropy(np.bincount(table.rank)))


def test_chart_of_distribution_has_shares_of_tokens_per_rank(report_of_four_sizes: Report) -> None:
    """Above 10, a point is the mean over a bin of ranks."""
    chart = report_of_four_sizes.figures["distribution"].to_dict()
    (csv,) = chart["datasets"].values()
    points = pd.read_csv(StringIO(csv))
    rank, share = points.columns[2:]
    largest = lognormal_pmf(BETAS[-1], GAMMA)
    fitted = points[points["distribution"] == "lognormal"].set_index(rank)[share]
    assert fitted.iloc[0] == pytest.approx(largest[0], rel=0.05)
    assert np.interp(100, fitted.index, fitted) == pytest.approx(largest[99], rel=0.2)


def test_report_of_lognormal_has_three_charts(report_of_four_sizes: Report) -> None:
    check_charts_and_notes(report_of_four_sizes)
    assert set(report_of_four_sizes.figures) == {"distribution", "implied", "mu_over_sigma"}


def test_report_of_negative_gamma_has_no_number_of_a_lognormal() -> None:
    report = Lognormal().analyze(family_runs({s: lognormal_ranks(1.2, -0.03, seed=i) for i, s in enumerate(SIZES)}))
    check_charts_and_notes(report)
    gamma = report.frame("gamma")
    assert (gamma["limit"] == "no lognormal").all()
    assert gamma["ks_zipf"].notna().all()
    assert not {"gain", "mu_over_sigma"} & set(report.questions)
    assert report.tables["implied"][["neg_log_p1_lognormal", "entropy_lognormal"]].isna().all(axis=None)
    assert "no lognormal fits in all 4 measurements" in report.headline
    assert "RBP" not in report.headline
    assert "mu_over_sigma" not in set(report.frame("slope")["quantity"])
    assert any("mu/sigma" in note for note in report.notes)


def test_lognormal_of_100_documents_has_no_intervals_and_no_mu_and_sigma() -> None:
    report = Lognormal().analyze(family_runs({s: lognormal_ranks(0.5, 0.1, documents=100) for s in SIZES[:2]}))
    assert (report.frame("gamma")["limit"] == "unknown").all()
    assert "mu_over_sigma" not in report.questions
    assert report.frame("gain")[["low", "high"]].isna().all(axis=None)
    assert "above 0" not in report.headline
    assert report.headline.startswith("No RBP_k"), "the headline begins with what was found"


def test_lognormal_leaves_out_size_with_three_different_ranks_and_names_it() -> None:
    table_of_three_ranks = rank_table([1, 2, 1, 3] * 5000, documents=200, vocab_size=V)
    report = Lognormal().analyze(family_runs({1e6: lognormal_ranks(0.5, 0.1), 1e7: table_of_three_ranks}))
    assert len(report.frame("gamma")) == 1
    assert "1e+07" in report.notes[0]


def test_lognormal_of_runs_without_ranks_has_notes_alone() -> None:
    runs = family_runs({1e6: lognormal_ranks(0.5, 0.1)}, without_ranks=True)
    runs = Runs(runs.frame, RankTables({}))
    report = Lognormal().analyze(runs)
    assert not len(report.results)
    assert report.notes


class TestContract(NeedsRanks):
    analyzer = Lognormal()
