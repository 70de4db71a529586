"""Tests of `Runs`: names, filters, ranks, counts of documents and groups."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rbptrack
from rbptrack.analysis import BadInput, Runs, Unreadable, WithoutRanks
from rbptrack.analysis.family import read_families
from rbptrack.analysis.filters import Filters
from rbptrack.analysis.rank_store import RankStore, RankTables
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import MissingArtifact
from rbptrack.measurement.columns import DTYPE_BY_COLUMN
from rbptrack.ranks import MissingColumn, RankTable
from rbptrack.stats.sums import only_totals
from tests.rank_tables import MemoryRankStore, rank_table


def row(
    run_id: str = "a1", family: str = "nano", size: str = "6k", dataset: str = "wiki", **columns: object
) -> dict[str, object]:
    return {"run_id": run_id, "family": family, "size": size, "model": f"{family}-{size}", "dataset": dataset} | columns


def runs_of(*rows: dict[str, object], tables: dict[str, RankTable] | None = None) -> Runs:
    """Return `Runs` of the rows. `tables` are the rank tables by run ID."""
    return Runs(pd.DataFrame(rows), RankTables(tables or {}))


class GroupedRankStore(RankStore):
    """A store in which every run has the same ranks: 4 documents of 2 tokens, read in two pieces.

    Attributes:
        groups_of_run: the group of each document, by run ID. The groups of other runs cannot be read.

    """

    def __init__(self, groups_of_run: Any) -> None:
        self.groups_of_run = groups_of_run

    def ranks(self, run_id: str, columns: Any = None) -> Any:
        return rank_table([1, 3, 2, 1, 5, 1, 1, 9], documents=4)

    def rank_pieces(self, run_id: str, columns: Any = None) -> Any:
        whole = self.ranks(run_id)
        return [RankTable(whole.table.slice(0, 4), 64), RankTable(whole.table.slice(4), 64)]

    def groups(self, run_id: str) -> Any:
        if run_id not in self.groups_of_run:
            raise MissingArtifact("gone")
        return self.groups_of_run[run_id]


def test_frame_has_typed_columns_and_missing_values_in_absent_columns() -> None:
    frame = runs_of(row(ce="3.5", seq_len=256, rbp_10=1, device="cpu", without_ranks=None)).frame
    assert frame["ce"].tolist() == [3.5]
    assert str(frame["seq_len"].dtype) == "Int64"
    assert str(frame["rbp_10"].dtype) == "Float64"
    assert set(DTYPE_BY_COLUMN) <= set(frame)
    assert frame["started"].isna().all()
    assert frame["device"].tolist() == ["cpu"]


def runs_of_one_model() -> Runs:
    """Return four runs of one model: two on wiki in different precisions, and two equal ones on code."""
    return runs_of(
        row("a1", dtype="float32"), row("b2", dtype="bfloat16"), row("c3", dataset="code"), row("d4", dataset="code")
    )


def test_names_of_runs_of_one_model_differ() -> None:
    assert runs_of_one_model()["name"].tolist() == [
        "nano-6k/wiki@float32",
        "nano-6k/wiki@bfloat16",
        "nano-6k/code@c3",
        "nano-6k/code@d4",
    ]


def test_selected_measurements_keep_the_names_that_they_have_among_all() -> None:
    runs = runs_of_one_model()
    assert runs.select(Filters(where="dtype == 'bfloat16'"))["name"].tolist() == ["nano-6k/wiki@bfloat16"]
    assert runs[[False, False, True, False]][[True]]["name"].tolist() == ["nano-6k/code@c3"]


def test_runs_are_indexed_by_name() -> None:
    runs = runs_of_one_model()
    assert runs["nano-6k/wiki@bfloat16"]["run_id"] == "b2"
    assert [runs[name]["run_id"] for name in runs["name"]] == ["a1", "b2", "c3", "d4"]


def test_runs_refuse_ambiguous_name() -> None:
    with pytest.raises(BadInput, match=r"'nano-6k/wiki'.*nano-6k/wiki@float32.*nano-6k/wiki@bfloat16"):
        runs_of_one_model()["nano-6k/wiki"]


@pytest.mark.parametrize("name", ["nano-6k/wiki", "nano/6k/wiki", "nano-6k", "nano/6k", "NANO-6K/wiki", "abc"])
def test_run_id_accepts_short_names_and_beginning_of_id(name: str) -> None:
    runs = runs_of(row("abc123"), row("def456", size="15k"))
    assert runs.run_id(name) == "abc123"


def test_run_id_accepts_row() -> None:
    runs = runs_of(row("abc123"), row("def456", size="15k"))
    assert runs.run_id(runs["nano-15k"]) == "def456"


def test_runs_suggest_name_for_misspelt_one() -> None:
    runs = runs_of(row("abc123"), row("def456", size="15k"))
    with pytest.raises(BadInput, match="nano-6k/wiki"):
        runs["nano-6k/wikki"]


def test_model_name_takes_precedence_over_beginning_of_run_id() -> None:
    runs = runs_of(row("f00") | {"model": "ada"}, row("ada456") | {"model": "babel"})
    assert runs["ada"]["run_id"] == "f00"
    assert runs["ada4"]["run_id"] == "ada456"


def test_runs_refuse_empty_name() -> None:
    runs = runs_of(row("f00") | {"model": "ada"}, row("ada456") | {"model": "babel"})
    with pytest.raises(BadInput, match=r"''.*ada.*babel"):
        runs[""]


def test_commits_in_names_have_8_characters() -> None:
    commits = ("mine/nano@0123456789", "sha256:abcdef0123", "sha256:abcdef9999")
    names = runs_of(*(row(str(i), commit=commit) for i, commit in enumerate(commits)))["name"]
    assert names.tolist() == ["nano-6k/wiki@01234567", "nano-6k/wiki@abcdef01", "nano-6k/wiki@abcdef99"]


def test_runs_have_columns_masks_and_iteration_over_rows() -> None:
    runs = runs_of(row("a", ce=3.0), row("b", size="15k", ce=2.0))
    assert runs["ce"].tolist() == [3.0, 2.0]
    below = runs[runs["ce"] < 2.5]
    assert len(below) == 1
    assert below["run_id"].tolist() == ["b"]
    assert [run["run_id"] for run in runs] == ["a", "b"]


def three_runs() -> Runs:
    return runs_of(row("a", ce=3.0), row("b", size="15k", ce=2.0), row("c", family="gpt", ce=1.0, dataset="code"))


@pytest.mark.parametrize(
    ("filters", "run_ids"),
    [
        ({"family": ["nano*"]}, ["a", "b"]),
        ({"model": ["nano/*", "!nano-15k"]}, ["a"]),
        ({"where": "ce < 2.5 and dataset == 'wiki'", "size": ["15k", "6k"]}, ["b"]),
    ],
)
def test_select_accepts_patterns_and_condition(filters: dict[str, Any], run_ids: list[str]) -> None:
    assert three_runs().select(Filters(**filters))["run_id"].tolist() == run_ids


@pytest.mark.parametrize(
    ("filters", "value"),
    [
        ({"family": ["opt"]}, "family=opt"),
        ({"where": "ce > 9"}, "ce > 9"),
        ({"where": "no_such > 1"}, "no_such"),
        ({"where": "ce +"}, r"ce \+"),
        ({"where": "3"}, "3"),
    ],
)
def test_select_refuses_filters_that_no_run_passes_and_wrong_conditions(filters: dict[str, Any], value: str) -> None:
    with pytest.raises(BadInput, match=value):
        three_runs().select(Filters(**filters))


def test_select_without_result_lists_values_that_pass_other_filters() -> None:
    runs = runs_of(row("a"), row("b", family="pythia", size="70m"))
    with pytest.raises(BadInput, match=r"size=6k\..* 70m$"):
        runs.select(Filters(family=["pythia"], size=["6k"]))


def test_select_without_result_lists_values_of_store() -> None:
    runs = runs_of(row("a"), row("b", family="pythia", size="70m"))
    with pytest.raises(BadInput, match=r"size=1b\..* 6k, 70m$"):
        runs.select(Filters(size=["1b"]))


def test_select_of_family_name_as_model_suggests_pattern() -> None:
    runs = runs_of(row("a"), row("b", family="pythia", size="70m"))
    with pytest.raises(BadInput, match=r"pythia/\*"):
        runs.select(Filters(model=["pythia"]))


def test_ranks_suggests_column_for_misspelt_one() -> None:
    runs = runs_of(row("a"), tables={"a": rank_table([1, 2], documents=1)})
    with pytest.raises(MissingColumn, match=r"tokn.*token"):
        runs.ranks("a", ["tokn"])


def test_rank_pieces_suggests_column_for_misspelt_one() -> None:
    runs = runs_of(row("a"), tables={"a": rank_table([1, 2], documents=1)})
    with pytest.raises(MissingColumn, match=r"tokn.*token"):
        list(runs.rank_pieces("a", ["tokn"]))


def test_document_counts_are_those_of_rank_table_after_other_k_were_counted() -> None:
    runs = example_runs(documents=6)
    run_id = runs["run_id"][0]
    table = runs.ranks(run_id)
    for ks in ([10], [1, 100], [3, 250], [256, 2]):
        counts = runs.document_counts(run_id, ks)
        assert counts.ks == tuple(ks)
        assert counts.hits.sum(axis=0) / counts.tokens.sum() == pytest.approx([table.rbp(k) for k in ks])
        assert counts.nats.sum() / counts.tokens.sum() == pytest.approx(table.ce)


def test_histogram_is_that_of_rank_table() -> None:
    runs = example_runs(documents=6)
    run_id = runs["run_id"][0]
    assert runs.histogram(run_id).rbp(10) == pytest.approx(runs.ranks(run_id).rbp(10))


@pytest.mark.parametrize("run_id", ["a", "b"])
def test_document_counts_are_by_group_for_all_runs_over_same_texts(run_id: str) -> None:
    """Run b has no groups of its own, but reads the same texts as run a."""
    rows = [row("a", groups=2, documents_hash="t"), row("b", size="15k", documents_hash="t")]
    runs = Runs(pd.DataFrame(rows), GroupedRankStore({"a": ["x", "y", "x", "x"]}))
    counts = runs.document_counts(run_id, [1])
    assert counts.grouped
    assert counts.tokens.tolist() == [6, 2]
    assert runs.groups(run_id) == ["x", "y", "x", "x"]


TWO_GROUPINGS = {"a": ["1", "2", "3", "4"], "b": ["x", "y", "x", "x"]}


def test_groups_are_the_fewest_of_runs_over_same_texts() -> None:
    rows = [row("a", groups=4, documents_hash="t"), row("b", size="15k", groups=2, documents_hash="t")]
    assert Runs(pd.DataFrame(rows), GroupedRankStore(TWO_GROUPINGS)).groups("a") == ["x", "y", "x", "x"]


def test_groups_are_those_of_the_documents_with_scored_tokens() -> None:
    table = rank_table([1, 3, 2, 1], document=[0, 0, 2, 2])
    store = MemoryRankStore({"a": table}, groups={"a": ["x", "y", "z"]})
    assert Runs(pd.DataFrame([row("a", groups=3)]), store).groups("a") == ["x", "z"]


def test_groups_of_runs_over_other_texts_are_their_own() -> None:
    rows = [row("a", groups=4, documents_hash="u"), row("b", size="15k", groups=2, documents_hash="t")]
    assert Runs(pd.DataFrame(rows), GroupedRankStore(TWO_GROUPINGS)).groups("a") == ["1", "2", "3", "4"]


def test_document_counts_are_by_document_if_groups_cannot_be_read() -> None:
    runs = Runs(pd.DataFrame([row("a", groups=2)]), GroupedRankStore({}))
    assert runs.groups("a") == ()
    assert len(runs.document_counts("a", [1]).tokens) == 4


def test_read_families_notes_unread_groups_and_reads_them_again() -> None:
    store = GroupedRankStore({})
    runs = Runs(pd.DataFrame([row("a", groups=2, non_embedding_params=6000)]), store)
    reading = read_families(runs, [1])
    ((_, (counts,)),) = reading
    assert not counts.grouped
    assert len(reading.notes) == 1
    assert "nano on wiki: its groups cannot be read" in reading.notes[0]
    store.groups_of_run["a"] = ["x", "y", "x", "x"]
    ((_, (counts,)),) = reading
    assert counts.grouped
    assert reading.notes == []


def test_read_families_leaves_out_run_whose_groups_cannot_be_read() -> None:
    rows = [
        row("a", groups=2, non_embedding_params=6000),
        row("b", "nano", "15k", groups=2, non_embedding_params=15000),
    ]
    reading = read_families(Runs(pd.DataFrame(rows), GroupedRankStore({"b": ["x", "y", "x", "x"]})), [1])
    ((family, (counts,)),) = reading
    assert family.labels == ["15k"]
    assert counts.grouped
    assert "nano-6k on wiki is left out: its groups cannot be read" in reading.notes[0]


def test_groups_raises_unreadable_if_there_are_fewer_groups_than_documents() -> None:
    runs = Runs(pd.DataFrame([row("a", groups=2)]), GroupedRankStore({"a": ["x", "y"]}))
    with pytest.raises(Unreadable, match=r"run a: .*document 3"):
        runs.groups("a")


def runs_without_ranks() -> Runs:
    return runs_of(row("a", without_ranks=True, ce=2.0, rbp_1=0.25, num_tokens=1000))


def test_document_counts_of_run_without_ranks_are_totals() -> None:
    counts = runs_without_ranks().document_counts("a", [1])
    assert only_totals(counts)
    assert counts.hits.sum() / counts.tokens.sum() == pytest.approx(0.25)
    assert counts.nats.sum() / counts.tokens.sum() == pytest.approx(2.0)


def test_document_counts_of_run_without_ranks_refuse_k_that_is_not_logged() -> None:
    with pytest.raises(WithoutRanks):
        runs_without_ranks().document_counts("a", [10])


def test_document_counts_of_run_without_cross_entropy_have_its_rbp() -> None:
    runs = runs_of(row("a", without_ranks=True, ce=None, rbp_1=0.25, num_tokens=1000))
    counts = runs.document_counts("a", [1])
    assert counts.hits.sum() == pytest.approx(250)
    assert np.isnan(counts.nats).all()
    with pytest.raises(WithoutRanks):
        runs.document_counts("a", [])


def test_ranks_of_run_without_ranks_raises_without_ranks() -> None:
    with pytest.raises(WithoutRanks):
        runs_without_ranks().ranks("a")


@pytest.mark.parametrize("failure", [OSError, ValueError, AttributeError, TypeError, RecursionError, OverflowError])
def test_ranks_raises_unreadable_with_reason_of_failure(failure: type[Exception]) -> None:
    class DamagedRankStore(RankStore):
        def ranks(self, run_id: str, columns: Any = None) -> RankTable:
            raise failure("disk gone")

    with pytest.raises(Unreadable, match="disk gone"):
        Runs(pd.DataFrame([row("abc123")]), DamagedRankStore()).ranks("abc123")


def test_histogram_raises_unreadable_with_run_id() -> None:
    with pytest.raises(Unreadable, match="abc123"):
        runs_of(row("abc123")).histogram("abc123")


def test_token_texts_are_quoted_and_unknown_ones_are_ids() -> None:
    class TablesWithTexts(RankTables):
        def token_texts(self, run_id: str) -> Any:
            return {5: " the"}

    assert Runs(pd.DataFrame([row()]), TablesWithTexts({})).token_texts("a1", [5, 262]) == ['" the"', "id 262"]


def test_pickled_runs_have_same_rows_and_ranks() -> None:
    runs = example_runs(documents=4)
    run_id = runs["run_id"][0]
    runs.document_counts(run_id, [1])
    copy = pickle.loads(pickle.dumps(runs))
    pd.testing.assert_frame_equal(copy.frame, runs.frame)
    assert copy.ranks(run_id).ce == runs.ranks(run_id).ce


def test_changes_of_copy_leave_original_unchanged() -> None:
    runs = example_runs(documents=4)
    copy = runs.copy()
    copy.frame.loc[:, "ce"] = 0.0
    assert (runs["ce"] > 0).all()


def test_rbptrack_laws_returns_table_of_exponents() -> None:
    laws = rbptrack.laws(example_runs(documents=200, tokens=400), [1])
    assert list(laws) == ["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"]
    rbp = laws[laws["metric"] == "rbp_1"]
    assert len(rbp) == 4
    assert rbp["alpha"].to_numpy() == pytest.approx(0.15, abs=0.02)
    assert (rbp["low"] < rbp["alpha"]).all()
    assert np.isfinite(rbp["high"]).all()


def test_repr_of_runs_lists_names() -> None:
    runs = example_runs(documents=4)
    assert "alpha-100000/code" in repr(runs)
    assert "<table" in runs._repr_html_()


def test_runs_are_indexed_by_list_of_columns() -> None:
    assert list(example_runs(documents=5)[["ce", "rbp_10"]]) == ["ce", "rbp_10"]


def test_runs_are_indexed_by_mask_in_any_order_of_its_index() -> None:
    runs = example_runs(documents=5)
    mask = runs["ce"] < 3.5
    assert len(runs[mask]) == len(runs.select(Filters(where="ce < 3.5"))) == (runs.frame["ce"] < 3.5).sum()
    assert len(runs[mask.iloc[::-1]]) == len(runs[mask])
    assert len(runs[[False] * len(runs)]) == 0


def test_runs_are_indexed_by_slice() -> None:
    runs = example_runs(documents=5)
    assert runs[1:3]["name"].tolist() == runs["name"].tolist()[1:3]


@pytest.mark.parametrize("key", [0, None, 1.5, [True], [1, 2], ["ce", "no_such"], "no-such/run"])
def test_runs_refuse_unknown_key_in_one_line(key: object) -> None:
    with pytest.raises(BadInput) as raised:
        example_runs(documents=5)[key]
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("run", [0, None, 1.5])
def test_ranks_refuses_value_that_is_neither_name_nor_row(run: object) -> None:
    with pytest.raises(BadInput, match=str(run)):
        example_runs(documents=5).ranks(run)


def test_ranks_accepts_rows_and_names() -> None:
    runs = example_runs(documents=5)
    assert [runs.ranks(run).rbp(1) for run in runs] == [runs.ranks(name).rbp(1) for name in runs["name"]]


def runs_of_four_sizes() -> Runs:
    """Return runs of the sizes 1b, 70m, xl and 9m. The number of parameters of 9m is unknown."""
    parameters = {"1b": 1e9, "70m": 7e7, "xl": 2e9, "9m": None}
    return runs_of(*(row(f"r{size}", size=size, non_embedding_params=s) for size, s in parameters.items()))


def test_column_size_sorts_by_parameters() -> None:
    frame = runs_of_four_sizes().frame
    assert frame.sort_values("size")["size"].tolist() == ["70m", "1b", "xl", "9m"]


def test_query_compares_column_size_with_text() -> None:
    assert len(runs_of_four_sizes().select(Filters(where='size == "70m"'))) == 1
