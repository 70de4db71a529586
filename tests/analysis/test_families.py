"""Tests of families: which measurements are points of one law, and which are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Family, Runs, read_families, without_conflicts
from rbptrack.analysis.family import comparable_families
from rbptrack.analysis.rank_store import RankTables, WithoutRanks
from rbptrack.analysis.testing import example_runs
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.stats import Sums
from tests.rank_tables import rank_table

CONDITIONS = {
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
    "commit": "c",
}


def row(size: int, **columns: object) -> dict[str, object]:
    """Return the row of a run of the family nano with `size` thousand parameters. `columns` replace its values."""
    family = columns.get("family", "nano")
    names = {"run_id": f"r{size}", "family": family, "size": f"{size}k", "model": f"{family}-{size}k"}
    parameters = {"non_embedding_params": size * 1000, "total_params": size * 1500}
    return CONDITIONS | names | parameters | columns


def runs_of(*rows: dict[str, object], tables: dict[str, RankTable] | None = None) -> Runs:
    """Return `Runs` of the rows. `tables` are the rank tables by run ID; by default, each table has 4 tokens."""
    if tables is None:
        tables = {run["run_id"]: rank_table([1, 2, 5, 1], documents=2) for run in rows}
    return Runs(pd.DataFrame(rows), RankTables(tables))


def names_and_labels(*rows: dict[str, object], min_sizes: int = 1) -> Any:
    """Return the name and the labels of the sizes of each family of these rows, and the notes."""
    all_families, notes = comparable_families(runs_of(*rows), min_sizes=min_sizes)
    return [(family.name, family.labels) for family in all_families], notes


def test_columns_of_family_are_in_the_order_of_its_sizes() -> None:
    rows = [row(38, run_id="a", training_tokens=3e9), row(15, run_id="b", training_tokens=2e9), row(6, run_id="c")]
    [family], _ = comparable_families(runs_of(*rows))
    assert family.s.tolist() == [6000, 15000, 38000]
    assert family.column("total_params").tolist() == [9000, 22500, 57000]


def test_ks_below_vocab_ascend_to_the_smallest_vocabulary() -> None:
    [family], _ = comparable_families(runs_of(row(6), row(15)))
    assert family.ks_below_vocab([64, 63, 1, 65]) == [1, 63]


def test_comparable_families_sorts_sizes_by_parameters() -> None:
    nano, notes = names_and_labels(row(38), row(6), row(15))
    assert nano == [("nano", ["6k", "15k", "38k"])]
    assert not notes


@pytest.mark.parametrize(
    ("column", "value"),
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
def test_comparable_families_separates_runs_that_differ_in_a_condition(column: str, value: object) -> None:
    rows = [row(6), row(15), row(38), row(115, **{column: value}), row(311, **{column: value})]
    [(first_name, first_labels), (second_name, second_labels)], notes = names_and_labels(*rows)
    assert first_labels == ["6k", "15k", "38k"]
    assert second_labels == ["115k", "311k"]
    assert first_name != second_name
    assert len(notes) == 1
    assert column in notes[0]


def test_comparable_families_separates_checkpoints_of_one_size() -> None:
    rows = [row(6, run_id="a", checkpoint="step1"), row(6, run_id="b", checkpoint="step2"), row(15, checkpoint="step1")]
    checkpoints, _ = names_and_labels(*rows)
    assert sorted(len(labels) for _, labels in checkpoints) == [1, 2]


def test_comparable_families_sorts_checkpoints_by_number() -> None:
    revisions = ["step1000", "step128000", "step16000", "step512"]
    checkpoints, notes = names_and_labels(*(row(6, run_id=name, checkpoint=name) for name in revisions))
    in_order = ["step512", "step1000", "step16000", "step128000"]
    assert [name.rpartition(" ")[2] for name, _ in checkpoints] == in_order
    positions = [" ".join(notes).index(name) for name in in_order]
    assert positions == sorted(positions)


def test_comparable_families_separates_quantisations() -> None:
    rows = []
    for size in (6, 15):
        for weights in (None, "Q4_K_M", "Q8_0"):
            rows.append(row(size, run_id=f"{size} {weights}", weights=weights))
    quantisations, notes = names_and_labels(*rows)
    assert sorted(quantisations) == [
        ("nano Q4_K_M", ["6k", "15k"]),
        ("nano Q8_0", ["6k", "15k"]),
        ("nano as published", ["6k", "15k"]),
    ]
    assert not any("summed" in note for note in notes)


def test_comparable_families_separates_numbers_of_training_tokens_without_checkpoint() -> None:
    rows = []
    for size in (6, 15):
        for tokens in (1e9, 1e10):
            rows.append(row(size, run_id=f"{size} {tokens}", checkpoint=None, training_tokens=tokens))
    checkpoints, _ = names_and_labels(*rows)
    assert checkpoints == [("nano at D=1B", ["6k", "15k"]), ("nano at D=10B", ["6k", "15k"])]


def test_comparable_families_joins_sizes_of_one_checkpoint_whose_training_tokens_differ() -> None:
    rows = []
    for size in (6, 15):
        for step in (1, 2):
            run_id = f"{size} {step}"
            rows.append(row(size, run_id=run_id, checkpoint=f"step{step}", training_tokens=step * size * 1e6))
    checkpoints, _ = names_and_labels(*rows)
    assert checkpoints == [("nano step1", ["6k", "15k"]), ("nano step2", ["6k", "15k"])]


def test_note_on_families_with_different_texts_does_not_mention_number_of_tokens() -> None:
    """Different texts explain different numbers of tokens."""
    families, notes = names_and_labels(row(6), row(15, documents_hash="others", num_tokens=5))
    assert len(families) == 2
    assert "num_tokens" not in notes[0]


def test_note_on_families_with_same_texts_mentions_number_of_tokens() -> None:
    """The first two families have the same texts, but different numbers of tokens."""
    rows = [row(6), row(15, num_tokens=7), row(38, documents_hash="others", num_tokens=5)]
    families, notes = names_and_labels(*rows)
    assert len(families) == 3
    assert "num_tokens" in notes[0]


def test_label_of_run_without_size_is_number_of_parameters() -> None:
    nano, _ = names_and_labels(row(6) | {"size": None}, row(15))
    assert nano == [("nano", ["6k", "15k"])]


def test_comparable_families_joins_sizes_that_have_one_checkpoint_each() -> None:
    nano, _ = names_and_labels(row(6, checkpoint="v1"), row(15, checkpoint="v2"))
    assert nano == [("nano", ["6k", "15k"])]


def test_comparable_families_prefers_measurement_without_reference() -> None:
    rows = [row(6), row(6, run_id="with reference", reference="nano-38k"), row(15)]
    [family], notes = comparable_families(runs_of(*rows))
    assert family.run_ids == [["r6"], ["r15"]]
    assert not notes


def test_comparable_families_prefers_measurement_with_groups() -> None:
    rows = [row(6), row(6, run_id="with groups", groups=20), row(15)]
    [family], notes = comparable_families(runs_of(*rows))
    assert family.run_ids == [["with groups"], ["r15"]]
    assert not notes


def test_comparable_families_leaves_out_run_without_parameters_and_names_it() -> None:
    nano, notes = names_and_labels(row(6), row(15, non_embedding_params=None))
    assert nano == [("nano", ["6k"])]
    assert "nano-15k" in notes[0]


def test_comparable_families_leaves_out_family_with_too_few_sizes_and_names_it() -> None:
    no_family, notes = names_and_labels(row(6), row(15), min_sizes=3)
    assert not no_family
    assert "nano on wiki" in notes[0]


def test_comparable_families_separates_families_and_datasets() -> None:
    all_three, _ = names_and_labels(row(6), row(6, run_id="x", dataset="code"), row(6, run_id="y", family="gpt"))
    assert len(all_three) == 3


def test_read_families_sums_seeds_of_one_size() -> None:
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


def test_read_families_takes_newest_measurement_of_a_model() -> None:
    times = pd.to_datetime(["2026-01-02", "2026-01-01"], utc=True)
    rows = [row(6, run_id="a", started=times[0]), row(6, run_id="b", started=times[1]), row(15)]
    reading = read_families(runs_of(*rows), [1])
    [(family, counts)] = reading
    assert family.run_ids == [["a"], ["r15"]]
    assert counts[0].tokens.tolist() == [2, 2]
    assert len(reading.notes) == 1
    assert "nano-6k" in reading.notes[0]


def test_read_families_leaves_out_different_weights_with_one_name() -> None:
    rows = [row(6, run_id="a", commit="hub@1"), row(6, run_id="b", commit="hub@2"), row(15), row(38)]
    reading = read_families(runs_of(*rows), [1])
    [(family, _)] = reading
    assert family.run_ids == [["r15"], ["r38"]]
    assert len(reading.notes) == 1


def test_read_families_sums_different_weights_with_different_seeds() -> None:
    rows = [row(6, run_id="a", commit="hub@1"), row(6, run_id="b", commit="hub@2", seed=1, model="nano-6k-seed1")]
    [(family, _)] = read_families(runs_of(*rows, row(15)), [1])
    assert family.run_ids == [["a", "b"], ["r15"]]


def test_read_families_makes_two_families_of_two_architectures() -> None:
    rows = [row(6, architecture="gpt2"), row(15, architecture="gpt2"), row(38, architecture="llama")]
    families = {family.name for family, _ in read_families(runs_of(*rows), [1])}
    assert families == {"nano (gpt2)", "nano (llama)"}


def test_without_conflicts_keeps_all_checkpoints_of_a_model() -> None:
    rows = [row(6, run_id="1B", training_tokens=1e9), row(6, run_id="10B", training_tokens=1e10)]
    assert len(without_conflicts(runs_of(*rows).frame)[0]) == 2


def test_read_families_leaves_out_k_above_smallest_vocabulary() -> None:
    [(_, counts)] = read_families(runs_of(row(6), row(15, vocab_size=32)), [1, 10, 64])
    assert counts[0].ks == (1, 10)


TABLES_WITHOUT_R15 = {"r6": rank_table([1, 2], documents=2), "r38": rank_table([1, 1], documents=2)}


def test_read_families_leaves_out_run_with_missing_ranks_and_names_it() -> None:
    reading = read_families(runs_of(row(6), row(15), row(38), tables=TABLES_WITHOUT_R15), [1])
    [(family, counts)] = reading
    assert family.labels == ["6k", "38k"]
    assert len(counts) == 2
    assert "nano-15k" in reading.notes[0]


def test_read_families_leaves_out_family_with_too_few_readable_sizes() -> None:
    runs = runs_of(row(6), row(15), row(38), tables=TABLES_WITHOUT_R15)
    assert not list(read_families(runs, [1], min_sizes=3))


def test_read_families_reads_one_family_at_a_time() -> None:
    read_ids = []

    def load(family: Family, run_id: str) -> Any:
        read_ids.append(run_id)
        return Sums(np.arange(2), np.ones((2, 1)))

    rows = [row(6, family=name, run_id=name) for name in ("a", "b", "c")]
    next(iter(read_families(runs_of(*rows), load)))
    assert read_ids == ["a"]


def test_read_families_leaves_out_run_without_a_column_and_names_it() -> None:
    runs = runs_of(row(6))
    reading = read_families(runs, lambda family, run_id: runs.ranks(run_id).column("kl"))
    assert not list(reading)
    assert "nano-6k" in reading.notes[0]


def test_read_families_adds_user_defined_sums_of_seeds_and_of_groups() -> None:
    class TablesWithGroups(RankTables):
        def groups(self, run_id: str) -> Any:
            return ["x", "x"]

    table = rank_table([1, 2, 5, 1], documents=2)
    rows = [row(6, run_id="a", groups=1), row(6, run_id="b", groups=1, model="nano-6k-seed1")]
    runs = Runs(pd.DataFrame(rows), TablesWithGroups({"a": table, "b": table}))

    def load(family: Family, run_id: str) -> Any:
        return Sums(np.arange(2), np.array([[2.0, 1.0], [2.0, 4.0]]))

    [(_, [sums])] = read_families(runs, load)
    assert sums.grouped
    assert sums.sums.tolist() == [[8.0, 10.0]]


def runs_of_imported_metrics() -> Runs:
    """Return two sizes that have CE and RBP_1, but no rank tables."""
    rows = [row(size, without_ranks=True, ce=3.0, rbp_1=0.3, vocab_size=None) for size in (6, 15)]
    return runs_of(*rows, tables={})


def test_read_families_of_imported_metrics_reads_their_k_and_notes_the_missing_error() -> None:
    reading = read_families(runs_of_imported_metrics(), [1, 10])
    [(family, counts)] = reading
    assert family.usable_ks([1, 10]) == [1]
    assert counts[0].ks == (1,)
    assert len(reading.notes) == 1


def test_read_families_leaves_out_family_without_ranks_and_names_it() -> None:
    def load(family: Family, run_id: str) -> None:
        raise WithoutRanks

    reading = read_families(runs_of_imported_metrics(), load)
    assert not list(reading)
    assert "nano on wiki" in reading.notes[0]


@pytest.mark.parametrize(
    ("columns", "comparable"),
    [
        ({}, True),
        ({"dtype": "bfloat16", "num_tokens": 900, "vocab_size": 32}, True),
        ({"documents_hash": "others"}, False),
        ({"candidates": "tokenizer"}, False),
        ({"seq_len": 512}, False),
        ({"dataset": "code"}, False),
    ],
)
def test_comparable_with_needs_same_texts_candidates_and_sequences(
    columns: dict[str, object], comparable: bool
) -> None:
    rows = [row(6), row(6, run_id="o", family="gpt", **columns)]
    gpt, nano = sorted(comparable_families(runs_of(*rows))[0], key=lambda family: family.name)
    assert gpt.comparable_with(nano) == comparable


def family_with_seed() -> Family:
    """Return a family of two sizes. The larger size has two seeds."""
    rows = [row(6, ce=3.0), row(15, ce=2.0), row(15, run_id="s", ce=4.0, model="nano-15k-seed1")]
    [family], _ = comparable_families(runs_of(*rows))
    return family


def test_family_column_has_mean_over_seeds_of_each_size() -> None:
    assert family_with_seed().column("total_params").tolist() == [9000, 22500]
    assert family_with_seed().column("ce").tolist() == [3.0, 3.0]


def test_family_column_of_unknown_name_is_nan() -> None:
    assert np.isnan(family_with_seed().column("no_such")).all()


def test_family_models_count_further_seeds() -> None:
    assert family_with_seed().models == ["nano-6k", "nano-15k and 1 more"]


@pytest.mark.parametrize("ks", [[0], ["x"], [1.5], None])
def test_read_families_refuses_ks_that_are_not_positive_whole_numbers(ks: Any) -> None:
    with pytest.raises(BadInput):
        list(read_families(example_runs(documents=5), ks))
