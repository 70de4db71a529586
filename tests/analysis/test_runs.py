"""Measurements: names, filters, ranks on demand, groups of documents."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import rbptrack
from rbptrack.analysis import BadInput, Filters, Runs, Unreadable, WithoutRanks
from rbptrack.analysis.family import read_families
from rbptrack.analysis.rank_store import RankStore, Tables
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import MissingArtifact
from rbptrack.facts import COLUMNS
from rbptrack.ranks import MissingColumn, RankTable
from rbptrack.stats.documents import only_totals
from tests.rank_tables import rank_table


def row(run_id="a1", family="nano", size="6k", dataset="wiki", **columns):
    return {"run_id": run_id, "family": family, "size": size, "model": f"{family}-{size}", "dataset": dataset} | columns


def runs_of(*rows, tables=None):
    return Runs(pd.DataFrame(rows), Tables(tables or {}))


class Grouped(RankStore):
    """Documents with groups, read in two pieces."""

    def __init__(self, groups):
        self.of_run = groups

    def ranks(self, run_id, columns=None):
        return rank_table([1, 3, 2, 1, 5, 1, 1, 9], documents=4)

    def rank_pieces(self, run_id, columns=None):
        whole = self.ranks(run_id)
        return [RankTable(whole.table.slice(0, 4), 64), RankTable(whole.table.slice(4), 64)]

    def groups(self, run_id):
        if run_id not in self.of_run:
            raise MissingArtifact("gone")
        return self.of_run[run_id]


def test_columns_are_typed_and_those_left_out_are_missing() -> None:
    frame = runs_of(row(ce="3.5", seq_len=256, rbp_10=1, device="cpu", without_ranks=None)).frame
    assert frame["ce"].tolist() == [3.5]
    assert {name: str(frame[name].dtype) for name in COLUMNS}["seq_len"] == "Int64"
    assert str(frame["rbp_10"].dtype) == "Float64"
    assert frame["started"].isna().all()
    assert frame["device"].tolist() == ["cpu"]


def test_a_name_tells_runs_apart_and_selects_one() -> None:
    runs = runs_of(
        row("a1", dtype="float32"), row("b2", dtype="bfloat16"), row("c3", dataset="code"), row("d4", dataset="code")
    )
    assert runs["name"].tolist() == [
        "nano-6k/wiki@float32",
        "nano-6k/wiki@bfloat16",
        "nano-6k/code@c3",
        "nano-6k/code@d4",
    ]
    assert runs["nano-6k/wiki@bfloat16"]["run_id"] == "b2"
    assert [runs[name]["run_id"] for name in runs["name"]] == ["a1", "b2", "c3", "d4"]
    with pytest.raises(BadInput, match="ambiguous"):
        runs["nano-6k/wiki"]


def test_a_run_has_shorter_names_and_the_beginning_of_its_id() -> None:
    runs = runs_of(row("abc123"), row("def456", size="15k"))
    for name in ("nano-6k/wiki", "nano/6k/wiki", "nano-6k", "nano/6k", "NANO-6K/wiki", "abc"):
        assert runs.run_id(name) == "abc123"
    assert runs.run_id(runs["nano-15k"]) == "def456"
    with pytest.raises(BadInput, match="nano-6k/wiki"):
        runs["nano-6k/wikki"]


def test_the_name_of_a_model_comes_before_the_beginning_of_a_run_id() -> None:
    runs = runs_of(row("f00") | {"model": "ada"}, row("ada456") | {"model": "babel"})
    assert runs["ada"]["run_id"] == "f00"
    assert runs["ada4"]["run_id"] == "ada456"
    with pytest.raises(BadInput, match="ambiguous"):
        runs[""]


def test_hashes_in_names_have_8_characters() -> None:
    commits = ("mine/nano@0123456789", "sha256:abcdef0123", "sha256:abcdef9999")
    names = runs_of(*(row(str(i), commit=commit) for i, commit in enumerate(commits)))["name"]
    assert names.tolist() == ["nano-6k/wiki@01234567", "nano-6k/wiki@abcdef01", "nano-6k/wiki@abcdef99"]


def test_columns_masks_and_rows() -> None:
    runs = runs_of(row("a", ce=3.0), row("b", size="15k", ce=2.0))
    assert runs["ce"].tolist() == [3.0, 2.0]
    better = runs[runs["ce"] < 2.5]
    assert (len(better), better["run_id"].tolist()) == (1, ["b"])
    assert [one["run_id"] for one in runs] == ["a", "b"]


def test_filters_are_patterns_and_a_condition() -> None:
    runs = runs_of(row("a", ce=3.0), row("b", size="15k", ce=2.0), row("c", family="gpt", ce=1.0, dataset="code"))
    assert runs.select(Filters(family=["nano*"]))["run_id"].tolist() == ["a", "b"]
    assert runs.select(Filters(model=["nano/*", "!nano-15k"]))["run_id"].tolist() == ["a"]
    assert runs.select(Filters("ce < 2.5 and dataset == 'wiki'", size=["15k", "6k"]))["run_id"].tolist() == ["b"]
    for filters in (
        {"family": ["opt"]},
        {"where": "ce > 9"},
        {"where": "no_such > 1"},
        {"where": "ce +"},
        {"where": "3"},
    ):
        with pytest.raises(BadInput):
            runs.select(Filters(**filters))


def test_a_filter_that_nothing_passes_lists_what_the_others_leave() -> None:
    runs = runs_of(row("a"), row("b", family="pythia", size="70m"))
    with pytest.raises(BadInput, match=r"no measurement has size=6k\. Those that pass the other filters have 70m"):
        runs.select(Filters(family=["pythia"], size=["6k"]))
    with pytest.raises(BadInput, match=r"The store has 6k, 70m"):
        runs.select(Filters(size=["1b"]))
    with pytest.raises(BadInput, match=r"pythia/\*"):  # the name of a family where a model is expected
        runs.select(Filters(model=["pythia"]))


def test_a_misspelt_column_of_ranks_is_named() -> None:
    runs = runs_of(row("a"), tables={"a": rank_table([1, 2], documents=1)})
    for ask in (lambda: runs.ranks("a", ["tokn"]), lambda: list(runs.rank_pieces("a", ["tokn"]))):
        with pytest.raises(MissingColumn, match=r"tokn.*token"):
            ask()


def test_counts_are_those_of_the_ranks_whatever_was_asked_before() -> None:
    runs = example_runs(documents=6)
    one = runs["run_id"][0]
    table = runs.ranks(one)
    for ks in ([10], [1, 100], [3, 250], [256, 2]):
        counts = runs.document_counts(one, ks)
        assert counts.ks == tuple(ks)
        assert counts.hits.sum(axis=0) / counts.tokens.sum() == pytest.approx([table.rbp(k) for k in ks])
    assert counts.nats.sum() / counts.tokens.sum() == pytest.approx(table.ce)
    assert runs.histogram(one).rbp(10) == pytest.approx(table.rbp(10))


def test_documents_with_groups_are_counted_by_group() -> None:
    source = Grouped({"a": ["x", "y", "x", "x"]})
    runs = Runs(
        pd.DataFrame([row("a", groups=2, documents_hash="t"), row("b", size="15k", documents_hash="t")]), source
    )
    for run_id in "ab":  # the other reads the same texts, so it has the same groups
        counts = runs.document_counts(run_id, [1])
        assert counts.grouped
        assert counts.tokens.tolist() == [6, 2]
        assert runs.groups(run_id) == ["x", "y", "x", "x"]


def test_the_fewest_sources_count_for_all_runs_over_the_same_texts() -> None:
    source = Grouped({"a": ["1", "2", "3", "4"], "b": ["x", "y", "x", "x"]})
    rows = [row("a", groups=4, documents_hash="t"), row("b", size="15k", groups=2, documents_hash="t")]
    assert Runs(pd.DataFrame(rows), source).groups("a") == ["x", "y", "x", "x"]
    other = [rows[0] | {"documents_hash": "u"}, rows[1]]
    assert Runs(pd.DataFrame(other), source).groups("a") == ["1", "2", "3", "4"]


def test_sources_that_are_gone_leave_documents() -> None:
    runs = Runs(pd.DataFrame([row("a", groups=2)]), Grouped({}))
    assert runs.groups("a") == ()
    assert len(runs.document_counts("a", [1]).tokens) == 4


def test_a_report_says_that_groups_could_not_be_read_and_they_are_asked_for_again() -> None:
    source = Grouped({})
    runs = Runs(pd.DataFrame([row("a", groups=2, non_embedding_params=6000)]), source)
    reading = read_families(runs, [1])
    ((_, (counts,)),) = reading
    assert not counts.grouped
    assert len(reading.notes) == 1
    assert "nano on wiki: its groups cannot be read" in reading.notes[0]
    source.of_run["a"] = ["x", "y", "x", "x"]
    ((_, (counts,)),) = reading
    assert counts.grouped
    assert reading.notes == []


def test_runs_by_document_are_not_mixed_with_runs_by_group() -> None:
    source = Grouped({"b": ["x", "y", "x", "x"]})
    rows = [
        row("a", groups=2, non_embedding_params=6000),
        row("b", "nano", "15k", groups=2, non_embedding_params=15000),
    ]
    reading = read_families(Runs(pd.DataFrame(rows), source), [1])
    ((family, (counts,)),) = reading
    assert (family.labels, counts.grouped) == (["15k"], True)
    assert "nano-6k on wiki is left out: its groups cannot be read" in reading.notes[0]


def test_too_few_sources_are_an_error() -> None:
    runs = Runs(pd.DataFrame([row("a", groups=2)]), Grouped({"a": ["x", "y"]}))
    with pytest.raises(Unreadable, match=r"run a: .*document 3"):
        runs.groups("a")


def test_metrics_without_ranks_are_one_document_of_totals() -> None:
    runs = runs_of(row("a", without_ranks=True, ce=2.0, rbp_1=0.25, num_tokens=1000))
    counts = runs.document_counts("a", [1])
    assert only_totals(counts)
    assert counts.hits.sum() / counts.tokens.sum() == pytest.approx(0.25)
    assert counts.nats.sum() / counts.tokens.sum() == pytest.approx(2.0)
    with pytest.raises(WithoutRanks):
        runs.document_counts("a", [10])
    with pytest.raises(WithoutRanks):
        runs.ranks("a")


def test_what_cannot_be_read_names_the_run() -> None:
    class Damaged(RankStore):
        def ranks(self, run_id, columns=None):
            raise OSError("disk gone")

    with pytest.raises(Unreadable, match="disk gone"):
        Runs(pd.DataFrame([row("abc123")]), Damaged()).ranks("abc123")
    with pytest.raises(Unreadable, match="abc123"):
        runs_of(row("abc123")).histogram("abc123")


def test_texts_of_tokens_are_quoted() -> None:
    class Texts(Tables):
        def token_texts(self, run_id):
            return {5: " the"}

    assert Runs(pd.DataFrame([row()]), Texts({})).token_texts("a1", [5, 262]) == ['" the"', "id 262"]


def test_runs_pickle_and_copies_are_their_own() -> None:
    runs = example_runs(documents=4)
    runs.document_counts(runs["run_id"][0], [1])
    again = pickle.loads(pickle.dumps(runs))
    pd.testing.assert_frame_equal(again.frame, runs.frame)
    assert again.ranks(runs["run_id"][0]).ce == runs.ranks(runs["run_id"][0]).ce
    copy = runs.copy()
    copy.frame.loc[:, "ce"] = 0.0
    assert (runs["ce"] > 0).all()


def test_laws_for_notebooks() -> None:
    laws = rbptrack.laws(example_runs(documents=200, tokens=400), [1])
    assert list(laws) == ["family", "dataset", "metric", "alpha", "low", "high", "A", "R2", "sizes"]
    rbp = laws[laws["metric"] == "rbp_1"]
    assert len(rbp) == 4
    assert rbp["alpha"].to_numpy() == pytest.approx(0.15, abs=0.02)
    assert (rbp["low"] < rbp["alpha"]).all()
    assert np.isfinite(rbp["high"]).all()


def test_runs_show_themselves() -> None:
    runs = example_runs(documents=4)
    assert "alpha-100000/code" in repr(runs)
    assert "<table" in runs._repr_html_()


def test_it_is_indexed_as_pandas_is() -> None:
    runs = example_runs(documents=5)
    assert list(runs[["ce", "rbp_10"]]) == ["ce", "rbp_10"]
    assert len(runs[runs["ce"] < 3.5]) == len(runs.query("ce < 3.5")) == (runs.frame["ce"] < 3.5).sum()
    assert len(runs[(runs["ce"] < 3.5).iloc[::-1]]) == len(runs[runs["ce"] < 3.5])
    assert runs[1:3]["name"].tolist() == runs["name"].tolist()[1:3]
    assert len(runs[[False] * len(runs)]) == 0


@pytest.mark.parametrize("key", [0, None, 1.5, [True], [1, 2], ["ce", "no_such"], "no-such/run"])
def test_what_names_nothing_is_refused_in_a_line(key: object) -> None:
    with pytest.raises(BadInput) as refused:
        example_runs(documents=5)[key]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("run", [0, None, 1.5])
def test_what_is_no_run_is_refused_in_a_line(run: object) -> None:
    with pytest.raises(BadInput):
        example_runs(documents=5).ranks(run)


def test_each_run_of_a_loop_names_itself() -> None:
    runs = example_runs(documents=5)
    assert [runs.ranks(run).rbp(1) for run in runs] == [runs.ranks(name).rbp(1) for name in runs["name"]]


def test_sizes_sort_by_their_parameters() -> None:
    sizes = {"1b": 1e9, "70m": 7e7, "xl": 2e9, "9m": None}
    frame = pd.DataFrame([row(f"r{name}", size=name, non_embedding_params=s) for name, s in sizes.items()])
    runs = Runs(frame, Tables({}))
    assert runs.frame.sort_values("size")["size"].tolist() == ["70m", "1b", "xl", "9m"]
    assert len(runs.query('size == "70m"')) == 1
