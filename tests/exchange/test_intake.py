"""What importers read, in the store: with ranks or without, once, and scores of tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from rbptrack.analysis import families
from rbptrack.analysis.importing import Imported, ImportedMeasurement, ImportedScore, check_imported
from rbptrack.analysis.rank_store import WithoutRanks
from rbptrack.exchange import export_bundle, import_bundle, import_content
from rbptrack.tracking import Store
from tests.rank_tables import power_law_rank_table

TABLE = Path("table.csv")


def take(store: Store, items: Sequence[Imported]) -> list[str]:
    return import_content("table", check_imported(TABLE, items), TABLE, store)


def test_numbers_without_ranks_are_measurements_whose_ranks_are_not_known(store: Store) -> None:
    columns = {"model": "EleutherAI/pythia-70m", "dataset": "wiki", "ce": 3.5, "rbp_1": 0.3, "rbp_10": 0.6}
    columns |= {"non_embedding_params": 18_915_328, "seq_len": 512, "documents": 100, "ce_se": 0.01}
    lines = take(store, [ImportedMeasurement(columns, repo="EleutherAI/pythia-70m", notes="by hand")])
    runs = store.runs()
    row = runs["pythia-70m/wiki"]
    assert (row["family"], row["size"], row["imported"]) == ("pythia", "70m", "table")
    assert (row["ce"], row["rbp_10"], row["ce_se"], row["seq_len"]) == (3.5, 0.6, 0.01, 512)
    assert row["non_embedding_params"] == 18_915_328
    assert row["repo"] == "EleutherAI/pythia-70m"
    assert bool(row["without_ranks"])
    with pytest.raises(WithoutRanks):
        runs.ranks(row)
    assert list(store.verify()) == []
    assert any("without ranks" in line for line in lines)


def test_ranks_give_all_numbers_with_their_errors(store: Store) -> None:
    table = power_law_rank_table(1000, documents=30, tokens=20)
    take(store, [ImportedMeasurement({"model": "mine-1k", "dataset": "wiki"}, ranks=table)])
    runs = store.runs()
    row = runs["mine-1k/wiki"]
    assert row["ce"] == pytest.approx(table.ce)
    assert row["rbp_10"] == table.rbp(10)
    assert row["ce_se"] > 0
    assert runs.ranks(row).table.equals(table.table)
    assert runs.histogram(row).num_tokens == len(table)
    assert list(store.verify()) == []


def test_checkpoints_of_several_sizes_are_a_law_for_each_number_of_training_tokens(store: Store) -> None:
    items = []
    for size in (1, 4, 16):
        for d in (1e9, 1e10):
            columns = {"model": f"a-{size}m", "family": "a", "dataset": "text", "non_embedding_params": size * 10**6}
            columns |= {"training_tokens": d, "ce": 5 - math.log10(size * d) / 10}
            items.append(ImportedMeasurement(columns))
    take(store, items)
    runs = store.runs()
    assert sorted(set(runs.frame["size"])) == ["16m", "1m", "4m"]
    laws = [(family.name, family.labels) for family in families(runs)[0]]
    assert laws == [("a at D=1B", ["1m", "4m", "16m"]), ("a at D=10B", ["1m", "4m", "16m"])]


def test_conditions_make_imported_rows_different_measurements(store: Store) -> None:
    columns = {"model": "m-1k", "dataset": "wiki", "ce": 3.0}
    conditions = [
        {},
        {"sequence": "truncate"},
        {"weights": "Q4_K_M"},
        {"weights": "Q8_0"},
        {"revision": "step1"},
        {"candidates": "tokenizer"},
    ]
    take(store, [ImportedMeasurement(columns | condition) for condition in conditions])
    assert store.runs().frame["name"].nunique() == len(conditions)
    take(store, [ImportedMeasurement(columns | {"sequence": "truncate", "context": 9})])  # slide alone has a context
    assert len(store.runs()) == len(conditions)


def test_the_same_source_is_imported_once(store: Store) -> None:
    items = [
        ImportedMeasurement({"model": f"m-{i}k", "dataset": "wiki", "ce": 3.0 - i / 10, "total_params": i * 1000})
        for i in range(1, 4)
    ]
    take(store, items[:2])
    take(store, items)
    take(store, items)
    assert len(list(store.finished())) == 3


def test_a_corrected_import_takes_the_place_of_the_wrong_one_also_in_another_store(store: Store) -> None:
    other = Store(store.uri, "other")
    for ce in (9.0, 3.5, 3.5):
        take(store, [ImportedMeasurement({"model": "m-1k", "dataset": "wiki", "ce": ce, "seq_len": 64})])
        assert store.runs()["ce"].tolist() == [ce]
        export_bundle(store.runs(), Path(f"{ce}.zip"))
        import_bundle(Path(f"{ce}.zip"), other)
        Path("3.5.zip").unlink(missing_ok=True)
    assert import_bundle(Path("9.0.zip"), other) == ["0 of 1 measurement imported; the others are already in the store"]
    assert other.runs()["ce"].tolist() == [3.5]
    take(store, [ImportedMeasurement({"model": "m-1k", "dataset": "wiki", "ce": 3.4, "seq_len": 128})])
    assert sorted(store.runs()["ce"]) == [3.4, 3.5]


def test_what_came_without_s_is_counted(store: Store) -> None:
    lines = take(store, [ImportedMeasurement({"model": "m-1k", "dataset": "wiki", "ce": 3.0})])
    assert any("non_embedding_params" in line for line in lines)
    assert math.isnan(float(store.runs().frame["non_embedding_params"].astype(float)[0]))


def test_scores_alone_are_imported(store: Store) -> None:
    scores = [ImportedScore({"model": "a", "task": "arc", "score": 0.25, "n": 100})]
    take(store, scores)
    take(store, scores)
    assert store.scores()[["model", "task", "score"]].to_numpy().tolist() == [["a", "arc", 0.25]]


def test_older_scores_that_are_imported_again_count_again(store: Store) -> None:
    def score_of(value: float) -> list[Imported]:
        other = ImportedScore({"model": "b", "task": "arc", "score": 0.5})
        return [ImportedScore({"model": "a", "task": "arc", "score": value}), other]

    for value in (0.25, 0.75, 0.25):
        lines = take(store, score_of(value))
        assert any("imported" in line for line in lines)
        assert store.scores().set_index("model")["score"].to_dict() == {"a": value, "b": 0.5}
    assert not any("imported" in line for line in take(store, score_of(0.25)))
