"""Tests of `Outbox`: every finished measurement becomes exactly one complete run, also after errors and kills."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from mlflow import MlflowClient

from rbptrack.base.errors import BadInput, MissingArtifact, StoreAway
from rbptrack.config.paths import cells_folder
from rbptrack.measurement.record import read_measurement
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.writer import RunWriter
from tests.conftest import RunCommand, block_reading
from tests.store_fixtures import WriteCell
from tests.tracking.conftest import runs_in
from tests.tracking.interrupts import interrupt, interrupt_after

NO_SERVER = "http://127.0.0.1:9"
"""The address of a tracking server that does not answer."""


def test_deliver_makes_one_finished_run_and_removes_the_folder(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = read_measurement(folder)
    run_id = Outbox(store).deliver(folder)
    assert not folder.exists()
    (run,) = runs_in(store)
    assert (run.info.run_id, run.info.status, run.info.run_name) == (run_id, "FINISHED", "nano-38000 / wiki")
    assert run.info.start_time == int(record.began * 1000)
    assert run.info.end_time == int(record.ended * 1000)


def test_deliver_logs_all_params_metrics_and_curves_of_the_record(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = read_measurement(folder)
    run_id = Outbox(store).deliver(folder)
    (run,) = runs_in(store)
    assert run.data.params == record.params
    metrics = record.metrics
    assert {name: run.data.metrics[name] for name in metrics} == metrics
    assert set(run.data.metrics) == {*metrics, "rbp_curve"}
    history = MlflowClient(store.uri).get_metric_history(run_id, "rbp_curve")
    assert [(point.step, point.value) for point in history] == list(record.measurement.rbp_curve.items())


def test_deliver_logs_the_dataset_as_an_input(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell())
    (run,) = runs_in(store)
    (dataset_input,) = run.inputs.dataset_inputs
    assert (dataset_input.dataset.name, dataset_input.dataset.digest) == ("wiki", "d" * 8)


@pytest.mark.usefixtures("pictures")
def test_deliver_logs_all_files_and_a_picture_as_artifacts(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = read_measurement(folder)
    run_id = Outbox(store).deliver(folder)
    artifacts = {entry.path for entry in MlflowClient(store.uri).list_artifacts(run_id)}
    assert artifacts == {*record.files, "record.json", "rank_distribution.png"}
    assert store.artifact(run_id, "rank_distribution.png").read_bytes().startswith(b"\x89PNG")


def test_deliver_returns_the_existing_run_for_a_copy_and_for_a_removed_folder(
    store: Store, write_cell: WriteCell, tmp_path: Path
) -> None:
    folder = write_cell()
    shutil.copytree(folder, tmp_path / "copy")
    first = Outbox(store).deliver(folder)
    assert Outbox(store).deliver(tmp_path / "copy") == first
    # The folder is removed. The run is found by the name of the folder, which is the fingerprint.
    assert Outbox(store).deliver(folder) == first
    assert len(runs_in(store)) == 1


def test_deliver_by_several_threads_makes_one_run(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    folders = [write_cell(folder=tmp_path / f"copy {i}") for i in range(4)]
    run_ids: list[str] = []

    def deliver(folder: Path) -> None:
        run_ids.append(Outbox(store).deliver(folder))

    threads = [threading.Thread(target=deliver, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(run_ids) == 4
    assert len(set(run_ids)) == 1
    assert len(runs_in(store)) == 1


@pytest.mark.parametrize("step", ["create", "log_record", "log_inputs", "add_files", "end"])
def test_deliver_waiting_completes_a_delivery_that_was_killed_after_any_step(
    step: str, store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, step, interrupt_after(getattr(RunWriter, step)))
        # A killed process cannot delete its incomplete run either.
        patch.setattr(RunWriter, "discard", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    assert folder.exists()
    (delivered,) = Outbox(store).deliver_waiting()
    assert delivered.error == ""
    (run,) = runs_in(store)
    assert (run.info.run_id, run.info.status) == (delivered.run_id, "FINISHED")
    assert list(store.verify()) == []


def test_deliver_that_fails_deletes_its_run_and_keeps_the_folder(
    store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "add_files", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    assert runs_in(store) == []
    assert Outbox(store).deliver(folder)


def test_deliver_of_a_forced_measurement_makes_a_newer_run_that_the_store_returns(
    store: Store, write_cell: WriteCell
) -> None:
    first = Outbox(store).deliver(write_cell())
    time.sleep(0.01)  # runs are ordered by their start in milliseconds
    folder = write_cell(forced=True)
    fingerprint = folder.name
    shutil.copytree(folder, "copy")
    second = Outbox(store).deliver(folder)
    assert second != first
    assert Outbox(store).deliver(Path("copy")) == second  # the record is equal, so it is not logged again
    assert store.find(fingerprint) == second
    assert store.find_all([fingerprint]) == {fingerprint: second}
    assert store.runs()["run_id"].tolist() == [second]


def test_deliver_keeps_the_folder_if_the_store_is_away(write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folders = [write_cell(1000), write_cell(2000)]
    away = Store(NO_SERVER)
    for folder in folders:
        with pytest.raises(StoreAway):
            Outbox(away).deliver(folder)
    assert sorted(Outbox(away).waiting_folders()) == sorted(folders)
    assert Outbox(Store("http://127.0.0.1:10")).waiting_folders() == []


def test_deliver_waiting_tries_an_unreachable_store_once(
    write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Store(NO_SERVER)
    for s in (1000, 2000):
        Outbox(away).write_address(write_cell(s))
    attempts = []

    def deliver(self: Outbox, folder: Path) -> str:
        attempts.append(folder)
        raise StoreAway("away")

    monkeypatch.setattr(Outbox, "deliver", deliver)
    assert [delivered.error for delivered in Outbox(away).deliver_waiting()] == ["away", "away"]
    assert len(attempts) == 1


def test_deliver_keeps_a_folder_that_waits_for_another_store(
    store: Store, write_cell: WriteCell, run_command: RunCommand
) -> None:
    folder = write_cell()
    Outbox(Store(f"{NO_SERVER}/")).write_address(folder)
    assert Outbox(store).deliver(folder) == Outbox(store).deliver(folder)
    assert Outbox(Store(NO_SERVER)).waiting_folders() == [folder]
    _, output, _ = run_command("sync")
    assert f"sync --tracking-uri {NO_SERVER} --experiment rbptrack" in output


def test_waiting_folders_move_with_the_database(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    Outbox(store).write_address(write_cell())
    (tmp_path / "moved").mkdir()
    for name in ("mlflow.db", "mlruns"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    os.chdir(tmp_path / "moved")  # the fixture `store` changes back at the end of the test
    assert [delivered.error for delivered in Outbox(Store()).deliver_waiting()] == [""]


def test_deliver_waiting_skips_folders_that_another_process_has_locked(store: Store, write_cell: WriteCell) -> None:
    free = write_cell(1000)
    locked = write_cell(2000)
    Outbox(store).write_address(free)
    Outbox(store).write_address(locked)
    with FileLock(locked.with_name(f"{locked.name}.lock")):
        assert [delivered.name for delivered in Outbox(store).deliver_waiting()] == ["nano-1000 / wiki"]
    assert [delivered.name for delivered in Outbox(store).deliver_waiting()] == ["nano-2000 / wiki"]


def test_deliver_waiting_leaves_folders_that_name_no_store(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell(3000)
    assert Outbox(store).deliver_waiting() == []
    assert folder.exists()


@pytest.mark.parametrize(
    ("name", "bytes_before_damage"), [("documents.parquet", b"PAR1"), ("record.json", b'"bits_per_byte": ')]
)
def test_deliver_refuses_a_damaged_folder(
    name: str, bytes_before_damage: bytes, store: Store, write_cell: WriteCell
) -> None:
    folder = write_cell()
    Outbox(store).write_address(folder)
    content = bytearray((folder / name).read_bytes())
    content[content.index(bytes_before_damage) + len(bytes_before_damage)] ^= 1  # in record.json, this changes a digit
    (folder / name).write_bytes(content)
    with pytest.raises(MissingArtifact, match=name):
        Outbox(store).deliver(folder)
    (result,) = Outbox(store).deliver_waiting()
    assert result.error
    assert runs_in(store) == []


def test_deliver_waiting_does_not_call_a_folder_damaged_whose_file_the_system_cannot_open(
    store: Store, write_cell: WriteCell
) -> None:
    folder = write_cell()
    Outbox(store).write_address(folder)
    block_reading(folder / "ranks.parquet")
    (result,) = Outbox(store).deliver_waiting()
    assert os.strerror(errno.ELOOP) in result.error
    assert "damaged" not in result.error
    assert folder.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"curves": 3}'])
def test_deliver_waiting_says_that_record_json_is_damaged(
    content: str, store: Store, write_cell: WriteCell, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_cell()
    Outbox(store).write_address(folder)
    (folder / "record.json").write_text(content)
    (result,) = Outbox(store).deliver_waiting()
    assert result.name == folder.name[:12]
    assert f"{folder} is damaged (record.json)" in result.error
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["record.json", "ranks.parquet", "histogram.parquet", ".seal"])
def test_deliver_waiting_refuses_a_fifo_and_delivers_the_others(name: str, store: Store, write_cell: WriteCell) -> None:
    folders = [write_cell(1000), write_cell(2000)]
    for folder in folders:
        Outbox(store).write_address(folder)
    (folders[0] / name).unlink()
    os.mkfifo(folders[0] / name)
    results = Outbox(store).deliver_waiting()
    assert sorted(bool(result.error) for result in results) == [False, True]
    assert folders[0].exists()
    assert [run.info.run_name for run in runs_in(store)] == ["nano-2000 / wiki"]


def test_deliver_waiting_ignores_a_folder_whose_address_is_a_fifo(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    os.mkfifo(folder / "store.json")
    assert Outbox(store).deliver_waiting() == []
    (fault,) = Outbox(store).without_address()
    assert folder.name in fault.name


def test_deliver_waiting_removes_folders_that_were_delivered(store: Store, write_cell: WriteCell) -> None:
    """A process that is killed while it removes a delivered folder leaves the folder with the suffix `.delivered`."""
    folder = write_cell()
    folder.rename(folder.with_name(f"{folder.name}.delivered"))
    assert Outbox(store).deliver_waiting() == []
    assert list(cells_folder().iterdir()) == []


def test_deliver_shows_and_writes_no_password_of_the_environment(
    write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:pass@127.0.0.1:9")
    store = Store()
    folder = write_cell()
    with pytest.raises(StoreAway) as error:
        Outbox(store).deliver(folder)
    assert "pass" not in store.shown_address
    assert "pass" not in str(error.value)
    assert "pass" not in (folder / "store.json").read_text()
    assert Outbox(store).waiting_folders() == [folder]


def test_deliver_leaves_unfinished_runs_of_other_folders(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = read_measurement(folder)
    other = Store()
    other.connection.lock_name = "another machine:/home/ann/mlruns"
    unfinished = RunWriter(other.measurements).create(record.title, record.tags, time.time()).run_id
    Outbox(store).deliver(folder)
    assert unfinished in {run.info.run_id for run in runs_in(store)}


def test_deliver_refuses_a_deleted_experiment_and_names_the_remedy(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    client = MlflowClient(store.uri)
    client.delete_experiment(client.get_experiment_by_name("rbptrack").experiment_id)
    folder = write_cell(2000)
    with pytest.raises(BadInput, match="restore"):
        Outbox(Store()).deliver(folder)
    assert folder.exists()


def test_deliver_syncs_artifacts_before_it_finishes_the_run(
    store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced_inodes: list[int] = []
    unsynced_names: list[str] = []
    fsync = os.fsync
    end = RunWriter.end

    def recording_fsync(descriptor: int) -> None:
        synced_inodes.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def checking_end(self: RunWriter, run_id: str, status: str, ended: float) -> None:
        artifacts = store.artifact(run_id, "ranks.parquet").parent
        for path in (*artifacts.iterdir(), artifacts, artifacts.parent):
            if path.stat().st_ino not in synced_inodes:
                unsynced_names.append(path.name)
        end(self, run_id, status, ended)

    folder = write_cell()
    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(RunWriter, "end", checking_end)
    Outbox(store).deliver(folder)
    assert synced_inodes
    assert unsynced_names == []
