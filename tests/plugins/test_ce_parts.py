"""Tests of the analyzer `ce_parts`, which splits cross-entropy into parts by two identities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from plugins.ce_parts import PARTS, CeParts, decompose, mean_parts, part_sums
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks, NeedsSizes
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankHistogram, RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)
V = 64


def table_of_size(s: float, *, seed: int = 0) -> RankTable:
    """Return the ranks of 40 documents of 50 tokens by a model of size s.

    Up to a factor, E[ln R] = s^-0.2 and E[-ln(pR)] = s^-0.1. Documents differ in difficulty, but not between sizes.
    """
    documents = 40
    tokens = 50
    relative_size = s / 1e6
    difficulty = np.repeat(np.random.default_rng(seed).uniform(0.8, 1.2, documents), tokens)
    share_of_rank_64 = relative_size**-0.2 / 2 * difficulty
    rank = np.where(np.tile(np.arange(tokens), documents) < np.rint(share_of_rank_64 * tokens), 64, 1)
    logprob = -np.log(rank) - 2 * relative_size**-0.1 * difficulty
    return rank_table(rank, documents=documents, vocab_size=V, logprob=logprob)


def test_decompose_of_four_tokens_worked_out_by_hand() -> None:
    """The ranks 1, 1, 1, 2 have p = 1/2, 1/2, 1/2, 1/4. So Q = (1/2, 1/4), Z = 3/4 and Q/Z = (2/3, 1/3)."""
    histogram = RankHistogram(np.array([1, 2]), np.array([3, 1]), np.log([0.125, 0.25]), 4)
    entropy, alignment, confidence = decompose(histogram)
    assert entropy == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))
    assert alignment == pytest.approx(0.75 * np.log(0.75 * 3 / 2) + 0.25 * np.log(0.25 * 3))
    assert confidence == pytest.approx(-np.log(0.75))
    assert entropy + alignment + confidence == pytest.approx(histogram.ce)


@given(st.lists(st.tuples(st.integers(1, 20), st.floats(0.01, 1)), min_size=4, max_size=40))
def test_part_sums_fulfil_both_identities_for_any_ranks(tokens: list[tuple[int, float]]) -> None:
    """`tokens` are pairs of a rank R and p(target) R."""
    tokens = tokens[: len(tokens) // 2 * 2]
    rank, p_times_rank = map(np.array, zip(*tokens, strict=True))
    table = rank_table(rank, documents=2, logprob=np.log(p_times_rank / rank))
    sums = part_sums([table], table.histogram())
    parts = dict(zip(PARTS, mean_parts(sums.sums.sum(axis=0)), strict=True))
    assert parts["ce"] == pytest.approx(table.ce, abs=1e-9)
    assert parts["rank"] + parts["rest"] == pytest.approx(parts["ce"], rel=1e-9)
    parts_of_second = [parts["error_entropy"], parts["self_alignment"], parts["confidence"]]
    assert sum(parts_of_second) == pytest.approx(parts["ce"], abs=1e-6)
    np.testing.assert_allclose(parts_of_second, decompose(table.histogram()), atol=1e-6)


def test_part_sums_approximate_decompose_if_a_document_is_left_out() -> None:
    """The sums of H(P), KL and -ln Z are linear approximations. With 200 documents their error is below 10%."""
    rng = np.random.default_rng(0)
    rank = np.minimum(rng.geometric(0.3, 200 * 50), V)
    table = rank_table(rank, documents=200, vocab_size=V, logprob=-np.log(rank) - rng.random(len(rank)))
    sums = part_sums([table], table.histogram()).sums
    is_kept = table.column("document") > 0
    table_without_document = rank_table(
        rank[is_kept], documents=199, vocab_size=V, logprob=table.column("logprob")[is_kept]
    )
    change = mean_parts(sums[1:].sum(axis=0))[3:] - mean_parts(sums.sum(axis=0))[3:]
    expected = decompose(table_without_document.histogram()) - decompose(table.histogram())
    np.testing.assert_allclose(change, expected, atol=0.1 * abs(expected).max())


def test_part_sums_of_a_strict_table_use_the_rank_with_ties() -> None:
    table = replace(rank_table([1, 2], documents=2, ties=np.array([3, 0]), logprob=np.full(2, -2.0)), strict=True)
    parts = dict(zip(PARTS, mean_parts(part_sums([table], table.histogram()).sums.sum(axis=0)), strict=True))
    assert parts["rank"] == pytest.approx((np.log(4) + np.log(2)) / 2)


def test_part_sums_refuses_histogram_of_other_ranks() -> None:
    table = rank_table([1, 2, 3, 4], documents=2)
    other = rank_table([1, 2, 3, 4], documents=2, logprob=np.full(4, -2.0))
    with pytest.raises(RbptrackError, match="cross-entropy"):
        part_sums([table], other.histogram())


@pytest.fixture(scope="module")
def report_of_four_sizes() -> Report:
    """The report on four sizes with the exponents 0.2 of E[ln R] and 0.1 of E[-ln(pR)]."""
    return CeParts().analyze(family_runs({s: table_of_size(s) for s in SIZES}))


def test_report_of_ce_parts_has_charts_and_notes(report_of_four_sizes: Report) -> None:
    check_charts_and_notes(report_of_four_sizes)


def test_ce_parts_recovers_exponents_of_rank_and_rest(report_of_four_sizes: Report) -> None:
    alpha = report_of_four_sizes.frame("alpha").set_index("metric")["alpha"]
    assert alpha["rest"] == pytest.approx(0.1, abs=0.003)
    assert alpha["rank"] == pytest.approx(0.2, abs=0.02)


def test_ce_parts_compares_exponents_with_that_of_ce(report_of_four_sizes: Report) -> None:
    verdict = report_of_four_sizes.frame("delta").set_index("metric")["verdict"]
    assert verdict["rank"] == "above"
    assert verdict["rest"] == "below"


def test_rank_and_rest_add_up_to_ce_at_every_size(report_of_four_sizes: Report) -> None:
    table = report_of_four_sizes.tables["parts"]
    np.testing.assert_allclose(table["rank"] + table["rest"], table["ce"], rtol=1e-9)
    np.testing.assert_allclose(table["rank_share"], table["rank"] / table["ce"])


def test_shares_of_fall_add_up_to_1_in_each_identity(report_of_four_sizes: Report) -> None:
    shares = report_of_four_sizes.frame("share").set_index("metric")["share"]
    assert shares["rank"] + shares["rest"] == pytest.approx(1)
    assert shares[["error_entropy", "self_alignment", "confidence"]].sum() == pytest.approx(1)


def test_share_has_interval_of_regression_of_part_on_ce_if_documents_are_equal() -> None:
    """All documents are equal, so the error comes from the scatter of the sizes alone."""
    tables = {}
    for s, misses, rest in zip(SIZES, (9, 7, 4, 3), (1.6, 1.5, 1.2, 1.1), strict=True):
        rank = np.tile([64] * misses + [1] * (10 - misses), 20)
        tables[s] = rank_table(rank, documents=20, vocab_size=V, logprob=-np.log(rank) - rest)
    report = CeParts().analyze(family_runs(tables))
    table = report.tables["parts"]
    line = stats.linregress(table["ce"], table["rank"])
    share = report.frame("share").set_index("metric").loc["rank"]
    half_width = stats.t.ppf(0.975, 2) * line.stderr
    assert share["share"] == pytest.approx(line.slope)
    assert (share["low"], share["high"]) == pytest.approx((line.slope - half_width, line.slope + half_width))


def test_share_of_part_that_is_half_of_ce_in_every_document_has_no_error() -> None:
    tables = {}
    for s in SIZES:
        rank = table_of_size(s).rank
        tables[s] = rank_table(rank, documents=40, vocab_size=V, logprob=-2 * np.log(rank))
    share = CeParts().analyze(family_runs(tables)).frame("share").set_index("metric")
    assert share.loc[["rank"], ["share", "low", "high"]].to_numpy() == pytest.approx(0.5, abs=1e-6)


def test_per_decade_is_slope_of_part_in_log10_of_size(report_of_four_sizes: Report) -> None:
    table = report_of_four_sizes.tables["parts"]
    per_decade = report_of_four_sizes.frame("per_decade").set_index("metric")["per_decade"]
    assert per_decade["rest"] == pytest.approx(np.polyfit(np.log10(SIZES), table["rest"], 1)[0])


def test_confidence_has_change_per_decade_but_no_exponent(report_of_four_sizes: Report) -> None:
    """-ln Z may be negative, so it has no power law."""
    results = report_of_four_sizes.results
    assert "confidence" not in set(results.loc[results["question"].isin(["alpha", "delta"]), "metric"])
    assert "confidence" in set(report_of_four_sizes.frame("per_decade")["metric"])


def test_self_alignment_has_no_interval_and_error_entropy_has_one(report_of_four_sizes: Report) -> None:
    results = report_of_four_sizes.results
    self_alignment = results[results["metric"] == "self_alignment"]
    assert len(self_alignment)
    assert self_alignment[["low", "high", "p"]].isna().all(axis=None)
    assert results.loc[results["metric"] == "error_entropy", "low"].notna().all()


def test_miller_madow_adds_number_of_ranks_minus_1_over_twice_the_tokens() -> None:
    table = rank_table([1, 1, 2, 3] * 10, documents=20)
    (row,) = CeParts().analyze(family_runs({1e6: table})).tables["parts"].to_dict("records")
    assert row["miller_madow"] == pytest.approx(row["error_entropy"] + (3 - 1) / (2 * 40))


def test_ce_parts_averages_two_seeds_of_one_size() -> None:
    runs = family_runs({1e6: table_of_size(1e6), 1.0000001e6: table_of_size(1e6, seed=1)})
    runs.frame["non_embedding_params"] = 10**6
    runs.frame["model"] = ["toy-1m", "toy-1m-seed1"]
    (row,) = CeParts().analyze(runs).tables["parts"].to_dict("records")
    assert row["ce"] == pytest.approx((table_of_size(1e6).ce + table_of_size(1e6, seed=1).ce) / 2)
    correction = (2 - 1) / (2 * 40 * 50)  # two ranks occur among the tokens of each seed
    assert row["miller_madow"] - row["error_entropy"] == pytest.approx(correction)


def test_ce_parts_of_probabilities_above_1_over_rank_has_no_rank_and_rest() -> None:
    tables = {}
    for i, s in enumerate(SIZES[:3]):
        tables[s] = rank_table([4, 1, 2, 1] * 20, documents=20, logprob=np.full(80, -0.1 - i))
    report = CeParts().analyze(family_runs(tables))
    check_charts_and_notes(report)
    assert np.isnan(report.tables["parts"]["rank"].iat[0])
    assert "rank" not in set(report.results["metric"])
    assert any("1/R" in note for note in report.notes)


def test_ce_parts_of_constant_ce_has_no_shares_and_a_note() -> None:
    report = CeParts().analyze(family_runs({s: table_of_size(1e6) for s in SIZES}))
    assert "share" not in report.questions
    assert any("divided" in note for note in report.notes)


def test_ce_parts_of_runs_without_ranks_has_no_results_but_notes() -> None:
    runs = family_runs({1e6: table_of_size(1e6)}, without_ranks=True)
    runs = Runs(runs.frame, RankTables({}))
    report = CeParts().analyze(runs)
    assert not report.tables
    assert report.notes


class TestContract(NeedsRanks, NeedsSizes):
    analyzer = CeParts()
