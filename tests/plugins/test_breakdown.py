"""Classes with known levels and exponents, each against the rest; what is missing is a note."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.breakdown import (
    Breakdown,
    ClassSums,
    classifications_of,
    kind_of,
    of_documents_that_reach_the_end,
    sum_by_class,
)
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)
TEXTS = {0: " the", 1: "ing", 2: "(", 3: "x_1"}


def test_kinds_of_tokens() -> None:
    texts = [" the", "don't", "camelCase", " x_1", "3.14", " 1,000", "½", "():", "\n    ", "\ufffd", "", "a.b"]
    kinds = ["word"] * 2 + ["identifier"] * 2 + ["number"] * 3 + ["punctuation", "white space"] + ["other"] * 3
    assert list(map(kind_of, texts)) == kinds


def test_tokens_are_classed_by_text_frequency_and_position() -> None:
    occurrences = np.array([989000, 9000, 0, 900, 90, 9, 1])
    classifications = classifications_of(occurrences, np.array([3, 4]), 9, [" the", "ing", "(", "7", "x_1", " "])
    kind = classifications["kind of token"]
    kinds = ["word", "word", "punctuation", "number", "identifier"]
    assert [kind.names[kind.class_of[i]] for i in (0, 1, 3, 4, 5)] == kinds
    assert classifications["place in the word"].class_of[[0, 1, 6]].tolist() == [0, 1, 0]
    assert classifications["share of the dataset"].class_of.tolist() == [0, 1, 4, 2, 3, 4, 4]
    assert classifications["field"].names == ("field 0", "field 1")
    assert set(classifications_of(np.zeros(0, dtype=int), np.array([9]), 9, ())) == {"position"}


def test_counts_by_position_by_hand() -> None:
    table = rank_table([1, 2, 3, 4, 5, 6], documents=2, position=np.array([0, 1, 2, 0, 3, 4]))
    classifications = classifications_of(np.zeros(0, dtype=int), np.array([6]), 4, ())
    sums = sum_by_class(table, classifications, [2])["position"]
    assert classifications["position"].names == ("0", "1", "2 to 3", "4 to 7")
    assert sums[:, :, 0].tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]
    assert sums[:, :, 2].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert sums[:, :, 1].sum() == pytest.approx(6.0)


def test_every_bin_of_positions_reads_the_same_documents() -> None:
    """Of 8 documents 5 are long: the 3 short ones count nowhere, nor do bins that fewer reach."""
    sums = np.zeros((8, 32, 3))
    sums[:, :4, 0] = 30
    sums[3:, 4, 0] = 30
    sums[7, 5, 0] = 30
    kept = of_documents_that_reach_the_end(sums)
    assert not kept[:3].any()
    assert kept[3:, :5, 0].all()
    assert not kept[:, 5:].any()
    assert not of_documents_that_reach_the_end(sums[:4]).any()  # at least 5 documents


def classed(
    s: float, alphas: tuple[float, float], *, documents: int = 40, tokens: int = 400, seed: int = 0
) -> RankTable:
    """Tokens 0 and 1 take turns; -ln RBP_1 of each is 1.5 S^-alpha (S in units of 1e6), CE 3 and 6 times that."""
    token = np.tile([0, 1], documents * tokens // 2)
    missed = 1.5 * (s / 1e6) ** -np.asarray(alphas)[token]
    difficulty = np.random.default_rng(seed).random(len(token))  # of the same texts at every size
    rank = np.where(difficulty < np.exp(-missed), 1, 30)
    return rank_table(rank, documents=documents, token=token, logprob=-missed * np.array([3, 6])[token])


def test_a_class_with_another_exponent_is_found() -> None:
    runs = family_runs({s: classed(s, (0.05, 0.2)) for s in SIZES}, texts=TEXTS)
    report = Breakdown(ks=(1,)).analyze(runs)
    check_charts_and_notes(report)
    alpha = report.frame("alpha").set_index(["by", "class", "metric"])["alpha"]
    assert alpha["place in the word", "begins a word", "ce"] == pytest.approx(0.05, abs=1e-6)
    assert alpha["place in the word", "inside a word", "ce"] == pytest.approx(0.2, abs=1e-6)
    assert alpha["place in the word", "inside a word", "rbp_1"] == pytest.approx(0.2, abs=0.02)
    delta = report.frame("delta").set_index(["by", "class", "metric"])
    assert delta.loc[("place in the word", "inside a word", "rbp_1"), "verdict"] == "above"
    assert delta.loc[("place in the word", "begins a word", "rbp_1"), "verdict"] == "below"
    level = report.frame("level").set_index(["by", "class", "metric"])
    row = level.loc[("place in the word", "begins a word", "rbp_1")]
    assert row["share"] == 0.5
    assert row["level"] == pytest.approx(row["value"] - row["rest"])
    assert row["verdict"] == "below"
    assert set(report.figures) == {"level", "alpha"}


def test_positions_alike_are_not_told_apart() -> None:
    report = Breakdown(ks=(1,)).analyze(family_runs({s: classed(s, (0.1, 0.1)) for s in SIZES}, texts=TEXTS))
    rows = report.frame("delta")
    rows = rows[(rows["by"] == "position") & (rows["metric"] == "rbp_1")]
    assert len(rows) == 10
    assert (rows["verdict"] == "undecided").all()


def test_fields_are_classes() -> None:
    field = np.tile(np.repeat([0, 1], 200), 40)
    table = rank_table(np.where(field, 1, 9), documents=40, field=field, logprob=-1.0 - field)
    level = Breakdown().analyze(family_runs({1e6: table})).frame("level").set_index(["by", "class", "metric"])["level"]
    assert level["field", "field 1", "ce"] == pytest.approx(1.0)


def test_a_group_is_compared_over_its_own_documents() -> None:
    """30 documents of a, 30 of b, 3 of c: c has too few documents, and three groups are too few for the rest."""
    groups = ["a"] * 30 + ["b"] * 30 + ["c"] * 3
    harder = np.repeat([0.0, 0.5, 0.2], [3000, 3000, 300])
    noise = np.random.default_rng(0).normal(0, 0.1, 63).repeat(100)
    tables = {
        s: rank_table(np.ones(6300), documents=63, logprob=-(2 + harder + noise) / (1 + i)) for i, s in enumerate(SIZES)
    }
    report = Breakdown().analyze(family_runs(tables, groups=groups))
    check_charts_and_notes(report)
    rows = report.frame("level")
    rows = rows[(rows["by"] == "group") & (rows["metric"] == "ce")].set_index("class")
    assert rows.loc["a", "verdict"] == "below"
    assert rows.loc["b", "verdict"] == "above"
    assert np.isnan(rows.loc["c", "low"])
    others = report.frame("level").query("by == 'position'")
    assert others[["low", "p"]].isna().all(axis=None)


def test_small_groups_are_one_class() -> None:
    groups = [f"s{i:02d}" for i in range(30) for _ in range(2)]
    every = np.ones((60, 3))
    every[:2] = 5
    grouped = ClassSums(every, {"position": every[:, None]}, {"position": ("0",)}).in_groups(groups)
    assert len(grouped.names["group"]) == 21
    assert grouped.names["group"][0] == "s00"
    assert grouped.names["group"][-1] == "10 other groups"
    assert grouped.sums["group"][:, -1, 0].sum() == 20
    assert grouped.sums["position"].shape == (30, 1, 3)


def test_ranks_without_token_ids_or_texts_are_a_note() -> None:
    table = classed(1e6, (0.1, 0.1))
    columns = {name: table.column(name) for name in ("document", "position", "field", "greater", "ties", "logprob")}
    for imported in (
        RankTable.from_arrays(vocab_size=64, **columns),
        RankTable.from_arrays(vocab_size=64, token=np.full(len(table), -1), **columns),
    ):
        report = Breakdown().analyze(family_runs({1e6: imported, 1e7: imported}))
        check_charts_and_notes(report)
        assert set(report.frame("level")["by"]) == {"position"}
        assert report.notes
    report = Breakdown().analyze(family_runs({1e6: table}))
    assert "kind of token" not in set(report.frame("level")["by"])
    assert report.notes


@pytest.mark.parametrize("sizes", [1, 2, 3])
def test_few_documents_decide_nothing(sizes: int) -> None:
    tables = {s: classed(s, (0.05, 0.2), documents=5) for s in SIZES[:sizes]}
    report = Breakdown(ks=(1,)).analyze(family_runs(tables, texts=TEXTS))
    assert ("delta" in report.questions) == (sizes > 1)
    assert "too few documents" in report.headline


def test_two_sizes_have_levels_and_no_test_of_exponents() -> None:
    report = Breakdown(ks=(1,)).analyze(family_runs({s: classed(s, (0.05, 0.2)) for s in SIZES[:2]}, texts=TEXTS))
    assert (report.frame("delta")["verdict"] == "").all()
    assert (report.frame("level")["verdict"] != "").any()
    assert "level" in report.headline


def test_runs_without_ranks_are_a_note() -> None:
    runs = family_runs({1e6: classed(1e6, (0.1, 0.1))}, without_ranks=True)
    runs.store.tables.clear()
    report = Breakdown().analyze(runs)
    assert not report.questions
    assert report.notes


class TestBreakdown(NeedsRanks):
    analyzer = Breakdown()
