"""Families: which measurements are compared, and which are left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Runs, families, newest, read_families
from rbptrack.analysis.rank_store import Tables, WithoutRanks
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput
from rbptrack.stats import Sums
from tests.rank_tables import rank_table

PLAIN = {
    "dataset": "wiki",
    "dtype": "float32",
    "sequence": "slide",
    "seq_len": 256,
    "context": 1,
    "candidates": "vocabulary",
    "rank": "paper",
    "documents_hash": "texts",
    "num_tokens": 1000,
    "vocab_size": 64,
    "revision": "main",
    "commit": "c",
}


def row(size: int, **columns):
    name = columns.get("family", "nano")
    made = {"run_id": f"r{size}", "family": name, "size": f"{size}k", "model": f"{name}-{size}k"}
    return PLAIN | made | {"non_embedding_params": size * 1000, "total_params": size * 1500} | columns


def runs_of(*rows, tables=None):
    if tables is None:
        tables = {one["run_id"]: rank_table([1, 2, 5, 1], documents=2) for one in rows}
    return Runs(pd.DataFrame(rows), Tables(tables))


def parts(*rows, min_sizes=1):
    found, notes = families(runs_of(*rows), min_sizes=min_sizes)
    return [(family.name, family.labels) for family in found], notes


def test_a_family_is_its_sizes_in_order() -> None:
    found, notes = parts(row(38), row(6), row(15))
    assert found == [("nano", ["6k", "15k", "38k"])]
    assert not notes


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("dtype", "bfloat16"),
        ("weights", "Q4_K_M"),
        ("chat_template", "sha256:abc"),
        ("scoring", 2),
        ("sequence", "truncate"),
        ("seq_len", 512),
        ("context", 128),
        ("candidates", "tokenizer"),
        ("rank", "strict"),
        ("documents_hash", "others"),
        ("num_tokens", 999),
    ],
)
def test_what_may_not_be_mixed_is_taken_apart_and_said(column, other):
    rows = [row(6), row(15), row(38), row(115, **{column: other}), row(311, **{column: other})]
    found, notes = parts(*rows)
    assert [labels for _, labels in found] == [["6k", "15k", "38k"], ["115k", "311k"]]
    assert found[0][0] != found[1][0]
    assert len(notes) == 1
    assert column in notes[0]


def test_other_texts_are_said_once() -> None:
    found, notes = parts(row(6), row(15, documents_hash="others", num_tokens=5))
    assert len(found) == 2
    assert "num_tokens" not in notes[0]


def test_checkpoints_of_a_size_are_no_seeds() -> None:
    rows = [row(6, run_id="a", revision="step1"), row(6, run_id="b", revision="step2"), row(15, revision="step1")]
    found, _ = parts(*rows)
    assert sorted(len(labels) for _, labels in found) == [1, 2]


def test_checkpoints_are_in_the_order_of_their_numbers() -> None:
    names = ["step1000", "step128000", "step16000", "step512"]
    found, notes = parts(*(row(6, run_id=name, revision=name) for name in names))
    in_order = ["step512", "step1000", "step16000", "step128000"]
    assert [name.rpartition(" ")[2] for name, _ in found] == in_order
    places = [" ".join(notes).index(name) for name in in_order]
    assert places == sorted(places)


def test_two_quantisations_of_a_model_are_no_seeds() -> None:
    rows = [row(size, run_id=f"{size} {kind}", weights=kind) for size in (6, 15) for kind in (None, "Q4_K_M", "Q8_0")]
    found, notes = parts(*rows)
    assert sorted(found) == [(f"nano {kind}", ["6k", "15k"]) for kind in ("Q4_K_M", "Q8_0", "as published")]
    assert not any("summed" in note for note in notes)


def test_numbers_of_training_tokens_are_checkpoints_also_without_a_revision() -> None:
    rows = [row(s, run_id=f"{s} {d}", revision=None, training_tokens=d) for s in (6, 15) for d in (1e9, 1e10)]
    found, _ = parts(*rows)
    assert found == [("nano at D=1B", ["6k", "15k"]), ("nano at D=10B", ["6k", "15k"])]


def test_a_revision_names_a_checkpoint_whose_training_tokens_differ_by_size() -> None:
    rows = []
    for s in (6, 15):
        for step in (1, 2):
            rows.append(row(s, run_id=f"{s} {step}", revision=f"step{step}", training_tokens=step * s * 1e6))
    found, _ = parts(*rows)
    assert found == [("nano step1", ["6k", "15k"]), ("nano step2", ["6k", "15k"])]


def test_other_numbers_of_tokens_are_said_where_the_texts_do_not_explain_them() -> None:
    found, notes = parts(row(6), row(15, num_tokens=7), row(38, documents_hash="others", num_tokens=5))
    assert len(found) == 3
    assert "num_tokens" in notes[0]


def test_a_size_without_a_label_is_called_by_its_parameters() -> None:
    found, _ = parts(row(6) | {"size": None}, row(15))
    assert found == [("nano", ["6k", "15k"])]


def test_a_revision_for_each_size_is_one_family() -> None:
    found, _ = parts(row(6, revision="v1"), row(15, revision="v2"))
    assert found == [("nano", ["6k", "15k"])]


def test_twins_with_a_reference_count_once() -> None:
    rows = [row(6), row(6, run_id="with", reference="nano-38k"), row(15)]
    [family], notes = families(runs_of(*rows))
    assert family.run_ids == [["r6"], ["r15"]]
    assert not notes


def test_twins_with_groups_count_once() -> None:
    rows = [row(6), row(6, run_id="with", groups=20), row(15)]
    [family], notes = families(runs_of(*rows))
    assert family.run_ids == [["with"], ["r15"]]
    assert not notes


def test_runs_without_a_size_are_named() -> None:
    found, notes = parts(row(6), row(15, non_embedding_params=None))
    assert found == [("nano", ["6k"])]
    assert "nano-15k" in notes[0]


def test_too_few_sizes_are_named() -> None:
    found, notes = parts(row(6), row(15), min_sizes=3)
    assert not found
    assert "nano on wiki" in notes[0]


def test_families_on_datasets_are_apart() -> None:
    found, _ = parts(row(6), row(6, run_id="x", dataset="code"), row(6, run_id="y", family="gpt"))
    assert len(found) == 3


def test_seeds_are_summed_into_one_point() -> None:
    tables = {
        "a": rank_table([1, 2], documents=2),
        "b": rank_table([1, 1], documents=2),
        "r15": rank_table([1, 9], documents=2),
    }
    runs = runs_of(row(6, run_id="a"), row(6, run_id="b", model="nano-6k-seed1"), row(15), tables=tables)
    reading = read_families(runs, [1])
    [(family, counts)] = reading
    assert family.s.tolist() == [6000, 15000]
    assert counts[0].tokens.tolist() == [2, 2]
    assert counts[0].hits.tolist() == [[2], [1]]
    assert "2 runs of 6k" in reading.notes[0]


@pytest.mark.parametrize("commit", ["hub@22222222", "hub@11111111"])
def test_measurements_of_a_model_are_no_seeds_and_the_newest_counts(commit):
    times = pd.to_datetime(["2026-01-02", "2026-01-01"], utc=True)
    rows = [
        row(6, run_id="a", started=times[0], commit="hub@11111111"),
        row(6, run_id="b", started=times[1], commit=commit),
        row(15),
    ]
    reading = read_families(runs_of(*rows), [1])
    [(family, counts)] = reading
    assert family.run_ids == [["a"], ["r15"]]
    assert counts[0].tokens.tolist() == [2, 2]
    assert len(reading.notes) == 1
    assert "nano-6k" in reading.notes[0]
    assert ("22222222" in reading.notes[0]) == (commit == "hub@22222222")


def test_checkpoints_of_a_model_all_count() -> None:
    rows = [row(6, run_id=f"{d:g}", training_tokens=d) for d in (1e9, 1e10)]
    assert len(newest(runs_of(*rows).frame)[0]) == 2


def test_k_beyond_the_vocabulary_are_left_out() -> None:
    [(_, counts)] = read_families(runs_of(row(6), row(15, vocab_size=32)), [1, 10, 64])
    assert counts[0].ks == (1, 10)


def test_a_run_whose_ranks_are_gone_is_named_and_the_others_stay() -> None:
    tables = {"r6": rank_table([1, 2], documents=2), "r38": rank_table([1, 1], documents=2)}
    reading = read_families(runs_of(row(6), row(15), row(38), tables=tables), [1])
    [(family, counts)] = reading
    assert family.labels == ["6k", "38k"]
    assert len(counts) == 2
    assert "nano-15k" in reading.notes[0]
    assert not list(read_families(runs_of(row(6), row(15), row(38), tables=tables), [1], min_sizes=3))


def test_families_are_read_one_at_a_time() -> None:
    asked = []

    def load(family, run_id):
        asked.append(run_id)
        return Sums(np.arange(2), np.ones((2, 1)))

    rows = [row(6, family=name, run_id=name) for name in ("a", "b", "c")]
    next(iter(read_families(runs_of(*rows), load)))
    assert asked == ["a"]


def test_a_column_that_a_table_lacks_leaves_its_run_out() -> None:
    runs = runs_of(row(6))
    reading = read_families(runs, lambda family, run_id: runs.ranks(run_id).column("kl"))
    assert not list(reading)
    assert "nano-6k" in reading.notes[0]


def test_sums_of_ones_own_add_and_come_by_source() -> None:
    class Grouped(Tables):
        def groups(self, run_id):
            return ["x", "x"]

    table = rank_table([1, 2, 5, 1], documents=2)
    rows = [row(6, run_id="a", groups=1), row(6, run_id="b", groups=1, model="nano-6k-seed1")]
    runs = Runs(pd.DataFrame(rows), Grouped({"a": table, "b": table}))

    def load(family, run_id):
        return Sums(np.arange(2), np.array([[2.0, 1.0], [2.0, 4.0]]))

    [(_, [sums])] = read_families(runs, load)
    assert sums.grouped
    assert sums.sums.tolist() == [[8.0, 10.0]]


def test_imported_metrics_say_what_their_intervals_hold() -> None:
    rows = [row(size, without_ranks=True, ce=3.0, rbp_1=0.3, vocab_size=None) for size in (6, 15)]
    reading = read_families(runs_of(*rows, tables={}), [1, 10])
    [(family, counts)] = reading
    assert family.usable_ks([1, 10]) == [1]
    assert counts[0].ks == (1,)
    assert len(reading.notes) == 1

    def load(family, run_id):
        raise WithoutRanks

    without = read_families(runs_of(*rows, tables={}), load)
    assert not list(without)
    assert "nano on wiki" in without.notes[0]


def test_families_are_compared_on_the_same_texts_only() -> None:
    def two(**other):
        rows = [row(6), row(6, run_id="o", family="gpt", **other)]
        one, another = sorted(families(runs_of(*rows))[0], key=lambda family: family.name)
        return one.comparable_with(another)

    assert two()
    assert two(dtype="bfloat16", num_tokens=900, vocab_size=32)
    assert not two(documents_hash="others")
    assert not two(candidates="tokenizer")
    assert not two(seq_len=512)
    assert not two(dataset="code")


def test_both_sizes_and_logged_numbers_by_size() -> None:
    [family], _ = families(
        runs_of(row(6, ce=3.0), row(15, ce=2.0), row(15, run_id="s", ce=4.0, model="nano-15k-seed1"))
    )
    assert family.column("total_params").tolist() == [9000, 22500]
    assert family.column("ce").tolist() == [3.0, 3.0]
    assert np.isnan(family.column("no_such")).all()
    assert family.models == ["nano-6k", "nano-15k and 1 more"]


@pytest.mark.parametrize("ks", [[0], ["x"], [1.5], None])
def test_k_are_whole_numbers(ks):
    with pytest.raises(BadInput):
        list(read_families(example_runs(documents=5), ks))
