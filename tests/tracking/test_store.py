"""One way into the store: once, whole, and safe to repeat."""

from __future__ import annotations

import os
import pickle
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import mlflow
import pytest
from filelock import FileLock
from mlflow import MlflowClient

from rbptrack.base.errors import BadInput, MissingArtifact, StoreAway
from rbptrack.config.paths import cells_folder
from rbptrack.tracking import Outbox, Record, Store
from rbptrack.tracking.writer import RunWriter
from tests.conftest import RunCommand
from tests.store_fixtures import WriteCell


def runs_of(store: Store, experiment: str = "rbptrack") -> list[mlflow.entities.Run]:
    client = MlflowClient(store.uri)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id])) if found else []


def test_a_measurement_is_one_finished_run_with_all_it_holds(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = Record.read(folder)
    run_id = Outbox(store).deliver(folder)
    assert not folder.exists()
    (run,) = runs_of(store)
    assert (run.info.run_id, run.info.status, run.info.run_name) == (run_id, "FINISHED", "nano-38000 / wiki")
    assert run.info.start_time == int(record.began * 1000)
    assert run.info.end_time == int(record.ended * 1000)
    assert run.data.params == record.params
    assert {name: run.data.metrics[name] for name in record.metrics} == record.metrics
    assert set(run.data.metrics) == {*record.metrics, "rbp_curve"}
    history = MlflowClient(store.uri).get_metric_history(run_id, "rbp_curve")
    assert [(point.step, point.value) for point in history] == record.curves["rbp_curve"]
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("wiki", "d" * 8)
    files = {entry.path for entry in MlflowClient(store.uri).list_artifacts(run_id)}
    assert files == {*record.files, "record.json", "rank_distribution.png"}
    assert store.artifact(run_id, "rank_distribution.png").read_bytes().startswith(b"\x89PNG")


def test_the_default_store_is_what_mlflow_itself_uses_in_the_folder(
    write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_id = Outbox(Store()).deliver(write_cell())
    assert mlflow.search_runs(experiment_names=["rbptrack"])["run_id"].tolist() == [run_id]
    assert mlflow.get_run(run_id).info.artifact_uri == f"{tmp_path}/mlruns/1/{run_id}/artifacts"
    databases = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.db*")]
    assert {name.removesuffix("-shm").removesuffix("-wal") for name in databases} == {"mlflow.db"}
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)


def test_a_file_elsewhere_keeps_its_artifacts_beside_it(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "mlflow.db").rename(tmp_path / "team" / "runs.db")
    store = Store(f"sqlite:///{tmp_path}/team/runs.db")
    run_id = Outbox(store).deliver(write_cell())
    assert (tmp_path / "team" / "mlruns" / "rbptrack" / run_id / "artifacts" / "ranks.parquet").exists()


def test_asking_makes_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_interrupt_while_the_database_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rbptrack.tracking.connection.sync", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        Store().save("analysis", "first")
    assert not (tmp_path / "mlflow.db").exists()


def test_delivering_again_makes_no_second_run(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    folder = write_cell()
    shutil.copytree(folder, tmp_path / "copy")
    first = Outbox(store).deliver(folder)
    assert Outbox(store).deliver(tmp_path / "copy") == first
    assert Outbox(store).deliver(folder) == first  # gone, and its name is its fingerprint
    assert len(runs_of(store)) == 1


def test_several_threads_make_one_run(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    folders = [write_cell(folder=tmp_path / f"copy {i}") for i in range(4)]
    results: list[str] = []
    threads = [threading.Thread(target=lambda f=f: results.append(Outbox(store).deliver(f))) for f in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert len(runs_of(store)) == 1


@pytest.mark.parametrize("step", ["create", "log_record", "log_inputs", "add_files", "end"])
def test_a_delivery_that_is_cut_short_is_made_whole_by_the_next(
    step: str, store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, step, _after(getattr(RunWriter, step)))
        patch.setattr(RunWriter, "delete", _interrupt)  # as if the process had been killed
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    assert folder.exists()
    (delivered,) = Outbox(store).deliver_waiting()
    assert delivered.error == ""
    (run,) = runs_of(store)
    assert (run.info.run_id, run.info.status) == (delivered.run_id, "FINISHED")
    assert list(store.verify()) == []


def test_an_error_leaves_no_run(store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_cell()
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "add_files", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(folder)
    assert runs_of(store) == []
    assert Outbox(store).deliver(folder)


def test_of_several_runs_of_a_fingerprint_the_newest_counts(store: Store, write_cell: WriteCell) -> None:
    first = Outbox(store).deliver(write_cell())
    time.sleep(0.01)
    folder = write_cell(forced=True)
    name = folder.name
    shutil.copytree(folder, "copy")
    second = Outbox(store).deliver(folder)
    assert second != first
    assert Outbox(store).deliver(Path("copy")) == second  # the same record, though it is one that was forced
    assert store.find(name) == second
    assert store.find_all([name]) == {name: second}
    assert store.runs()["run_id"].tolist() == [second]


def test_many_fingerprints_are_found_as_one_is(store: Store, write_cell: WriteCell) -> None:
    folders = [write_cell(1000 * i) for i in (1, 2)]
    names = [folder.name for folder in folders]
    run_ids = [Outbox(store).deliver(folder) for folder in folders]
    absent = [f"{i:064x}" for i in range(30)]
    assert store.find_all([*names, *absent]) == dict(zip(names, run_ids, strict=True))


def test_a_failure_is_a_run_that_says_why(store: Store, write_cell: WriteCell) -> None:
    record = Record.read(write_cell())
    run_id = store.fail(record, "out of memory at 1 token, see http://ann:pass@host")
    run = MlflowClient(store.uri).get_run(run_id)
    assert run.info.status == "FAILED"
    assert run.data.tags["rbptrack.failure"] == "out of memory at 1 token, see http://***@host"
    assert run.data.params == record.params
    assert store.find(record.fingerprint) is None


def test_folders_wait_while_the_store_is_away(write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folders = [write_cell(1000), write_cell(2000)]
    store = Store("http://127.0.0.1:9")  # nobody listens there
    for folder in folders:
        with pytest.raises(StoreAway):
            Outbox(store).deliver(folder)
    assert sorted(Outbox(store).waiting()) == sorted(folders)
    assert Outbox(Store("http://127.0.0.1:10")).waiting() == []
    asked = []
    monkeypatch.setattr(Outbox, "deliver", lambda self, folder: asked.append(folder) or _away())
    assert [d.error for d in Outbox(store).deliver_waiting()] == ["away", "away"]
    assert len(asked) == 1  # the others do not wait for the same store again


def test_what_waits_for_one_store_waits_on_when_another_gets_it(
    store: Store, write_cell: WriteCell, run_command: RunCommand, tmp_path: Path
) -> None:
    away = Store("http://127.0.0.1:9/")  # nobody listens there
    folder = write_cell()
    Outbox(away).address(folder)
    assert Outbox(store).deliver(folder) == Outbox(store).deliver(folder)
    assert Outbox(Store("http://127.0.0.1:9")).waiting() == [folder]
    assert "sync --tracking-uri http://127.0.0.1:9 --experiment rbptrack" in run_command("sync")[1]


def test_what_waits_moves_with_its_folder(store: Store, write_cell: WriteCell, tmp_path: Path) -> None:
    Outbox(store).address(write_cell())
    (tmp_path / "moved").mkdir()
    for name in ("mlflow.db", "mlruns"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    os.chdir(tmp_path / "moved")  # the fixture's monkeypatch goes back
    assert [delivered.error for delivered in Outbox(Store()).deliver_waiting()] == [""]


def test_what_waits_is_delivered_to_its_own_store_unless_another_process_has_it(
    store: Store, write_cell: WriteCell
) -> None:
    ours = write_cell(1000)
    held = write_cell(2000)
    unaddressed = write_cell(3000)
    for folder in (ours, held):
        Outbox(store).address(folder)
    with FileLock(held.with_name(f"{held.name}.lock")):
        assert [d.name for d in Outbox(store).deliver_waiting()] == ["nano-1000 / wiki"]
    assert [d.name for d in Outbox(store).deliver_waiting()] == ["nano-2000 / wiki"]
    assert unaddressed.exists()
    assert Outbox(store).deliver_waiting() == []


@pytest.mark.parametrize(("name", "flip"), [("documents.parquet", b"PAR1"), ("record.json", b'"bits_per_byte": ')])
def test_a_damaged_folder_is_not_delivered(name: str, flip: bytes, store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    Outbox(store).address(folder)
    content = bytearray((folder / name).read_bytes())
    content[content.index(flip) + len(flip)] ^= 1  # of a number: another number
    (folder / name).write_bytes(content)
    with pytest.raises(MissingArtifact, match=name):
        Outbox(store).deliver(folder)
    (waits,) = Outbox(store).deliver_waiting()
    assert waits.error
    assert runs_of(store) == []


def test_a_half_removed_folder_is_cleared_away(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    folder.rename(folder.with_name(f"{folder.name}.delivered"))
    assert Outbox(store).deliver_waiting() == []
    assert [path.name for path in cells_folder().iterdir()] == []


@pytest.mark.parametrize(
    "uri", ["http://a:pass@host", "postgresql://a:pass@b/c", "./mlruns", "ftp://x", "sqlite:", "sqlite:////dev/null"]
)
def test_addresses_with_passwords_or_of_no_store_are_refused(uri: str) -> None:
    with pytest.raises(BadInput) as refused:
        Store(uri)
    assert "pass@" not in str(refused.value)


def test_a_password_of_the_environment_is_not_shown(write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:pass@127.0.0.1:9")
    store = Store()
    folder = write_cell()
    with pytest.raises(StoreAway) as away:
        Outbox(store).deliver(folder)
    assert "pass" not in f"{store.shown}{away.value}{(folder / 'store.json').read_text()}"
    assert Outbox(store).waiting() == [folder]


def test_sweeps_and_analyses_are_in_an_experiment_of_their_own(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    saved = store.save(
        "sweep",
        "first",
        sweep="first",
        description="It improves.",
        metrics={"alpha/nano/wiki/rbp_10": 0.2},
        files={"report.html": "<p>", "figure.png": b"\x89PNG"},
        covers=[run_id],
        began=1000.5,
    )
    assert [run.info.run_id for run in runs_of(store)] == [run_id]
    (run,) = runs_of(store, "rbptrack-reports")
    assert (run.info.run_id, run.info.status, run.info.start_time) == (saved, "FINISHED", 1000500)
    assert run.data.tags["mlflow.note.content"] == "It improves."
    assert run.data.metrics == {"alpha/nano/wiki/rbp_10": 0.2}
    assert store.artifact(saved, "report.html").read_text() == "<p>"


def test_a_report_that_was_cut_short_is_removed_by_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "end", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.save("analysis", "first")
    store.save("analysis", "second")
    assert [(run.info.run_name, run.info.status) for run in runs_of(store, "rbptrack-reports")] == [
        ("second", "FINISHED")
    ]


def test_what_another_folder_has_under_way_is_left_alone(store: Store, write_cell: WriteCell) -> None:
    folder = write_cell()
    record = Record.read(folder)
    other = Store()
    other.connection.writer = "another machine:/home/ann/mlruns"
    reported = RunWriter(other.reports).create("report", {}, time.time()).run_id
    delivered = RunWriter(other.measurements).create(record.name, record.tags, time.time()).run_id
    store.save("analysis", "ours")
    Outbox(store).deliver(folder)
    assert reported in {run.info.run_id for run in runs_of(store, "rbptrack-reports")}
    assert delivered in {run.info.run_id for run in runs_of(store)}


def test_a_long_description_is_cut_rather_than_refused(store: Store) -> None:
    store.save("analysis", "long", description="x" * 20_000)
    (run,) = runs_of(store, "rbptrack-reports")
    assert run.data.tags["mlflow.note.content"].endswith("...")


def test_a_deleted_experiment_is_named_and_not_made_again(store: Store, write_cell: WriteCell) -> None:
    Outbox(store).deliver(write_cell(1000))
    client = MlflowClient(store.uri)
    client.delete_experiment(client.get_experiment_by_name("rbptrack").experiment_id)
    again = Store()
    folder = write_cell(2000)
    with pytest.raises(BadInput, match="restore"):
        Outbox(again).deliver(folder)
    assert folder.exists()


def test_artifacts_are_synced_before_the_run_is_finished(
    store: Store, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    order: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    end = RunWriter.end

    def noted_end(self: RunWriter, run_id: str, status: str, ended: float) -> None:
        folder = store.artifact(run_id, "ranks.parquet").parent
        wanted = [*folder.iterdir(), folder, folder.parent]
        order.extend(path.name for path in wanted if path.stat().st_ino not in synced)
        end(self, run_id, status, ended)

    folder = write_cell()
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(RunWriter, "end", noted_end)
    Outbox(store).deliver(folder)
    assert order == []


def test_a_store_pickles_and_opens_itself_elsewhere(store: Store, write_cell: WriteCell) -> None:
    run_id = Outbox(store).deliver(write_cell())
    runs = pickle.loads(pickle.dumps(store.runs()))
    assert runs.histogram(run_id).num_tokens == 600
    assert runs.store.find(runs["fingerprint"][0]) == run_id


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def _after(step: Callable[..., object]) -> Callable[..., object]:
    """The step, and then an interrupt."""

    def interrupted(*args: object, **options: object) -> object:
        step(*args, **options)
        raise KeyboardInterrupt

    return interrupted


def _away() -> str:
    raise StoreAway("away")


@pytest.mark.parametrize(
    ("name", "given", "new"),
    [("a?b", False, True), ("a?b", True, False), ("a%3Fb", False, False), ("a#b&c=d;e:f@g+h 50%", False, False)],
)
def test_signs_of_an_address_stay_in_the_folders_name(
    name: str,
    given: bool,
    new: bool,
    write_cell: WriteCell,
    empty_database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "above" / name
    (place / "sub").mkdir(parents=True)
    monkeypatch.chdir(place)
    uri = f"sqlite:///{str(place / 'sub').replace('%', '%25')}/mlflow.db" if given else ""
    if not new:
        shutil.copy(empty_database, place / ("sub/mlflow.db" if given else "mlflow.db"))
    run_id = Outbox(Store(uri)).deliver(write_cell(folder=place / "cell"))
    again = Store(Store(uri).uri)
    assert again.runs()["run_id"].tolist() == [run_id]
    assert again.artifact(run_id, "ranks.parquet").is_relative_to(place)
    assert list(again.verify()) == []
    again.save("analysis", "report", files={"report.html": "<p>"})
    assert sorted(path.name for path in (tmp_path / "above").iterdir()) == [name]
    assert (place / ("sub/mlflow.db" if given else "mlflow.db")).is_file()


def test_the_experiment_of_the_environment_is_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Store().experiment == "rbptrack"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    assert (Store().experiment, Store("", "ours").experiment) == ("theirs", "ours")
    assert Store().reports.name == "theirs-reports"


def test_a_store_that_cannot_be_written_is_known_before_anything_is_measured(store: Store, tmp_path: Path) -> None:
    store.check_writable()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute(
            "create trigger no before insert on experiment_tags begin select raise(abort, 'readonly'); end"
        )
        database.execute("create trigger no2 before update on experiment_tags begin select raise(abort, 'no'); end")
        database.commit()
    with pytest.raises(BadInput):
        Store().check_writable()
