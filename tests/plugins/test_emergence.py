"""Tests of the analyzer `emergence`: windows of N tokens and whole answers in which every token is a hit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.emergence import Emergence
from plugins.emergence.counts import (
    MIXTURE,
    RUNS,
    SUCCEEDED,
    WINDOWS,
    count_whole_answers,
    count_windows,
    expected_successes,
)
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)


def counts_by_window_length(table: RankTable) -> dict[int, tuple[int, int, int]]:
    """Return the number of windows, of windows that succeed and of runs of hits at k = 1, for each N from 1 to 4."""
    lengths = [1, 2, 3, 4]
    counts = count_windows(table, [1], lengths)[:, 0].sum(axis=0)
    return {n: tuple(counts[j, [WINDOWS, SUCCEEDED, RUNS]].astype(int)) for j, n in enumerate(lengths)}


def independent_tokens(rbp_1: float, *, seed: int = 0) -> RankTable:
    """Return 60 documents of 300 independent tokens with this expected RBP_1."""
    ranks = 1 + (np.random.default_rng(seed).random(60 * 300) >= rbp_1)
    return rank_table(ranks, documents=60)


def blocks_of_10_tokens(share: float = 0.5, *, documents: int = 60) -> RankTable:
    """Return documents of 30 blocks of 10 tokens. The expected share of blocks consists of hits, the rest of misses."""
    blocks = np.random.default_rng(0).random(documents * 30) < share
    return rank_table(np.where(np.repeat(blocks, 10), 1, 2), documents=documents)


def test_count_windows_of_two_documents_worked_out_by_hand() -> None:
    """The hits of the documents are 1 1 1 0 1 and 1 1 0 0 0."""
    table = rank_table([1, 1, 1, 2, 1, 1, 1, 2, 2, 2], documents=2)
    assert counts_by_window_length(table) == {1: (10, 6, 3), 2: (8, 3, 2), 3: (6, 1, 1), 4: (4, 0, 0)}


def test_count_windows_has_mixture_worked_out_by_hand() -> None:
    """In random order, 4 hits among 5 tokens are neighbours in 6 of 10 pairs, and 2 hits in 1 of 10 pairs."""
    table = rank_table([1, 1, 1, 2, 1, 1, 1, 2, 2, 2], documents=2)
    counts = count_windows(table, [1], [1, 2, 5])[:, 0, :, MIXTURE]
    np.testing.assert_allclose(counts, [[4, 4 * 0.6, 0], [2, 4 * 0.1, 0]])


def test_emergence_of_documents_with_unequal_rbp_has_no_clustering_within_documents() -> None:
    """Tokens are independent with RBP_1 = 0.9 or 0.5 in half of the documents each.

    p_4 is the mean of 0.9^4 and 0.5^4, so that N_eff is below 4, but p_4 does not exceed the mixture over documents.
    """
    rbp_1 = np.repeat(np.tile([0.9, 0.5], 60), 300)
    ranks = 1 + (np.random.default_rng(0).random(len(rbp_1)) >= rbp_1)
    report = Emergence(k=(1,), lengths=(4,)).analyze(family_runs({1e6: rank_table(ranks, documents=120)}))
    check_charts_and_notes(report)
    assert report.frame("n_eff")["verdict"].iat[0] == "below"
    row = report.frame("clustering").iloc[0]
    assert row["mixture"] == pytest.approx((0.9**4 + 0.5**4) / 2, abs=0.01)
    assert row["n_eff_mixture"] == pytest.approx(np.log((0.9**4 + 0.5**4) / 2) / np.log(0.7), abs=0.1)
    assert row["clustering"] == pytest.approx(1, abs=0.02)
    assert row["verdict"] == "undecided"


def test_count_windows_has_no_window_over_unscored_token() -> None:
    table = rank_table([1, 1, 1, 1], position=np.array([0, 1, 3, 4]))
    assert counts_by_window_length(table) == {1: (4, 4, 2), 2: (2, 2, 2), 3: (0, 0, 0), 4: (0, 0, 0)}


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 5))
def test_count_windows_equals_count_of_single_windows(hits: list[bool], n: int, documents: int) -> None:
    ranks = np.where(np.tile(hits, documents), 1, 2)
    counts = count_windows(rank_table(ranks, documents=documents), [1], [n])[:, 0, 0]
    windows = [hits[i : i + n] for i in range(len(hits) - n + 1)]
    assert counts[:, WINDOWS].tolist() == [len(windows)] * documents
    assert counts[:, SUCCEEDED].tolist() == [sum(all(window) for window in windows)] * documents


@pytest.fixture(scope="module")
def report_of_independent_tokens() -> Report:
    """The report on four sizes with -ln RBP_1 = 1.5 (S / 1e6)^-0.1, in which all tokens are independent."""
    tables = {}
    for i, s in enumerate(SIZES):
        tables[s] = independent_tokens(float(np.exp(-1.5 * (s / 1e6) ** -0.1)), seed=i)
    return Emergence(k=(1,), lengths=(2, 4)).analyze(family_runs(tables))


def test_report_of_emergence_has_charts_and_notes(report_of_independent_tokens: Report) -> None:
    check_charts_and_notes(report_of_independent_tokens)


def test_n_eff_of_independent_tokens_is_n(report_of_independent_tokens: Report) -> None:
    rows = report_of_independent_tokens.frame("n_eff")
    assert (rows["verdict"] == "undecided").all()
    np.testing.assert_allclose(rows["n_eff"] / rows["N"], 1, atol=0.03)


def test_alpha_n_of_independent_tokens_is_the_same_for_every_n(report_of_independent_tokens: Report) -> None:
    laws = report_of_independent_tokens.frame("alpha_n").set_index("N")
    assert list(laws.index) == [1, 2, 4]
    np.testing.assert_allclose(laws["alpha_n"], 0.1, atol=0.02)
    delta = report_of_independent_tokens.frame("delta_n").set_index("N")["delta_n"]
    assert delta.tolist() == pytest.approx((laws["alpha_n"] - laws["alpha_n"].iloc[0])[[2, 4]].tolist())
    assert (report_of_independent_tokens.frame("delta_n")["verdict"] == "undecided").all()


def test_emergence_of_independent_tokens_has_no_verdict_below(report_of_independent_tokens: Report) -> None:
    assert "below" not in set(report_of_independent_tokens.results["verdict"])


def test_n_eff_of_long_windows_does_not_depend_on_hard_short_documents() -> None:
    """Tokens are independent. 400 documents of 24 tokens have RBP_1 = 0.6 and no window of 32; 60 of 200 have 0.9."""
    lengths = np.repeat([24, 200], [400, 60])
    rng = np.random.default_rng(0)
    ranks = np.concatenate([1 + (rng.random(n) >= (0.6 if n == 24 else 0.9)) for n in lengths])
    document = np.repeat(np.arange(len(lengths)), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    runs = family_runs({1e6: rank_table(ranks, document=document, position=position)})
    row = Emergence(k=(1,), lengths=(32,)).analyze(runs).frame("n_eff").iloc[0]
    assert row["n_eff"] == pytest.approx(32, abs=3)
    assert row["verdict"] == "undecided"


def test_emergence_of_blocks_of_hits_has_n_eff_below_n_and_clustering() -> None:
    """A window of 4 tokens lies in one block of 10 with probability 0.7, and otherwise in two."""
    table = blocks_of_10_tokens()
    report = Emergence(k=(1,), lengths=(4,)).analyze(family_runs({1e6: table}))
    p_4 = 0.7 * 0.5 + 0.3 * 0.5**2
    window = report.tables["windows"].set_index("N").loc[4]
    assert window["independent"] == pytest.approx(table.rbp(1) ** 4)
    assert window["low"] < window["p_n"] < window["high"]
    (row,) = report.frame("n_eff").to_dict("records")
    assert row["verdict"] == "below"
    assert row["n_eff"] == pytest.approx(np.log(p_4) / np.log(0.5), abs=0.1)
    assert row["p_n"] > row["independent"]
    (row,) = report.frame("clustering").to_dict("records")
    assert row["verdict"] == "above"
    assert row["clustering"] == pytest.approx(p_4 / 0.5**4, rel=0.2)


def test_emergence_leaves_out_n_with_few_runs() -> None:
    ranks = np.full((40, 100), 2)
    ranks[:, ::2] = 1
    ranks[:3, :90] = 1  # runs of 90 in three documents only
    report = Emergence(k=(1,), lengths=(8,)).analyze(family_runs({1e6: rank_table(ranks, documents=40)}))
    row = report.tables["windows"].set_index("N").loc[8]
    assert row["documents"] == 3
    assert np.isnan(row["p_n"])
    assert "n_eff" not in report.questions
    assert report.headline == ""
    assert report.notes


def test_emergence_leaves_out_n_with_runs_in_few_documents() -> None:
    for documents, is_left_out in ((4, True), (5, False)):
        ranks = np.full((40, 100), 2)
        ranks[:documents, :50] = np.tile([1] * 9 + [2], 5)  # 5 runs of 9 hits in each of these documents
        report = Emergence(k=(1,), lengths=(8,)).analyze(family_runs({1e6: rank_table(ranks, documents=40)}))
        assert np.isnan(report.tables["windows"].set_index("N").loc[8, "p_n"]) == is_left_out


def test_n_eff_of_59_documents_has_no_interval_and_a_note() -> None:
    reports = {}
    for documents in (59, 60):
        runs = family_runs({s: blocks_of_10_tokens(0.5 + i / 10, documents=documents) for i, s in enumerate(SIZES[:3])})
        reports[documents] = Emergence(k=(1,), lengths=(2,)).analyze(runs)
    assert reports[59].frame("n_eff")[["low", "high", "p"]].isna().all(axis=None)
    assert reports[60].frame("n_eff")[["low", "high", "p"]].notna().all(axis=None)
    assert any("59 documents" in note for note in reports[59].notes)


def test_emergence_of_five_documents_has_no_intervals_and_a_note() -> None:
    runs = family_runs({s: blocks_of_10_tokens(0.5 + i / 10, documents=5) for i, s in enumerate(SIZES[:3])})
    report = Emergence(lengths=(2,)).analyze(runs)
    assert len(report.frame("n_eff"))
    assert "below" not in report.headline
    assert any("5 documents" in note for note in report.notes)
    assert report.tables["windows"][["low", "high"]].isna().all(axis=None)


def test_emergence_of_two_sizes_has_alpha_n_without_interval() -> None:
    runs = family_runs({s: independent_tokens(0.4 + i / 10) for i, s in enumerate(SIZES[:2])})
    laws = Emergence(k=(1,), lengths=(2,)).analyze(runs).frame("alpha_n")
    assert laws["alpha_n"].notna().all()
    assert laws[["low", "high"]].isna().all(axis=None)


def test_emergence_of_hits_alone_has_no_results() -> None:
    runs = family_runs({s: rank_table(np.ones(2000), documents=40) for s in SIZES[:3]})
    report = Emergence(k=(1,)).analyze(runs)
    assert not len(report.results)
    assert (report.tables["windows"]["p_n"].dropna() == 1).all()


def test_emergence_leaves_out_k_of_the_vocabularys_size() -> None:
    report = Emergence(k=(64,)).analyze(family_runs({1e6: independent_tokens(0.5)}))
    assert not report.tables
    assert report.notes


def questions_and_answers(*, seed: int = 0) -> RankTable:
    """Return 40 documents of a question of 3 tokens and an answer of 4.

    The tokens of an answer are all hits with probability 3/4, and otherwise all misses.
    """
    rng = np.random.default_rng(seed)
    answer_ranks = np.repeat(np.where(rng.random(40) < 0.75, 1, 2)[:, None], 4, axis=1)
    ranks = np.concatenate([rng.integers(1, 9, (40, 3)), answer_ranks], axis=1)
    return rank_table(ranks, documents=40, field=np.tile([0, 0, 0, 1, 1, 1, 1], 40))


def table_of_one_whole_answer() -> RankTable:
    """Return three documents: a whole answer of 3 tokens, an answer without its first token, and no answer."""
    field = np.array([0, 0, 1, 1, 1, 0, 1, 1, 0, 0])
    document = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    position = np.array([0, 1, 2, 3, 4, 0, 2, 3, 0, 1])
    return rank_table([1, 1, 1, 5, 1, 1, 1, 1, 1, 1], field=field, document=document, position=position)


def test_whole_answers_counts_tokens_and_hits_of_whole_answer_alone() -> None:
    counts = count_whole_answers(table_of_one_whole_answer(), [1, 10], 1, np.inf)
    assert counts.tolist() == [[3, 2, 3], [0, 0, 0], [0, 0, 0]]


def test_whole_answers_leaves_out_answer_that_reaches_the_cut() -> None:
    assert not count_whole_answers(table_of_one_whole_answer(), [1], 1, 5).any()


def test_whole_answers_of_documents_with_one_field_are_none() -> None:
    assert not count_whole_answers(rank_table([1, 1]), [1], 0, np.inf).any()


def test_expected_answers_of_two_lengths_worked_out_by_hand() -> None:
    """3 answers of 2 tokens and 2 answers of 5 tokens have 10 hits; 2 of the answers succeed."""
    totals = np.array([16.0, 2.0, 10.0, 3.0, 2.0])
    assert expected_successes(np.array([2.0, 5.0]), totals) == pytest.approx(3 * (10 / 16) ** 2 + 2 * (10 / 16) ** 5)


def test_emergence_of_answers_that_succeed_as_a_whole_is_above_independent_tokens() -> None:
    runs = family_runs({s: questions_and_answers(seed=i) for i, s in enumerate(SIZES[:3])})
    report = Emergence(k=(1,), lengths=(2,)).analyze(runs)
    check_charts_and_notes(report)
    (row,) = report.frame("whole_answers").to_dict("records")
    table = report.tables["answers"]
    assert row["verdict"] == "above"
    np.testing.assert_allclose(table["independent"], table["rbp_of_answers"] ** 4)
    np.testing.assert_allclose(table["succeeded"], table["rbp_of_answers"])
    assert row["whole_answers"] == pytest.approx(row["succeeded"] / row["independent"])
    assert "answers" in report.figures


def test_emergence_leaves_out_answers_that_reach_the_cut() -> None:
    runs = family_runs({1e6: questions_and_answers()}, sequence="truncate", seq_len=7)
    assert "answers" not in Emergence(k=(1,)).analyze(runs).tables


def test_n_eff_of_eight_groups_has_no_interval() -> None:
    runs = family_runs({1e6: blocks_of_10_tokens(documents=40)}, groups=list("abcdefgh") * 5)
    report = Emergence(k=(1,), lengths=(4,)).analyze(runs)
    assert report.frame("n_eff")["low"].isna().all()


def test_emergence_of_runs_without_ranks_has_notes_alone() -> None:
    runs = family_runs({1e6: independent_tokens(0.5)}, without_ranks=True)
    runs = Runs(runs.frame, RankTables({}))
    report = Emergence().analyze(runs)
    assert not report.tables
    assert report.notes


class TestContract(NeedsRanks):
    analyzer = Emergence()
