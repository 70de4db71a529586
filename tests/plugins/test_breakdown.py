"""Tests of the analyzer `breakdown`, which compares classes of tokens, such as kinds, positions or groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.breakdown import (
    GLOSSARY,
    Breakdown,
    Classification,
    ClassSums,
    compare_with_rest,
    keep_documents_that_reach_last_bin,
    kind_of,
    make_classifications,
    sum_by_class,
)
from rbptrack.analysis import Report, Runs
from rbptrack.analysis.rank_store import RankTables
from rbptrack.analysis.testing import NeedsRanks
from rbptrack.ranks import RankTable
from tests.plugins.families_in_memory import family_runs
from tests.plugins.reports import check_charts_and_notes
from tests.rank_tables import rank_table

SIZES = (1e6, 1e7, 1e8, 1e9)
TEXTS = {0: " the", 1: "ing", 2: "(", 3: "x_1"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" the", "word"),
        ("don't", "word"),
        ("camelCase", "identifier"),
        (" x_1", "identifier"),
        ("3.14", "number"),
        (" 1,000", "number"),
        ("½", "number"),
        ("():", "punctuation"),
        ("\n    ", "white space"),
        ("\ufffd", "other"),
        ("", "other"),
        ("a.b", "other"),
    ],
)
def test_kind_of_token_text(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def classifications_of_seven_tokens() -> dict[str, Classification]:
    """Return the classifications of a dataset with two fields and seven token IDs. The token 2 does not occur."""
    occurrences = np.array([989000, 9000, 0, 900, 90, 9, 1])
    return make_classifications(occurrences, np.array([3, 4]), 9, [" the", "ing", "(", "7", "x_1", " "])


def test_make_classifications_of_tokens_by_kind() -> None:
    kind = classifications_of_seven_tokens()["kind of token"]
    assert [kind.names[kind.class_of[i]] for i in (0, 1, 3, 4, 5)] == [
        "word",
        "word",
        "punctuation",
        "number",
        "identifier",
    ]


def test_make_classifications_of_tokens_by_place_in_word() -> None:
    assert classifications_of_seven_tokens()["place in the word"].class_of[[0, 1, 6]].tolist() == [0, 1, 0]


def test_make_classifications_of_tokens_by_frequency() -> None:
    assert classifications_of_seven_tokens()["share of the dataset"].class_of.tolist() == [0, 1, 4, 2, 3, 4, 4]


def test_make_classifications_of_fields_have_their_numbers_as_names() -> None:
    assert classifications_of_seven_tokens()["field"].names == ("field 0", "field 1")


def test_make_classifications_without_token_ids_and_fields_are_by_position_alone() -> None:
    assert set(make_classifications(np.zeros(0, dtype=int), np.array([9]), 9, ())) == {"position"}


def test_sum_by_class_of_positions_worked_out_by_hand() -> None:
    """Two documents of three tokens, at the positions 0, 1, 2 and 0, 3, 4. A hit has a rank of at most 2."""
    table = rank_table([1, 2, 3, 4, 5, 6], documents=2, position=np.array([0, 1, 2, 0, 3, 4]))
    classifications = make_classifications(np.zeros(0, dtype=int), np.array([6]), 4, ())
    assert classifications["position"].names == ("0", "1", "2 to 3", "4 to 7")
    sums = sum_by_class(table, classifications, [2])["position"]
    tokens = sums[:, :, 0]
    nats = sums[:, :, 1]
    hits = sums[:, :, 2]
    assert tokens.tolist() == [[1, 1, 1, 0], [1, 0, 1, 1]]
    assert nats.sum() == pytest.approx(6.0)
    assert hits.tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]


def test_keep_documents_that_reach_last_bin_keeps_long_documents_and_bins_that_they_reach() -> None:
    """Five of eight documents reach the fifth bin, and one reaches the sixth."""
    sums = np.zeros((8, 32, 3))
    sums[:, :4, 0] = 30
    sums[3:, 4, 0] = 30
    sums[7, 5, 0] = 30
    kept_sums = keep_documents_that_reach_last_bin(sums)
    assert not kept_sums[:3].any()
    assert kept_sums[3:, :5, 0].all()
    assert not kept_sums[:, 5:].any()


def test_keep_documents_that_reach_last_bin_leaves_out_bins_of_fewer_than_20_tokens() -> None:
    tokens = np.tile([1.0, 2.0, 4.0, 4.0], (5, 1))
    kept = keep_documents_that_reach_last_bin(np.stack([tokens, tokens], axis=-1))
    assert kept[..., 0].sum(axis=0).tolist() == [0, 0, 20, 20]


def test_keep_documents_that_reach_last_bin_needs_5_documents() -> None:
    sums = np.zeros((4, 32, 3))
    sums[:, :4, 0] = 30
    sums[3:, 4, 0] = 30
    assert not keep_documents_that_reach_last_bin(sums).any()


def table_of_two_classes(s: float, alphas: tuple[float, float], *, documents: int = 40) -> RankTable:
    """Return documents of 400 tokens in which the tokens 0 and 1 alternate, by a model of size s.

    -ln RBP_1 of token i is 1.5 (s / 1e6)^-alphas[i]. Its CE is 3 or 6 times this.
    """
    token = np.tile([0, 1], documents * 200)
    missed = 1.5 * (s / 1e6) ** -np.asarray(alphas)[token]
    difficulty = np.random.default_rng(0).random(len(token))  # the same at all sizes, because the texts are the same
    rank = np.where(difficulty < np.exp(-missed), 1, 30)
    return rank_table(rank, documents=documents, token=token, logprob=-missed * np.array([3, 6])[token])


@pytest.fixture(scope="module")
def report_of_two_exponents() -> Report:
    """The report on tokens that begin a word, with the exponent 0.05, and tokens inside a word, with 0.2."""
    runs = family_runs({s: table_of_two_classes(s, (0.05, 0.2)) for s in SIZES}, texts=TEXTS)
    return Breakdown(k=(1,)).analyze(runs)


def test_report_of_breakdown_has_two_charts(report_of_two_exponents: Report) -> None:
    check_charts_and_notes(report_of_two_exponents)
    assert set(report_of_two_exponents.figures) == {"level", "alpha"}


def test_breakdown_recovers_exponent_of_each_class(report_of_two_exponents: Report) -> None:
    alpha = report_of_two_exponents.frame("alpha").set_index(["by", "class", "metric"])["alpha"]
    assert alpha["place in the word", "begins a word", "ce"] == pytest.approx(0.05, abs=1e-6)
    assert alpha["place in the word", "inside a word", "ce"] == pytest.approx(0.2, abs=1e-6)
    assert alpha["place in the word", "inside a word", "rbp_1"] == pytest.approx(0.2, abs=0.02)


def test_breakdown_compares_exponent_of_class_with_that_of_rest(report_of_two_exponents: Report) -> None:
    verdict = report_of_two_exponents.frame("delta").set_index(["by", "class", "metric"])["verdict"]
    assert verdict["place in the word", "inside a word", "rbp_1"] == "above"
    assert verdict["place in the word", "begins a word", "rbp_1"] == "below"


def test_breakdown_compares_level_of_class_with_that_of_rest(report_of_two_exponents: Report) -> None:
    level = report_of_two_exponents.frame("level").set_index(["by", "class", "metric"])
    row = level.xs(("place in the word", "begins a word", "rbp_1"))
    assert row["share"] == 0.5
    assert row["level"] == pytest.approx(row["value"] - row["rest"])
    assert row["verdict"] == "below"


def test_breakdown_finds_no_difference_between_positions_with_equal_exponents() -> None:
    runs = family_runs({s: table_of_two_classes(s, (0.1, 0.1)) for s in SIZES}, texts=TEXTS)
    report = Breakdown(k=(1,)).analyze(runs)
    rows = report.frame("delta")
    rows = rows[(rows["by"] == "position") & (rows["metric"] == "rbp_1")]
    assert len(rows) == 10
    assert (rows["verdict"] == "undecided").all()


def test_breakdown_by_field_recovers_difference_of_ce() -> None:
    field = np.tile(np.repeat([0, 1], 200), 40)
    table = rank_table(np.where(field, 1, 9), documents=40, field=field, logprob=-1.0 - field)
    level = Breakdown().analyze(family_runs({1e6: table})).frame("level").set_index(["by", "class", "metric"])["level"]
    assert level["field", "field 1", "ce"] == pytest.approx(1.0)


@pytest.fixture(scope="module")
def report_of_three_groups() -> Report:
    """The report on 30 documents of group a, 30 of group b and 3 of group c. CE is highest in b and lowest in a."""
    groups = ["a"] * 30 + ["b"] * 30 + ["c"] * 3
    hardness = np.repeat([0.0, 0.5, 0.2], [3000, 3000, 300])
    noise = np.random.default_rng(0).normal(0, 0.1, 63).repeat(100)
    tables = {}
    for i, s in enumerate(SIZES):
        tables[s] = rank_table(np.ones(6300), documents=63, logprob=-(2 + hardness + noise) / (1 + i))
    report = Breakdown().analyze(family_runs(tables, groups=groups))
    check_charts_and_notes(report)
    return report


def test_breakdown_by_group_has_verdicts_of_groups_with_20_documents(report_of_three_groups: Report) -> None:
    rows = report_of_three_groups.frame("level")
    rows = rows[(rows["by"] == "group") & (rows["metric"] == "ce")].set_index("class")
    assert rows.loc["a", "verdict"] == "below"
    assert rows.loc["b", "verdict"] == "above"
    assert np.isnan(rows.loc["c", "low"])


def test_breakdown_by_position_over_three_groups_has_no_intervals(report_of_three_groups: Report) -> None:
    positions = report_of_three_groups.frame("level").query("by == 'position'")
    assert positions[["low", "p"]].isna().all(axis=None)


def test_in_groups_gives_each_group_the_sums_of_its_documents() -> None:
    """The groups b, c and a have 30, 20 and 10 tokens."""
    totals = np.array([[10.0, 1], [30, 2], [20, 3]])
    grouped = ClassSums(np.arange(len(totals)), totals, {}, {}).in_groups(["a", "b", "c"])
    assert grouped.names["group"] == ("b", "c", "a")
    assert grouped.sums["group"].sum(axis=0).tolist() == [[30, 2], [20, 3], [10, 1]]


@pytest.mark.parametrize("hits_of_class", [0.0, 2.0])
def test_level_of_class_in_which_all_or_no_tokens_are_hits_has_no_interval(hits_of_class: float) -> None:
    report = Report(GLOSSARY)
    of_class = np.tile([2.0, 3.0, hits_of_class], (40, 1))
    of_rest = np.column_stack([np.full(40, 9.0), np.linspace(20, 40, 40), np.arange(40) % 7])
    case = {"family": "toy", "dataset": "text", "by": "position", "class": "1"}
    compare_with_rest(report, case, ["ce", "rbp_10"], np.ones(1), [np.stack([of_class, of_rest], axis=1)])
    level = report.frame("level").set_index("metric")
    assert np.isnan(level.loc["rbp_10", "low"])
    assert np.isfinite(level.loc["ce", "low"])


def test_in_groups_joins_groups_beyond_the_20_largest() -> None:
    """Of 30 groups with two documents each, the first has the most tokens."""
    groups = []
    for i in range(30):
        groups += [f"s{i:02d}"] * 2
    totals = np.ones((60, 3))
    totals[:2] = 5
    grouped = ClassSums(np.arange(len(totals)), totals, {"position": totals[:, None]}, {"position": ("0",)}).in_groups(
        groups
    )
    assert len(grouped.names["group"]) == 21
    assert grouped.names["group"][0] == "s00"
    assert grouped.names["group"][-1] == "10 other groups"
    assert grouped.sums["group"][:, -1, 0].sum() == 20
    assert grouped.sums["position"].shape == (30, 1, 3)


@pytest.mark.parametrize("token", [{}, {"token": np.full(16_000, -1)}], ids=["no column", "column of -1"])
def test_breakdown_of_import_without_token_ids_is_by_position_alone(token: dict[str, Any]) -> None:
    table = table_of_two_classes(1e6, (0.1, 0.1))
    columns = {name: table.column(name) for name in ("document", "position", "field", "greater", "ties", "logprob")}
    imported = RankTable.from_arrays(vocab_size=64, **columns, **token)
    report = Breakdown().analyze(family_runs({1e6: imported, 1e7: imported}))
    check_charts_and_notes(report)
    assert set(report.frame("level")["by"]) == {"position"}
    assert report.notes


def test_breakdown_without_texts_of_tokens_has_no_kinds_and_a_note() -> None:
    report = Breakdown().analyze(family_runs({1e6: table_of_two_classes(1e6, (0.1, 0.1))}))
    assert "kind of token" not in set(report.frame("level")["by"])
    assert report.notes


@pytest.mark.parametrize(("sizes", "has_delta"), [(1, False), (2, True), (3, True)])
def test_breakdown_of_four_documents_says_in_headline_that_they_are_too_few(sizes: int, has_delta: bool) -> None:
    tables = {s: table_of_two_classes(s, (0.05, 0.2), documents=4) for s in SIZES[:sizes]}
    report = Breakdown(k=(1,)).analyze(family_runs(tables, texts=TEXTS))
    assert ("delta" in report.questions) == has_delta
    assert "too few documents" in report.headline


def test_breakdown_of_two_sizes_has_verdicts_of_levels_but_not_of_exponents() -> None:
    runs = family_runs({s: table_of_two_classes(s, (0.05, 0.2)) for s in SIZES[:2]}, texts=TEXTS)
    report = Breakdown(k=(1,)).analyze(runs)
    assert (report.frame("delta")["verdict"] == "").all()
    assert (report.frame("level")["verdict"] != "").any()
    assert "level" in report.headline


def test_breakdown_of_runs_without_ranks_has_notes_alone() -> None:
    runs = family_runs({1e6: table_of_two_classes(1e6, (0.1, 0.1))}, without_ranks=True)
    runs = Runs(runs.frame, RankTables({}))
    report = Breakdown().analyze(runs)
    assert not report.questions
    assert report.notes


class TestContract(NeedsRanks):
    analyzer = Breakdown()
