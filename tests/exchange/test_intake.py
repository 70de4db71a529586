"""Tests of `import_content`: imported measurements and scores in a store."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis.family import comparable_families
from rbptrack.analysis.importing import Imported, ImportedMeasurement, ImportedScore
from rbptrack.analysis.rank_store import WithoutRanks
from rbptrack.base.errors import StoreAway, StoreRefuses
from rbptrack.config.paths import cells_folder
from rbptrack.exchange import check_imported, export_bundle, import_bundle, import_content
from rbptrack.tracking import Outbox, Store
from tests.rank_tables import power_law_rank_table, rank_table

TABLE = Path("table.csv")


def import_items(store: Store, items: Sequence[Imported]) -> list[str]:
    """Import measurements and scores as if an importer had read them from a table. Returns the lines for the user."""
    return import_content("table", check_imported(TABLE, items), TABLE, store)


def test_import_content_of_numbers_gives_a_measurement_without_ranks(store: Store) -> None:
    row = {
        "model": "EleutherAI/pythia-70m",
        "dataset": "wiki",
        "ce": 3.5,
        "rbp_1": 0.3,
        "rbp_10": 0.6,
        "non_embedding_params": 18_915_328,
        "seq_len": 512,
        "documents": 100,
        "ce_se": 0.01,
    }
    lines = import_items(store, [ImportedMeasurement(row, repo="EleutherAI/pythia-70m", notes="by hand")])
    assert any("without ranks" in line for line in lines)
    runs = store.runs()
    run = runs["pythia-70m/wiki"]
    assert (run["family"], run["size"], run["imported"]) == ("pythia", "70m", "table")
    assert (run["ce"], run["rbp_10"], run["ce_se"], run["seq_len"]) == (3.5, 0.6, 0.01, 512)
    assert run["non_embedding_params"] == 18_915_328
    assert run["repo"] == "EleutherAI/pythia-70m"
    assert bool(run["without_ranks"])
    with pytest.raises(WithoutRanks):
        runs.ranks(run)
    assert list(store.verify()) == []


def test_import_content_of_ranks_computes_all_numbers_and_standard_errors(store: Store) -> None:
    table = power_law_rank_table(1000, documents=30, tokens=20)
    import_items(store, [ImportedMeasurement({"model": "mine-1k", "dataset": "wiki"}, ranks=table)])
    runs = store.runs()
    run = runs["mine-1k/wiki"]
    assert run["ce"] == pytest.approx(table.ce)
    assert run["rbp_10"] == table.rbp(10)
    assert run["ce_se"] > 0
    assert runs.ranks(run).table.equals(table.table)
    assert runs.histogram(run).num_tokens == len(table)
    assert list(store.verify()) == []


def test_import_content_of_checkpoints_gives_a_family_for_each_number_of_training_tokens(
    store: Store,
) -> None:
    measurements = []
    for millions in (1, 4, 16):
        for training_tokens in (1e9, 1e10):
            row = {
                "model": f"a-{millions}m",
                "family": "a",
                "dataset": "text",
                "non_embedding_params": millions * 10**6,
                "training_tokens": training_tokens,
                "ce": 5 - math.log10(millions * training_tokens) / 10,
            }
            measurements.append(ImportedMeasurement(row))
    import_items(store, measurements)
    runs = store.runs()
    assert sorted(set(runs.frame["size"])) == ["16m", "1m", "4m"]
    names_and_sizes = [(family.name, family.labels) for family in comparable_families(runs)[0]]
    assert names_and_sizes == [("a at D=1B", ["1m", "4m", "16m"]), ("a at D=10B", ["1m", "4m", "16m"])]


def test_import_content_of_rows_with_different_conditions_gives_different_measurements(store: Store) -> None:
    row = {"model": "m-1k", "dataset": "wiki", "ce": 3.0}
    conditions: list[dict[str, str]] = [
        {},
        {"sequence": "truncate"},
        {"weights": "Q4_K_M"},
        {"weights": "Q8_0"},
        {"checkpoint": "step1"},
        {"candidates": "tokenizer"},
    ]
    import_items(store, [ImportedMeasurement(row | condition) for condition in conditions])
    assert store.runs().frame["name"].nunique() == len(conditions)


def test_import_content_ignores_the_context_if_sequences_are_truncated(store: Store) -> None:
    """Only sequence=slide has a context."""
    row = {"model": "m-1k", "dataset": "wiki", "ce": 3.0, "sequence": "truncate"}
    import_items(store, [ImportedMeasurement(row)])
    import_items(store, [ImportedMeasurement(row | {"context": 9})])
    assert len(store.runs()) == 1


def test_import_content_adds_only_measurements_that_the_store_lacks(store: Store) -> None:
    measurements = []
    for i in (1, 2, 3):
        row = {"model": f"m-{i}k", "dataset": "wiki", "ce": 3.0 - i / 10, "total_params": i * 1000}
        measurements.append(ImportedMeasurement(row))
    import_items(store, measurements[:2])
    import_items(store, measurements)
    import_items(store, measurements)
    assert len(list(store.finished_runs())) == 3


def measurement_with(ce: float, seq_len: int) -> ImportedMeasurement:
    return ImportedMeasurement({"model": "m-1k", "dataset": "wiki", "ce": ce, "seq_len": seq_len})


def test_import_content_of_corrected_numbers_replaces_the_old_ones(store: Store) -> None:
    for ce in (9.0, 3.5, 3.5):
        import_items(store, [measurement_with(ce, seq_len=64)])
        assert store.runs()["ce"].tolist() == [ce]


def test_import_content_of_numbers_that_another_processor_rounds_differently_replaces_nothing(store: Store) -> None:
    for ce in (3.5, math.nextafter(3.5, 4)):
        import_items(store, [measurement_with(ce, seq_len=64)])
    assert len(list(store.measurements.search(""))) == 1


def test_import_bundle_with_corrected_numbers_replaces_the_old_ones(store: Store) -> None:
    other_store = Store(store.uri, "other")
    for ce in (9.0, 3.5):
        import_items(store, [measurement_with(ce, seq_len=64)])
        export_bundle(store.runs(), Path(f"{ce}.zip"))
        import_bundle(Path(f"{ce}.zip"), other_store)
    assert other_store.runs()["ce"].tolist() == [3.5]


def test_import_bundle_with_numbers_that_were_corrected_later_changes_nothing(store: Store) -> None:
    other_store = Store(store.uri, "other")
    for ce in (9.0, 3.5):
        import_items(store, [measurement_with(ce, seq_len=64)])
        export_bundle(store.runs(), Path(f"{ce}.zip"))
        import_bundle(Path(f"{ce}.zip"), other_store)
    import_bundle(Path("9.0.zip"), other_store)
    assert other_store.runs()["ce"].tolist() == [3.5]


def test_import_content_of_the_same_model_at_another_sequence_length_replaces_nothing(store: Store) -> None:
    import_items(store, [measurement_with(3.5, seq_len=64)])
    import_items(store, [measurement_with(3.4, seq_len=128)])
    assert sorted(store.runs()["ce"]) == [3.4, 3.5]


def write_bundle_of_three(store: Store) -> Path:
    """Write a bundle of three measurements, which are in `store`."""
    import_items(store, [measurement_with(3.5, seq_len) for seq_len in (32, 64, 128)])
    export_bundle(store.runs(), Path("three.zip"))
    return Path("three.zip")


KILLED_IMPORT = """
import os, sys
from pathlib import Path
from rbptrack.exchange import import_bundle
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.tracking import Outbox, Store

class_ = {"MeasurementRecord": MeasurementRecord, "Outbox": Outbox, "Store": Store}[sys.argv[1]]
step = getattr(class_, sys.argv[2])
calls = []

def killed_step(*args, **options):
    calls.append(args)
    if len(calls) == int(sys.argv[3]):
        os._exit(9)  # like a kill, this runs no handlers
    return step(*args, **options)

setattr(class_, sys.argv[2], killed_step)
import_bundle(Path("three.zip"), Store("", "other"))
"""
"""Imports a bundle, and ends when a method of a class is called for the n-th time."""


@pytest.mark.parametrize(
    ("class_", "method", "call", "num_delivered", "num_waiting"),
    [
        ("MeasurementRecord", "write", 2, 0, 0),
        ("Store", "check_writable", 1, 0, 0),
        ("Outbox", "write_address", 3, 0, 0),
        ("Outbox", "deliver", 1, 0, 3),
        ("Store", "log", 2, 1, 2),
    ],
)
def test_an_import_that_is_killed_leaves_all_measurements_or_none(
    class_: str, method: str, call: int, num_delivered: int, num_waiting: int, store: Store
) -> None:
    bundle = write_bundle_of_three(store)
    other_store = Store(store.uri, "other")
    other_store.check_writable()
    words = [sys.executable, "-c", KILLED_IMPORT, class_, method, str(call)]
    assert subprocess.run(words, check=False).returncode == 9
    assert len(list(other_store.finished_runs())) == num_delivered
    assert len(Outbox(other_store).waiting_folders()) == num_waiting
    deliveries = Outbox(other_store).deliver_waiting()
    assert [delivery.error for delivery in deliveries] == [""] * num_waiting
    assert list(cells_folder().iterdir()) == []
    assert len(list(other_store.finished_runs())) == num_delivered + num_waiting
    import_bundle(bundle, other_store)
    assert sorted(other_store.runs()["seq_len"]) == [32, 64, 128]
    assert len(list(other_store.measurements.search(""))) == 3
    assert list(other_store.verify()) == []


@pytest.mark.parametrize("error", [StoreAway("away"), StoreRefuses("refused"), KeyboardInterrupt()])
@pytest.mark.parametrize("repeat_first", [False, True])
def test_import_content_that_loses_the_store_is_completed_by_the_next_command(
    error: BaseException, repeat_first: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [measurement_with(3.5, seq_len) for seq_len in (32, 64, 128)]
    steps = iter([Store.log])

    def log(*args: Any) -> str:
        step = next(steps, None)
        if step is None:
            raise error
        return step(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "log", log)
        with pytest.raises(type(error)):
            import_items(store, items)
    assert len(Outbox(store).waiting_folders()) == 2
    if repeat_first:
        import_items(store, items)
    Outbox(store).deliver_waiting()
    assert sorted(store.runs()["seq_len"]) == [32, 64, 128]
    assert len(list(store.measurements.search(""))) == 3
    assert list(cells_folder().iterdir()) == []


def test_import_content_leaves_nothing_if_the_user_must_not_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreRefuses("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "check_writable", refuse)
        with pytest.raises(StoreRefuses):
            import_items(store, [measurement_with(3.5, seq_len=64)])
    assert list(cells_folder().iterdir()) == []


def test_import_content_does_not_remove_the_folder_of_an_import_that_runs(store: Store) -> None:
    with Outbox(store).delivering_together() as folder:
        import_items(store, [measurement_with(3.5, seq_len=64)])
        assert folder.exists()
    assert list(cells_folder().iterdir()) == []


def test_import_content_without_a_size_says_so_and_leaves_it_empty(store: Store) -> None:
    lines = import_items(store, [ImportedMeasurement({"model": "m-1k", "dataset": "wiki", "ce": 3.0})])
    assert any("non_embedding_params" in line for line in lines)
    (non_embedding_params,) = store.runs().frame["non_embedding_params"].astype(float)
    assert math.isnan(non_embedding_params)


def test_import_content_of_scores_adds_them_once(store: Store) -> None:
    scores = [ImportedScore({"model": "a", "task": "arc", "score": 0.25, "n": 100})]
    import_items(store, scores)
    import_items(store, scores)
    assert store.scores()[["model", "task", "score"]].to_numpy().tolist() == [["a", "arc", 0.25]]


def test_import_content_of_rows_without_dtype_gives_one_law_of_all_sizes(store: Store) -> None:
    items = []
    for i, dtype in enumerate(["nan", "float32", "float32"], start=1):
        row = {"model": f"a-{i}m", "dataset": "pile", "ce": 4 - i / 2, "dtype": dtype}
        items.append(ImportedMeasurement(row | {"non_embedding_params": i * 10**6}))
    import_items(store, items)
    ((family,), notes) = comparable_families(store.runs())
    assert (family.name, family.labels) == ("a", ["1m", "2m", "3m"])
    assert any("dtype" in note for note in notes)


def test_import_content_of_two_tables_does_not_assume_an_unknown_dtype(store: Store) -> None:
    for i, dtype in enumerate(["nan", "float32", "float32"], start=1):
        row = {"model": f"a-{i}m", "dataset": "pile", "ce": 4 - i / 2, "dtype": dtype}
        item = ImportedMeasurement(row | {"non_embedding_params": i * 10**6})
        table = Path(f"{dtype}.csv")
        import_content("table", check_imported(table, [item]), table, store)
    families, _ = comparable_families(store.runs())
    assert sorted(family.labels for family in families) == [["1m"], ["2m", "3m"]]


def test_import_content_of_seeds_gives_one_point_for_each_size(store: Store) -> None:
    rows = [("a-70m", 1, 3.20), ("a-70m", 2, 3.22), ("a-160m", 1, 2.90), ("a-160m", 2, 2.91), ("a-410m", 0, 2.60)]
    s = {"a-70m": 18_915_328, "a-160m": 85_056_000, "a-410m": 302_311_424}
    items = []
    for model, seed, ce in rows:
        row = {"model": model, "dataset": "pile", "ce": ce, "seed": seed, "non_embedding_params": s[model]}
        items.append(ImportedMeasurement(row))
    import_items(store, items)
    runs = store.runs()
    assert sorted(runs.frame["model"]) == ["a-160m-seed1", "a-160m-seed2", "a-410m", "a-70m-seed1", "a-70m-seed2"]
    ((family,), _) = comparable_families(runs)
    assert family.labels == ["70m", "160m", "410m"]
    assert family.column("ce").tolist() == pytest.approx([3.21, 2.905, 2.60])
    assert list(store.verify()) == []


def test_import_content_of_older_scores_makes_them_the_newest(store: Store) -> None:
    def scores_with(score_of_a: float) -> list[Imported]:
        return [
            ImportedScore({"model": "a", "task": "arc", "score": score_of_a}),
            ImportedScore({"model": "b", "task": "arc", "score": 0.5}),
        ]

    for score_of_a in (0.25, 0.75, 0.25):
        lines = import_items(store, scores_with(score_of_a))
        assert any("imported" in line for line in lines)
        assert store.scores().set_index("model")["score"].to_dict() == {"a": score_of_a, "b": 0.5}
    lines = import_items(store, scores_with(0.25))
    assert not any("imported" in line for line in lines)


def test_imported_near_copies_are_one_group_in_every_interval(store: Store) -> None:
    """30 originals that occur twice say as much about a model as the 30 originals alone."""
    rng = np.random.default_rng(0)
    greater = np.tile(rng.geometric(0.5, size=(30, 40)) - 1, (2, 1)).ravel()
    token = np.tile(rng.integers(2000, size=(30, 40)), (2, 1)).ravel()
    twice = rank_table(greater + 1, documents=60, token=token)
    once = rank_table(greater[:1200] + 1, documents=30, token=token[:1200])
    rows = []
    for name, table in (("twice", twice), ("once", once)):
        rows.append(ImportedMeasurement({"model": f"{name}-1k", "dataset": name}, ranks=table))
    import_items(store, rows)
    runs = store.runs()
    assert runs["twice-1k/twice"]["groups"] == 30
    assert pd.isna(runs["once-1k/once"]["groups"])
    assert runs["twice-1k/twice"]["ce_se"] == pytest.approx(runs["once-1k/once"]["ce_se"])
    assert "60 documents, 30 distinct" in runs["twice-1k/twice"]["notes"]
    assert len(runs.document_counts("twice-1k/twice", [1]).tokens) == 30
    assert list(store.verify()) == []


def test_import_content_of_scores_names_replaced_values_and_numbers_of_items(store: Store) -> None:
    earlier = {"a": (0.4, 2376), "b": (0.5, 2376), "c": (0.6, 2376)}
    imported = {"a": (0.75, 20), "b": (0.5, 2376), "d": (0.6, 1)}
    lines = []
    for scores in (earlier, imported):
        columns = [{"model": model, "task": "sums", "score": score, "n": n} for model, (score, n) in scores.items()]
        lines = import_items(store, [ImportedScore(row) for row in columns])
    (line,) = [line for line in lines if "sums" in line]
    for part in ("a", "0.4", "2,376", "0.75", "20"):
        assert part in line
