"""Tests of `Store.verify`: it finds every alteration of runs, their files, and the numbers that ranks determine."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.measurement.build import faults_of_ranks
from rbptrack.measurement.document import Measurement
from rbptrack.measurement.record import ReportRecord, read_measurement
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking import Outbox, Store, verify
from tests.conftest import block_reading
from tests.store_fixtures import WriteCell

FILES = (
    "ranks.parquet",
    "histogram.parquet",
    "documents.parquet",
    "config.yaml",
    "tokens.json",
    "record.json",
)

ALTERATIONS_OF_A_MEASUREMENT = {
    "the last digit of a metric": "update latest_metrics set value = value + 1e-15 where key = 'ce'",
    "S": "update latest_metrics set value = 39000 where key = 'non_embedding_params'",
    "bits per byte": "update latest_metrics set value = value * 2 where key = 'bits_per_byte'",
    "a standard error": "update latest_metrics set value = 0 where key = 'rbp_10_se'",
    "a metric removed": "delete from latest_metrics where key = 'rbp_100'",
    "a metric renamed": "update latest_metrics set key = 'rbp_99' where key = 'rbp_100'",
    "a param": "update params set value = 'bfloat16' where key = 'dtype'",
    "a param removed": "delete from params where key = 'seq_len'",
    "a param added": "insert into params select 'gguf', '7', run_uuid from runs",
    "the fingerprint": "update tags set value = 'f' where key = 'rbptrack.fingerprint'",
    "the commit removed": "delete from params where key = 'commit'",
    "the seal": "update tags set value = 'f' where key = 'rbptrack.seal'",
    "the seal removed": "delete from tags where key = 'rbptrack.seal'",
    "a value of the curve": "update metrics set value = value / 2 where key = 'rbp_curve' and step = 7",
    "a k of the curve": "update metrics set step = 511 where key = 'rbp_curve' and step = 512",
    "a point of the curve removed": "delete from metrics where key = 'rbp_curve' and step = 7",
    "a tag of rbptrack added": "insert into tags select 'rbptrack.other', '7', run_uuid from runs",
    "the tag of an import added": "insert into tags select 'rbptrack.imported', 'table', run_uuid from runs",
    "the start": "update runs set start_time = start_time + 1",
    "the end": "update runs set end_time = end_time - 1",
    "the status FAILED": "update runs set status = 'FAILED'",
    "the status RUNNING": "update runs set status = 'RUNNING'",
    "the kind": "update tags set value = 'analysis' where key = 'rbptrack.kind'",
    "the kind removed": "delete from tags where key = 'rbptrack.kind'",
    "the address of the artifacts": "update runs set artifact_uri = '/nowhere'",
    "the digest of the logged dataset": "update datasets set digest = 'ffffffff'",
    "the logged dataset removed": "delete from inputs where source_type = 'DATASET'",
}
"""SQL statements that alter a measurement in the database, by what they alter."""

ALTERATIONS_OF_A_REPORT = {
    "a result": "update latest_metrics set value = 1 where key = 'alpha' and run_uuid = ?",
    "a result renamed": "update latest_metrics set key = 'beta' where key = 'alpha' and run_uuid = ?",
    "the sweep's name": "update tags set value = 'second' where key = 'rbptrack.sweep' and run_uuid = ?",
    "the number of measurements": "update tags set value = '3' where key = 'rbptrack.covers' and run_uuid = ?",
    "the kind": "update tags set value = 'analysis' where key = 'rbptrack.kind' and run_uuid = ?",
    "the status": "update runs set status = 'FAILED' where run_uuid = ?",
    "the start": "update runs set start_time = 1 where run_uuid = ?",
    "the seal": "update tags set value = 'f' where key = 'rbptrack.seal' and run_uuid = ?",
}
"""SQL statements that alter the run with a given ID, by what they alter."""


def unnoticed_alterations(
    store: Store, run_id: str, alterations: Mapping[str, str], parameters: tuple[str, ...] = ()
) -> list[str]:
    """Apply each alteration to the database of a store, verify the store, and undo the alteration.

    Returns:
        The names of those alterations for which `verify` does not name exactly the run `run_id`.
    """
    unnoticed = []
    with closing(sqlite3.connect("mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as backup:
        database.backup(backup)
        for name, statement in alterations.items():
            assert database.execute(statement, parameters).rowcount > 0, name
            database.commit()
            if {fault.run_id for fault in store.verify()} != {run_id}:
                unnoticed.append(name)
            backup.backup(database)
    return unnoticed


def alter(statement: str, run_id: str) -> None:
    """Run a statement on the database, with the ID of a run as its parameter."""
    with closing(sqlite3.connect("mlflow.db")) as database:
        assert database.execute(statement, (run_id,)).rowcount > 0
        database.commit()


@pytest.fixture
def sweep_and_measurement(store: Store, write_cell: WriteCell) -> tuple[str, str]:
    """The run IDs of a sweep and of the one measurement that it used. The sweep also holds scores."""
    measurement = Outbox(store).deliver(write_cell())
    scores = pd.DataFrame({"model": ["nano"], "revision": [""], "task": ["arc"], "score": [0.5], "n": [9.0]})
    files = {"report.html": "<p>", "scores.csv": scores.to_csv(index=False)}
    record = ReportRecord(
        title="s",
        tags={"rbptrack.sweep": "first"},
        metrics={"alpha": 0.1},
        covered_run_ids=[measurement],
    )
    sweep = store.save("sweep", record, files)
    assert list(store.verify()) == []
    return sweep, measurement


def test_verify_finds_no_fault_in_an_unaltered_store(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(2000, documents=40, groups=20))
    store.save_view()
    assert list(store.verify(repair=True)) == []
    assert len(store.runs()) == 2


def test_verify_refuses_an_experiment_that_does_not_exist(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    with pytest.raises(BadInput, match="other"):
        list(Store(store.uri, "other").verify())


def test_verify_finds_every_alteration_of_a_measurement(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    assert unnoticed_alterations(store, run_id, ALTERATIONS_OF_A_MEASUREMENT) == []
    assert list(store.verify()) == []


@pytest.mark.parametrize("name", FILES)
def test_verify_does_not_mark_a_measurement_whose_file_the_system_cannot_open(
    name: str, store: Store, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell())
    block_reading(store.artifact(run_id, name))
    (fault,) = store.verify(repair=True)
    assert (fault.run_id, fault.kind) == (run_id, "unreadable")
    assert os.strerror(errno.ELOOP) in fault.text
    assert len(store.runs()) == 1


def test_verify_finds_every_alteration_of_a_sweep(store: Store, sweep_and_measurement: tuple[str, str]) -> None:
    sweep, _ = sweep_and_measurement
    assert unnoticed_alterations(store, sweep, ALTERATIONS_OF_A_REPORT, parameters=(sweep,)) == []


@pytest.mark.parametrize("name", ["scores.csv", "report.html", "record.json"])
def test_verify_finds_altered_and_missing_files_of_a_sweep(
    name: str, store: Store, sweep_and_measurement: tuple[str, str]
) -> None:
    sweep, _ = sweep_and_measurement
    path = store.artifact(sweep, name)
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    assert {(fault.run_id, fault.is_measurement) for fault in store.verify()} == {(sweep, False)}
    path.unlink()
    assert {fault.run_id for fault in store.verify()} == {sweep}
    path.write_bytes(content)
    assert list(store.verify()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "update runs set lifecycle_stage = 'deleted' where run_uuid = ?",
        "update runs set experiment_id = 0 where run_uuid = ?",
        "update runs set status = 'FAILED' where run_uuid = ?",
        "update runs set status = 'KILLED' where run_uuid = ?",
        "update runs set experiment_id = (select experiment_id from experiments where name = 'rbptrack-reports') "
        "where run_uuid = ?",
        "delete from tags where key in ('rbptrack.seal', 'rbptrack.kind') and run_uuid = ?",
    ],
)
def test_verify_finds_a_measurement_of_a_sweep_that_no_longer_counts(
    statement: str, store: Store, sweep_and_measurement: tuple[str, str]
) -> None:
    _, measurement = sweep_and_measurement
    alter(statement, measurement)
    faults = store.verify(repair=True)
    assert {(fault.run_id, fault.is_measurement) for fault in faults} == {(measurement, True)}


def test_verify_finds_a_measurement_of_a_sweep_that_was_removed_from_the_database(
    store: Store, sweep_and_measurement: tuple[str, str]
) -> None:
    _, measurement = sweep_and_measurement
    for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
        alter(f"delete from {table} where run_uuid = ?", measurement)
    assert {fault.run_id for fault in store.verify()} == {measurement}


def test_verify_finds_an_added_file_that_rbptrack_would_read(
    store: Store, sweep_and_measurement: tuple[str, str]
) -> None:
    _, measurement = sweep_and_measurement
    store.artifact(measurement, "ranks.parquet").with_name("scores.csv").write_text("x")
    assert {fault.run_id for fault in store.verify()} == {measurement}


def test_verify_allows_files_tags_and_runs_of_the_user(store: Store, sweep_and_measurement: tuple[str, str]) -> None:
    sweep, measurement = sweep_and_measurement
    store.artifact(sweep, "report.html").with_name("notes.txt").write_text("the user's own")
    client = store.connection.client
    client.set_tag(measurement, "paper", "yes")
    client.set_tag(measurement, "mlflow.note.content", "see the paper")
    client.set_tag(measurement, "mlflow.runName", "best")
    client.create_run(str(store.measurements.find()), run_name="somebody's own")
    assert list(store.verify()) == []


@pytest.mark.parametrize("name", FILES)
def test_verify_finds_flipped_bits_and_a_missing_file_of_a_measurement(
    name: str, store: Store, write_cell: WriteCell
) -> None:
    run_id = Outbox(store).deliver(write_cell())
    rng = np.random.default_rng(0)
    path = store.artifact(run_id, name)
    content = path.read_bytes()
    for place in rng.integers(0, len(content), 6).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        assert list(store.verify()), f"the flipped bit in byte {place}"
    path.unlink()
    (fault,) = store.verify()
    assert name in fault.text
    path.write_bytes(content)
    assert list(store.verify()) == []


@pytest.mark.parametrize("name", ["record.json", "ranks.parquet"])
def test_verify_reports_a_fifo_in_place_of_a_file(name: str, store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    path = store.artifact(run_id, name)
    path.unlink()
    os.mkfifo(path)
    assert {fault.run_id for fault in store.verify()} == {run_id}


def test_verify_names_the_imported_file_of_damaged_scores(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    scores = pd.DataFrame([{"model": "nano-1000", "revision": "", "task": "arc", "score": 0.5, "n": 100}])
    store.save_scores(scores, "leaderboard.csv")
    (run,) = store.reports.search("")
    store.artifact(run.info.run_id, "scores.csv").write_text("model")
    (fault,) = store.verify()
    assert fault.imported_from == "leaderboard.csv"


def test_verify_finds_sealed_numbers_that_the_ranks_contradict(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    table = RankTable.read(folder / "ranks.parquet")
    columns = {name: table.column(name) for name in table.table.column_names}
    columns["greater"] = columns["greater"].copy()
    columns["greater"][0] = 200
    RankTable.from_arrays(vocab_size=512, **columns).write(folder / "ranks.parquet")
    read_measurement(folder).write(folder)  # seals the old numbers with the hash of the new ranks
    Outbox(store).deliver(folder)
    assert any("rbp_100" in fault.text for fault in store.verify())


@pytest.mark.parametrize(("column", "place", "change"), [("rank", -1, 1), ("count", 0, 1), ("logprob", 0, 1e-3)])
def test_verify_finds_a_sealed_histogram_that_the_ranks_contradict(
    column: str, place: int, change: float, store: Store, write_cell: WriteCell
) -> None:
    folder = write_cell()
    histogram = RankHistogram.read(folder / "histogram.parquet")
    columns = {name: getattr(histogram, name).copy() for name in ("rank", "count", "logprob")}
    columns[column][place] += change
    RankHistogram(**columns, vocab_size=512).write(folder / "histogram.parquet")
    read_measurement(folder).write(folder)
    Outbox(store).deliver(folder)
    assert any("histogram" in fault.text for fault in store.verify())


def test_verify_does_not_mark_a_run_that_it_cannot_compare(
    store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(2000))

    def compare_while_memory_suffices(measurement: Measurement, folder: Path) -> Iterator[str]:
        if measurement.size == "1000":
            raise MemoryError
        return faults_of_ranks(measurement, folder)

    monkeypatch.setattr(verify, "faults_of_ranks", compare_while_memory_suffices)
    (fault,) = store.verify(repair=True)
    assert (fault.run_id, fault.kind) == (run_id, "unreadable")
    assert len(store.runs()) == 2


def test_verify_with_repair_marks_damaged_runs_so_they_are_measured_again(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    fingerprint = folder.name
    damaged = Outbox(store).deliver(folder)
    sound = Outbox(store).deliver(write_cell(1000))
    store.artifact(damaged, "ranks.parquet").unlink()
    assert len(list(store.verify(repair=True))) == 1
    assert store.find(fingerprint) is None
    assert store.runs()["run_id"].tolist() == [sound]
    assert store.connection.client.get_run(damaged).data.tags["rbptrack.damaged"]
    repeated = Outbox(store).deliver(write_cell())
    assert store.find(fingerprint) == repeated
    assert list(store.verify()) == []


def test_verify_names_the_run_that_counts_of_two_with_one_fingerprint(store: Store, write_cell: WriteCell) -> None:
    first = Outbox(store).deliver(write_cell())
    time.sleep(0.01)  # runs are ordered by their start in milliseconds
    second = Outbox(store).deliver(write_cell(forced=True))
    (fault,) = store.verify(repair=True)
    assert (fault.run_id, fault.kind) == (first, "superseded")
    assert second in fault.text
    assert store.connection.client.get_run(first).info.status == "FINISHED"


def test_verify_since_a_time_compares_only_runs_that_began_later(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    store.connection.client.log_metric(run_id, "ce", 1.5)
    assert [fault.run_id for fault in store.verify(since=time.time() - 3600)] == [run_id]
    assert list(store.verify(since=time.time() + 3600)) == []
