from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.lognormal import Lognormal
from rbptrack.plugins.lognormal.rank_distributions import CANDIDATES, Support, lognormal

from rbptrack.analysis import Report
from rbptrack.base.errors import RbptrackError
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, runs_of, unreadable, with_columns

V = 2048
SIZES = np.geomspace(1e4, 1e7, 4)


def pmf(name: str, theta: list[float]) -> list[float]:
    p = np.exp(CANDIDATES[name].log_pmf(np.array(theta), Support.exact(V)))
    return list(p / p.sum())


@pytest.fixture(scope="module")
def planted() -> Report:
    """mu/sigma falls by 0.3 per unit of ln S, sigma = 2.5: a true lognormal at every size."""
    ratio = 1.5 - 0.3 * np.log(SIZES / SIZES[0])
    thetas = [[1 - r / 2.5, 1 / (2 * 2.5**2)] for r in ratio]
    runs = runs_of(SIZES, [pmf("lognormal", t) for t in thetas], documents=50, tokens=3000)
    return Lognormal(replicates=100).analyze(runs)


def test_a_true_lognormal_is_recovered_with_what_it_implies(planted: Report) -> None:
    table, candidates = planted.tables["lognormal"].frame, planted.tables["candidates"].frame
    assert not table["power_law_limit"].any()
    assert table["gamma"].to_numpy() == pytest.approx(0.08, rel=0.05)
    assert table["sigma"].to_numpy() == pytest.approx(2.5, rel=0.05)
    assert ((table["gamma_low"] < 0.08) & (table["gamma_high"] > 0.08)).sum() >= 3
    assert table["interval_from"].eq("documents").all()
    exact = lognormal(np.array([1 - 1.5 / 2.5, 0.08]), Support.exact(V))
    assert table["neg_log_p1_implied"].iloc[0] == pytest.approx(-exact[0], rel=0.02)
    assert table["entropy_implied"].iloc[0] == pytest.approx(-np.exp(exact) @ exact, rel=0.01)
    assert table["entropy_implied"].to_numpy() == pytest.approx(table["entropy_miller_madow"].to_numpy(), rel=0.01)
    own = candidates[candidates["candidate"] == "lognormal"]
    assert (own["aic_above_best"] < 6).all()
    assert (candidates.loc[candidates["candidate"] == "negative_binomial", "vuong_z"] < -2).all()
    assert (own["kl"].to_numpy() < 1.3 * table["kl_floor"].to_numpy()).all()


def test_the_appendix_s_terms_add_up_and_work_against_each_other(planted: Report) -> None:
    table = planted.tables["lognormal"].frame
    assert table["square_term"].iloc[0] == pytest.approx(1.5**2 / 2, rel=0.1)  # mu/sigma = 1.5 at the smallest size
    assert (table["square_term"] + table["log_c"]).to_numpy() == pytest.approx(table["neg_log_p1_implied"].to_numpy())
    c = np.exp(-((np.log(np.arange(1, V + 1)) - 1.5 * 2.5) ** 2) / (2 * 2.5**2)) / np.arange(1, V + 1)
    assert table["log_c"].iloc[0] == pytest.approx(np.log(c.sum()), abs=0.1)
    assert table["square_term"].iloc[1] < table["square_term"].iloc[0]
    assert "appendix_terms" in planted.drawings
    assert any("(appendix B.4)" in note for note in sentences_of(planted.findings))


def test_mu_over_sigma_is_a_line_in_ln_s(planted: Report) -> None:
    trend = planted.tables["trends"].frame.set_index("quantity").loc["mu_over_sigma"]
    assert trend["slope_low"] < -0.3 < trend["slope_high"]
    assert trend["slope"] == pytest.approx(-0.3, abs=0.03)
    assert trend["r2"] > 0.98 > trend["r2_in_s"]


def test_a_truncated_zipf_law_is_the_power_law_limit_and_never_a_huge_mu() -> None:
    report = Lognormal(replicates=100).analyze(runs_of(SIZES, [pmf("zipf", [1.3])] * 4, documents=50, tokens=2000))
    table = report.tables["lognormal"].frame
    assert table["power_law_limit"].sum() >= 3  # gamma is 0: a 95% interval may miss it now and then
    limited = table[table["power_law_limit"]]
    assert limited[["mu", "sigma", "mu_over_sigma", "entropy_integral"]].isna().all(axis=None)
    assert (table["beta"] - 1.3).abs().max() < 0.05
    said = sentences_of(report.findings)
    assert "of 4 it agrees with Zipf's law, too" in said[0]
    assert any("undecided how mu/sigma changes with S" in sentence for sentence in said)


def test_gamma_below_0_excludes_zipfs_law_too() -> None:
    """It was said that it may be Zipf's law wherever gamma's interval did not lie above 0."""
    k = np.arange(1, V + 1)
    convex = np.exp(-1.8 * np.log(k) + 0.06 * np.log(k) ** 2)
    report = Lognormal(replicates=100).analyze(runs_of(SIZES[:1], [list(convex)], documents=50, tokens=2000))
    row = report.tables["summary"].frame.iloc[0]
    assert row["gamma_high"] < 0
    assert row["shape"] == "convex: neither lognormal nor Zipf"
    assert "1 of 1 gamma lies below 0, which excludes both" in sentences_of(report.findings)[0]
    assert "agrees with Zipf" not in " ".join(sentences_of(report.findings))


def test_without_stored_ranks_the_interval_comes_from_the_likelihood_and_says_so() -> None:
    whole = runs_of(SIZES[:1], [pmf("lognormal", [0.8, 0.06])], documents=50, tokens=2000, rbp_1_se=0.01)
    runs = changed(whole, ranks=unreadable)
    effect = 0.01**2 * 100_000 / (whole.frame["rbp_1"].item() * (1 - whole.frame["rbp_1"].item()))
    row = Lognormal().analyze(runs).tables["lognormal"].frame.iloc[0]
    assert row["interval_from"] == f"likelihood, design effect {effect:.1f}"
    by_documents = Lognormal().analyze(whole).tables["lognormal"].frame.iloc[0]
    wider = (row["gamma_high"] - row["gamma_low"]) / (by_documents["gamma_high"] - by_documents["gamma_low"])
    assert wider == pytest.approx(np.sqrt(effect), rel=0.3)  # the synthetic tokens are independent: effect 1
    ratio = [r["mu_over_sigma_high"] - r["mu_over_sigma_low"] for r in (row, by_documents)]
    assert ratio[0] / ratio[1] == pytest.approx(wider, rel=0.3)  # 0.1 if errors of beta and gamma rise together


def test_documents_that_differ_widen_the_interval() -> None:
    plain = runs_of(SIZES[:1], [pmf("lognormal", [0.8, 0.06])], documents=40, tokens=1000)
    table = plain.ranks("toy-text-0")
    order = np.argsort(table.rank, kind="stable")  # the same ranks, sorted into documents
    mixed = changed(plain, ranks=lambda _: with_columns(table, greater=table.column("greater")[order]))
    widths = [
        np.ptp(Lognormal(replicates=100).analyze(r).tables["lognormal"].frame[["gamma_low", "gamma_high"]].to_numpy())
        for r in (plain, mixed)
    ]
    assert widths[1] > 5 * widths[0]


def test_a_size_with_too_few_ranks_is_left_out_and_named() -> None:
    few = [0.9, 0.1, *([0.0] * (V - 2))]
    report = Lognormal(replicates=50).analyze(runs_of(SIZES[:2], [pmf("zipf", [1.3]), few], documents=20, tokens=500))
    assert len(report.tables["lognormal"].frame) == 1
    assert any("only 2 different ranks occur" in note for note in report.notes)
    with pytest.raises(RbptrackError, match="only 2 different ranks"):
        Lognormal().analyze(runs_of(SIZES[:1], [few], documents=20, tokens=500))
