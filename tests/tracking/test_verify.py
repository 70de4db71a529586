"""What was measured is what the store says: the seal, the hashes, the ranks."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.tracking import Outbox, Record, Store
from tests.store_fixtures import WriteCell

FILES = (
    "ranks.parquet",
    "histogram.parquet",
    "documents.parquet",
    "config.yaml",
    "tokens.json",
    "record.json",
)
ALTERATIONS = {
    "a metric by its last digit": "update latest_metrics set value = value + 1e-15 where key = 'ce'",
    "S": "update latest_metrics set value = 39000 where key = 'non_embedding_params'",
    "bits per byte": "update latest_metrics set value = value * 2 where key = 'bits_per_byte'",
    "a standard error": "update latest_metrics set value = 0 where key = 'rbp_10_se'",
    "a metric taken away": "delete from latest_metrics where key = 'rbp_100'",
    "a metric added": "update latest_metrics set key = 'rbp_99' where key = 'rbp_100'",
    "a param": "update params set value = 'bfloat16' where key = 'dtype'",
    "a param taken away": "delete from params where key = 'seq_len'",
    "a param added": "insert into params select 'seed', '7', run_uuid from runs",
    "the family": "update tags set value = 'other' where key = 'rbptrack.family'",
    "the dataset": "update tags set value = 'other' where key = 'rbptrack.dataset'",
    "the fingerprint": "update tags set value = 'f' where key = 'rbptrack.fingerprint'",
    "the commit": "delete from tags where key = 'rbptrack.commit'",
    "the seal": "update tags set value = 'f' where key = 'rbptrack.seal'",
    "the seal taken away": "delete from tags where key = 'rbptrack.seal'",
    "a point of the curve": "update metrics set value = value / 2 where key = 'rbp_curve' and step = 7",
    "a k of the curve": "update metrics set step = 511 where key = 'rbp_curve' and step = 512",
    "a point taken away": "delete from metrics where key = 'rbp_curve' and step = 7",
    "a tag of ours added": "insert into tags select 'rbptrack.training_tokens', '7', run_uuid from runs",
    "a tag that a record may hold added": "insert into tags select 'rbptrack.imported', 'table', run_uuid from runs",
    "when it began": "update runs set start_time = start_time + 1",
    "when it ended": "update runs set end_time = end_time - 1",
    "the status": "update runs set status = 'FAILED'",
    "the status, as if it were under way": "update runs set status = 'RUNNING'",
    "the kind": "update tags set value = 'analysis' where key = 'rbptrack.kind'",
    "the kind taken away": "delete from tags where key = 'rbptrack.kind'",
    "where its files are": "update runs set artifact_uri = '/nowhere'",
    "the dataset's name": "update datasets set name = 'other'",
    "the dataset's digest": "update datasets set digest = 'ffffffff'",
    "the dataset taken away": "delete from inputs where source_type = 'DATASET'",
}


def test_a_store_that_nobody_touched_has_no_fault(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    Outbox(store).deliver(write_cell(2000, documents=40, groups=20))
    store.save_view()
    assert list(store.verify(repair=True)) == []
    assert len(store.runs()) == 2


def test_an_experiment_that_is_not_there_is_not_sound(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    with pytest.raises(BadInput, match="other"):
        list(Store(store.uri, "other").verify())


def test_every_alteration_is_noticed(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    noticed = []
    with closing(sqlite3.connect("mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as before:
        database.backup(before)
        for what, statement in ALTERATIONS.items():
            assert database.execute(statement).rowcount > 0, what
            database.commit()
            if {fault.run_id for fault in store.verify()} == {run_id}:
                noticed.append(what)
            before.backup(database)
    assert noticed == list(ALTERATIONS)
    assert list(store.verify()) == []


REPORT_ALTERATIONS = {
    "a result": "update latest_metrics set value = 1 where key = 'alpha'",
    "a result added": "update latest_metrics set key = 'beta' where key = 'alpha'",
    "the sweep's name": "update tags set value = 'second' where key = 'rbptrack.sweep'",
    "how many it covers": "update tags set value = '3' where key = 'rbptrack.covers'",
    "the kind": "update tags set value = 'analysis' where key = 'rbptrack.kind'",
    "the status": "update runs set status = 'FAILED'",
    "when": "update runs set start_time = 1",
    "the seal": "update tags set value = 'f' where key = 'rbptrack.seal'",
}


@pytest.fixture
def reported(store: Store, write_cell: WriteCell) -> tuple[str, str]:
    """A measurement, and the sweep that covers it and holds scores, too."""
    run_id = Outbox(store).deliver(write_cell())
    scores = pd.DataFrame({"model": ["nano"], "revision": [""], "task": ["arc"], "score": [0.5], "n": [9.0]})
    files = {"report.html": "<p>", "scores.csv": scores.to_csv(index=False)}
    sweep = store.save("sweep", "s", sweep="first", metrics={"alpha": 0.1}, files=files, covers=[run_id])
    assert list(store.verify()) == []
    return run_id, sweep


def test_alterations_of_a_report_are_noticed(store: Store, reported: tuple[str, str]) -> None:
    _, sweep = reported
    noticed = []
    with closing(sqlite3.connect("mlflow.db")) as database, closing(sqlite3.connect(":memory:")) as before:
        database.backup(before)
        for what, statement in REPORT_ALTERATIONS.items():
            where = "and" if "where" in statement else "where"
            assert database.execute(f"{statement} {where} run_uuid = ?", (sweep,)).rowcount > 0, what
            database.commit()
            if {fault.run_id for fault in store.verify()} == {sweep}:
                noticed.append(what)
            before.backup(database)
    assert noticed == list(REPORT_ALTERATIONS)


@pytest.mark.parametrize("name", ["scores.csv", "covers.json", "report.html", "record.json"])
def test_files_of_a_report_are_compared(store: Store, reported: tuple[str, str], name: str) -> None:
    _, sweep = reported
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
def test_a_measurement_that_a_sweep_names_and_that_is_gone_is_noticed(
    store: Store, reported: tuple[str, str], statement: str
) -> None:
    run_id, _ = reported
    with closing(sqlite3.connect("mlflow.db")) as database:
        assert database.execute(statement, (run_id,)).rowcount > 0
        database.commit()
    assert {(fault.run_id, fault.is_measurement) for fault in store.verify(repair=True)} == {(run_id, True)}


def test_a_run_that_is_removed_from_the_database_is_noticed(store: Store, reported: tuple[str, str]) -> None:
    run_id, _ = reported
    with closing(sqlite3.connect("mlflow.db")) as database:
        for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
            database.execute(f"delete from {table} where run_uuid = ?", (run_id,))
        database.commit()
    assert {fault.run_id for fault in store.verify()} == {run_id}


def test_a_file_that_would_be_read_and_is_not_recorded_is_noticed(store: Store, reported: tuple[str, str]) -> None:
    run_id, sweep = reported
    store.artifact(run_id, "ranks.parquet").with_name("scores.csv").write_text("x")
    store.artifact(sweep, "report.html").with_name("notes.txt").write_text("the user's own")
    assert {fault.run_id for fault in store.verify()} == {run_id}


def test_what_belongs_to_the_user_is_no_fault(store: Store, reported: tuple[str, str]) -> None:
    run_id, _ = reported
    client = store.connection.client
    client.set_tag(run_id, "paper", "yes")
    client.set_tag(run_id, "mlflow.note.content", "see the paper")
    client.set_tag(run_id, "mlflow.runName", "best")
    client.create_run(str(store.measurements.find()), run_name="somebody's own")
    assert list(store.verify()) == []


def test_flipped_bits_and_missing_files_are_noticed(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    rng = np.random.default_rng(0)
    for name in FILES:
        path = store.artifact(run_id, name)
        content = path.read_bytes()
        for place in rng.integers(0, len(content), 6).tolist():
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(damaged)
            assert list(store.verify()), (name, place)
        path.unlink()
        assert [name in fault.text for fault in store.verify()] == [True]
        path.write_bytes(content)
    assert list(store.verify()) == []


def test_numbers_that_the_ranks_do_not_give_are_noticed_though_they_are_sealed(
    store: Store, write_cell: WriteCell
) -> None:
    folder = write_cell()
    table = RankTable.read(folder / "ranks.parquet")
    greater = table.column("greater").copy()
    greater[0] = 200
    columns = {name: table.column(name) for name in table.table.column_names}
    RankTable.from_arrays(vocab_size=512, **columns | {"greater": greater}).write(folder / "ranks.parquet")
    Record.read(folder).write(folder)
    Outbox(store).deliver(folder)
    assert any("rbp_100" in fault.text for fault in store.verify())


def test_repair_lets_the_next_sweep_measure_again(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    name = folder.name
    damaged = Outbox(store).deliver(folder)
    sound = Outbox(store).deliver(write_cell(1000))
    store.artifact(damaged, "ranks.parquet").unlink()
    assert len(list(store.verify(repair=True))) == 1
    assert store.find(name) is None
    assert store.runs()["run_id"].tolist() == [sound]
    assert store.connection.client.get_run(damaged).data.tags["rbptrack.damaged"]
    again = Outbox(store).deliver(write_cell())
    assert store.find(name) == again
    assert list(store.verify()) == []
