"""Windows by hand, independent tokens as independent, runs of hits as not; whole answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.emergence import MIXTURE, RUNS, SUCCEEDED, WINDOWS, Emergence, count_windows, expected, whole_answers
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)


def hits(table: RankTable) -> dict[int, tuple[int, int, int]]:
    """Windows, those that succeed, and runs of hits, for each N."""
    lengths = [1, 2, 3, 4]
    counts = count_windows(table, [1], lengths)[:, 0].sum(axis=0)
    return {n: tuple(counts[j, [WINDOWS, SUCCEEDED, RUNS]].astype(int)) for j, n in enumerate(lengths)}


def independent(share: float, *, documents: int = 60, tokens: int = 300, seed: int = 0) -> RankTable:
    ranks = 1 + (np.random.default_rng(seed).random(documents * tokens) >= share)
    return rank_table(ranks, documents=documents)


def sticky(share: float, run: int, *, documents: int = 60, tokens: int = 300, seed: int = 0) -> RankTable:
    """Blocks of `run` tokens that succeed or fail together."""
    blocks = np.random.default_rng(seed).random(documents * tokens // run) < share
    return rank_table(np.where(np.repeat(blocks, run), 1, 2), documents=documents)


def test_windows_by_hand() -> None:
    """Two documents, hits as 1: 1 1 1 0 1 and 1 1 0 0 0."""
    table = rank_table([1, 1, 1, 2, 1, 1, 1, 2, 2, 2], documents=2)
    assert hits(table) == {1: (10, 6, 3), 2: (8, 3, 2), 3: (6, 1, 1), 4: (4, 0, 0)}


def test_the_mixture_by_hand() -> None:
    """Of 5 tokens 4 are hits, of another 5 tokens 2: two of them are hits in 6 and in 1 of 10 pairs."""
    table = rank_table([1, 1, 1, 2, 1, 1, 1, 2, 2, 2], documents=2)
    counts = count_windows(table, [1], [1, 2, 5])[:, 0, :, MIXTURE]
    np.testing.assert_allclose(counts, [[4, 4 * 0.6, 0], [2, 4 * 0.1, 0]])


def test_documents_that_differ_do_not_cluster_within() -> None:
    """Half of the documents have RBP_1 = .9, half .5, tokens independent: p_4 is the mean of .9^4 and .5^4."""
    shares = np.repeat(np.tile([0.9, 0.5], 60), 300)
    ranks = 1 + (np.random.default_rng(0).random(len(shares)) >= shares)
    report = Emergence(ks=(1,), lengths=(4,)).analyze(family_runs({1e6: rank_table(ranks, documents=120)}))
    check_charts_and_notes(report)
    assert report.frame("n_eff")["verdict"].iat[0] == "below", "documents that differ are no independent tokens"
    row = report.frame("clustering").iloc[0]
    assert row["mixture"] == pytest.approx((0.9**4 + 0.5**4) / 2, abs=0.01)
    assert row["n_eff_mixture"] == pytest.approx(np.log((0.9**4 + 0.5**4) / 2) / np.log(0.7), abs=0.1)
    assert row["clustering"] == pytest.approx(1, abs=0.02)
    assert row["verdict"] == "undecided"


def test_a_masked_token_breaks_a_window() -> None:
    table = rank_table([1, 1, 1, 1], position=np.array([0, 1, 3, 4]))
    assert hits(table) == {1: (4, 4, 2), 2: (2, 2, 2), 3: (0, 0, 0), 4: (0, 0, 0)}


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 6), st.integers(1, 5))
def test_windows_are_those_that_one_counts_one_by_one(succeeds: list[bool], n: int, documents: int) -> None:
    ranks = np.where(np.tile(succeeds, documents), 1, 2)
    counts = count_windows(rank_table(ranks, documents=documents), [1], [n])[:, 0, 0]
    windows = [succeeds[i : i + n] for i in range(len(succeeds) - n + 1)]
    assert counts[:, 0].tolist() == [len(windows)] * documents
    assert counts[:, 1].tolist() == [sum(all(window) for window in windows)] * documents


def test_independent_tokens_count_as_themselves() -> None:
    """-ln p_N = N A S^-alpha: N_eff = N, and every alpha_N is alpha."""
    shares = [float(np.exp(-1.5 * (s / 1e6) ** -0.1)) for s in SIZES]
    runs = family_runs({s: independent(share, seed=i) for i, (s, share) in enumerate(zip(SIZES, shares, strict=True))})
    report = Emergence(ks=(1,), lengths=(2, 4)).analyze(runs)
    check_charts_and_notes(report)
    found = report.frame("n_eff")
    assert (found["verdict"] == "undecided").all()
    np.testing.assert_allclose(found["n_eff"] / found["N"], 1, atol=0.03)
    laws = report.frame("alpha_n").set_index("N")
    assert list(laws.index) == [1, 2, 4]
    np.testing.assert_allclose(laws["alpha_n"], 0.1, atol=0.02)
    assert (report.frame("delta_n")["verdict"] == "undecided").all()
    assert not any("below" in word for word in report.results["verdict"])


def test_short_documents_that_are_harder_do_not_make_long_windows_of_others_look_dependent() -> None:
    """Independent tokens: 400 documents of 24 have no window of 32 and RBP_1 = .6, 60 of 200 have .9."""
    lengths = np.repeat([24, 200], [400, 60])
    rng = np.random.default_rng(0)
    ranks = np.concatenate([1 + (rng.random(n) >= (0.6 if n == 24 else 0.9)) for n in lengths])
    document = np.repeat(np.arange(len(lengths)), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    runs = family_runs({1e6: rank_table(ranks, document=document, position=position)})
    row = Emergence(ks=(1,), lengths=(32,)).analyze(runs).frame("n_eff").iloc[0]
    assert row["n_eff"] == pytest.approx(32, abs=3)
    assert row["verdict"] == "undecided"


def test_hits_in_runs_count_as_fewer_tokens() -> None:
    """Blocks of 10 that succeed together: 4 tokens in a row mostly lie in one block, so that N_eff is near 1 + 3/10."""
    report = Emergence(ks=(1,), lengths=(4,)).analyze(family_runs({1e6: sticky(0.5, 10)}))
    (row,) = report.frame("n_eff").to_dict("records")
    assert row["verdict"] == "below"
    assert row["n_eff"] == pytest.approx(np.log(0.7 * 0.5 + 0.3 * 0.25) / np.log(0.5), abs=0.1)
    assert row["p_n"] > row["independent"]
    (row,) = report.frame("clustering").to_dict("records")
    assert row["verdict"] == "above"
    assert row["clustering"] == pytest.approx((0.7 * 0.5 + 0.3 * 0.25) / 0.5**4, rel=0.2)


def test_an_n_with_few_runs_is_refused() -> None:
    ranks = np.full((40, 100), 2)
    ranks[:, ::2] = 1
    ranks[:3, :90] = 1  # runs of 90 in three documents only
    report = Emergence(ks=(1,), lengths=(8,)).analyze(family_runs({1e6: rank_table(ranks, documents=40)}))
    row = report.tables["windows"].set_index("N").loc[8]
    assert row["documents"] == 3
    assert np.isnan(row["p_n"])
    assert "n_eff" not in report.questions
    assert report.headline == ""
    assert report.notes


def test_few_documents_decide_nothing() -> None:
    runs = family_runs({s: sticky(0.5 + i / 10, 10, documents=5) for i, s in enumerate(SIZES[:3])})
    report = Emergence(lengths=(2,)).analyze(runs)
    assert len(report.frame("n_eff"))
    assert "below" not in report.headline
    assert any("no intervals: 5 " in note for note in report.notes)
    assert report.tables["windows"][["low", "high"]].isna().all(axis=None)


def test_two_sizes_have_a_law_without_an_interval() -> None:
    runs = family_runs({s: independent(0.4 + i / 10) for i, s in enumerate(SIZES[:2])})
    laws = Emergence(ks=(1,), lengths=(2,)).analyze(runs).frame("alpha_n")
    assert laws["alpha_n"].notna().all()
    assert laws[["low", "high"]].isna().all(axis=None)


def test_where_every_token_succeeds_nothing_is_asked() -> None:
    runs = family_runs({s: rank_table(np.ones(2000), documents=40) for s in SIZES[:3]})
    report = Emergence(ks=(1,)).analyze(runs)
    assert not len(report.results)
    assert (report.tables["windows"]["p_n"].dropna() == 1).all()


def test_no_window_can_fail_at_the_whole_vocabulary() -> None:
    report = Emergence(ks=(64,)).analyze(family_runs({1e6: independent(0.5)}))
    assert not report.tables
    assert report.notes


def answers(documents: int = 40, tokens: int = 4, question: int = 3, seed: int = 0, **columns: Any) -> RankTable:
    """Documents of a question and an answer; an answer succeeds or fails as a whole, three out of four succeed."""
    rng = np.random.default_rng(seed)
    whole = np.repeat(np.where(rng.random(documents) < 0.75, 1, 2)[:, None], tokens, axis=1)
    ranks = np.concatenate([rng.integers(1, 9, (documents, question)), whole], axis=1)
    field = np.tile(np.repeat([0, 1], [question, tokens]), documents)
    return rank_table(ranks, documents=documents, **({"field": field} | columns))


def test_whole_answers_by_hand() -> None:
    field = np.array([0, 0, 1, 1, 1, 0, 1, 1, 0, 0])
    document = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    position = np.array([0, 1, 2, 3, 4, 0, 2, 3, 0, 1])
    # The second answer lacks its first token, the third is not there.
    table = rank_table([1] * 2 + [1, 5, 1] + [1] * 5, field=field, document=document, position=position)
    assert whole_answers(table, [1, 10], 1, np.inf).tolist() == [[3, 2, 3], [0, 0, 0], [0, 0, 0]]
    assert not whole_answers(table, [1], 1, 5).any()  # the answer reaches the cut
    assert not whole_answers(rank_table([1, 1]), [1], 0, np.inf).any()  # one field only


def test_expected_answers_by_hand() -> None:
    totals = np.array([2.0, 10.0, 3.0, 2.0])  # 10 hits of 3 answers of 2 tokens and 2 of 5
    assert expected(np.array([2.0, 5.0]), totals) == pytest.approx(3 * (10 / 16) ** 2 + 2 * (10 / 16) ** 5)


def test_answers_that_hang_together_succeed_more_often() -> None:
    report = Emergence(ks=(1,), lengths=(2,)).analyze(
        family_runs({s: answers(seed=i) for i, s in enumerate(SIZES[:3])})
    )
    check_charts_and_notes(report)
    (row,) = report.frame("whole_answers").to_dict("records")
    table = report.tables["answers"]
    assert row["verdict"] == "above"
    np.testing.assert_allclose(table["independent"], table["rbp_of_answers"] ** 4)
    np.testing.assert_allclose(table["succeeded"], table["rbp_of_answers"])
    assert row["whole_answers"] == pytest.approx(row["succeeded"] / row["independent"])
    assert "answers" in report.figures


def test_answers_beyond_a_cut_are_left_out() -> None:
    runs = family_runs({1e6: answers()}, sequence="truncate", seq_len=7)
    assert "answers" not in Emergence(ks=(1,)).analyze(runs).tables


def test_sources_are_the_units() -> None:
    """40 documents of 2 sources: too few units to decide."""
    runs = family_runs({1e6: sticky(0.5, 10, documents=40)}, groups=["a", "b"] * 20)
    report = Emergence(ks=(1,), lengths=(4,), min_documents=2).analyze(runs)
    assert report.frame("n_eff")["low"].isna().all()


def test_runs_without_ranks_are_a_note() -> None:
    runs = family_runs({1e6: independent(0.5)}, without_ranks=True)
    runs.store.tables.clear()
    report = Emergence().analyze(runs)
    assert not report.tables
    assert report.notes


class TestEmergence(NeedsRanks):
    analyzer = Emergence()
