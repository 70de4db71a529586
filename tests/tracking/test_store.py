"""Tests of `Store`: its address, its database, runs of reports, failures, and what it finds."""

from __future__ import annotations

import pickle
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from rbptrack.base.errors import BadInput
from rbptrack.measurement.record import ReportRecord, read_measurement
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.writer import RunWriter
from tests.store_fixtures import WriteCell
from tests.tracking.conftest import runs_in
from tests.tracking.interrupts import interrupt


def test_default_store_is_the_one_that_mlflow_uses_in_the_folder(
    write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = Outbox(Store()).deliver(write_cell())
    assert mlflow.search_runs(experiment_names=["rbptrack"])["run_id"].tolist() == [run_id]
    assert mlflow.get_run(run_id).info.artifact_uri == f"{tmp_path}/mlruns/1/{run_id}/artifacts"


def test_default_store_is_one_sqlite_file_in_wal_mode(
    write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Outbox(Store()).deliver(write_cell())
    databases = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.db*")]
    assert {name.removesuffix("-shm").removesuffix("-wal") for name in databases} == {"mlflow.db"}
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)


def test_store_in_another_folder_keeps_artifacts_next_to_its_database(
    store: Store, write_cell: WriteCell, tmp_path: Path
) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "mlflow.db").rename(tmp_path / "team" / "runs.db")
    team_store = Store(f"sqlite:///{tmp_path}/team/runs.db")
    run_id = Outbox(team_store).deliver(write_cell())
    assert (tmp_path / "team" / "mlruns" / "rbptrack" / run_id / "artifacts" / "ranks.parquet").exists()


def test_reading_a_store_that_does_not_exist_creates_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store()
    assert store.find("f" * 64) is None
    assert store.find_all({"f" * 64}) == {}
    assert Outbox(store).deliver_waiting() == []
    with pytest.raises(BadInput):
        list(store.verify())
    with pytest.raises(BadInput):
        store.runs()
    assert list(tmp_path.iterdir()) == []


def test_interrupt_during_creation_of_the_database_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rbptrack.base.files.sync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Store().save("analysis", ReportRecord(title="first"))
    assert not (tmp_path / "mlflow.db").exists()


def test_find_all_returns_the_runs_of_the_fingerprints_that_exist(store: Store, write_cell: WriteCell) -> None:
    """More than 20 fingerprints are searched in another way than a few."""
    folders = [write_cell(1000), write_cell(2000)]
    fingerprints = [folder.name for folder in folders]
    run_ids = [Outbox(store).deliver(folder) for folder in folders]
    absent = [f"{i:064x}" for i in range(30)]
    assert store.find_all([*fingerprints, *absent]) == dict(zip(fingerprints, run_ids, strict=True))


def test_log_failure_logs_a_failed_run_with_the_reason_without_its_password(
    store: Store, write_cell: WriteCell
) -> None:
    record = read_measurement(write_cell())
    run_id = store.log_failure(
        record.title, dict(record.measurement), "out of memory at 1 token, see http://ann:pass@host"
    )
    run = MlflowClient(store.uri).get_run(run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags["rbptrack.failure"] == "out of memory at 1 token, see http://***@host"
    assert run.data.params == record.params
    assert store.find(record.fingerprint) is None


@pytest.mark.parametrize(
    "uri", ["http://a:pass@host", "postgresql://a:pass@b/c", "./mlruns", "ftp://x", "sqlite:", "sqlite:////dev/null"]
)
def test_store_refuses_addresses_with_a_password_or_of_an_unknown_kind(uri: str) -> None:
    with pytest.raises(BadInput) as error:
        Store(uri)
    assert "pass@" not in str(error.value)


def test_store_of_a_folder_with_an_old_file_store_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    Store()
    (tmp_path / "mlruns" / "0" / "meta.yaml").touch()
    with pytest.raises(BadInput):
        Store()
    Store("sqlite:///mlflow.db")


def test_save_writes_a_finished_run_into_the_experiment_of_reports(store: Store, write_cell: WriteCell) -> None:
    measurement = Outbox(store).deliver(write_cell())
    record = ReportRecord(
        title="first",
        tags={"rbptrack.sweep": "first"},
        metrics={"alpha/nano/wiki/rbp_10": 0.2},
        covered_run_ids=[measurement],
        began=1000.5,
    )
    report = store.save("sweep", record, {"report.html": "<p>", "figure.png": b"\x89PNG"}, "It improves.")
    assert [run.info.run_id for run in runs_in(store)] == [measurement]
    (run,) = runs_in(store, "rbptrack-reports")
    assert (run.info.run_id, run.info.status, run.info.start_time) == (report, "FINISHED", 1000500)
    assert run.data.tags["mlflow.note.content"].endswith("It improves.")
    assert run.data.metrics == {"alpha/nano/wiki/rbp_10": 0.2}
    assert store.artifact(report, "report.html").read_text() == "<p>"


def test_save_deletes_its_report_if_it_is_interrupted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.save("analysis", ReportRecord(title="first"))
    assert list(runs_in(store, "rbptrack-reports")) == []


def test_save_deletes_an_unfinished_report_of_a_process_that_has_ended(store: Store) -> None:
    RunWriter(store.reports).create("report", {}, time.time())
    store.save("analysis", ReportRecord(title="second"))
    (run,) = runs_in(store, "rbptrack-reports")
    assert (run.info.run_name, run.info.status) == ("second", "FINISHED")


def test_save_leaves_unfinished_reports_of_other_folders(store: Store) -> None:
    other = Store()
    other.connection.lock_name = "another machine:/home/ann/mlruns"
    unfinished = RunWriter(other.reports).create("report", {}, time.time()).run_id
    store.save("analysis", ReportRecord(title="ours"))
    assert unfinished in {run.info.run_id for run in runs_in(store, "rbptrack-reports")}


def test_save_shortens_a_long_description(store: Store) -> None:
    store.save("analysis", ReportRecord(title="long"), description="x" * 20_000)
    (run,) = runs_in(store, "rbptrack-reports")
    assert run.data.tags["mlflow.note.content"].endswith("...")


def test_pickled_store_reads_the_same_measurements(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    runs = pickle.loads(pickle.dumps(store.runs()))
    assert runs.histogram(run_id).num_tokens == 600
    assert runs.store.find(runs["fingerprint"][0]) == run_id


@pytest.mark.parametrize(
    ("folder_name", "in_address", "database_exists"),
    [
        ("a?b", False, False),
        ("a?b", True, True),
        ("a%3Fb", False, True),
        ("a#b&c=d;e:f@g+h 50%", False, True),
    ],
)
def test_store_works_in_a_folder_whose_name_has_special_characters(
    folder_name: str,
    in_address: bool,
    database_exists: bool,
    write_cell: WriteCell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some characters have a meaning in addresses, such as `?`. They must not change the folder that is used.

    If `in_address` is true, the address of the store holds the path of the database. Otherwise the store is the default
    store of the current folder.
    """
    folder = tmp_path / "above" / folder_name
    (folder / "sub").mkdir(parents=True)
    monkeypatch.chdir(folder)
    if in_address:
        database = folder / "sub" / "mlflow.db"
        uri = "sqlite:///" + str(database).replace("%", "%25")
    else:
        database = folder / "mlflow.db"
        uri = ""
    if database_exists:
        assert Store(uri).connection.experiment_names() == []  # creates the database
    run_id = Outbox(Store(uri)).deliver(write_cell(folder=folder / "cell"))
    store = Store(Store(uri).uri)
    assert store.runs()["run_id"].tolist() == [run_id]
    assert store.artifact(run_id, "ranks.parquet").is_relative_to(folder)
    assert list(store.verify()) == []
    store.save("analysis", ReportRecord(title="report"), {"report.html": "<p>"})
    assert [path.name for path in (tmp_path / "above").iterdir()] == [folder_name]
    assert database.is_file()


def test_store_uses_the_experiment_of_its_argument_or_of_the_environment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Store().experiment == "rbptrack"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    assert Store().experiment == "theirs"
    assert Store().reports.name == "theirs-reports"
    assert Store("", "ours").experiment == "ours"


def test_check_writable_refuses_a_store_that_cannot_be_written(store: Store, tmp_path: Path) -> None:
    store.check_writable()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        for event in ("insert", "update"):
            database.execute(
                f"create trigger no_{event} before {event} on experiment_tags "
                "begin select raise(abort, 'readonly'); end"
            )
        database.commit()
    with pytest.raises(BadInput):
        Store().check_writable()
