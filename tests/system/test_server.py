"""Tests with a team's tracking server: passwords, permissions, lost connections and artifacts over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from mlflow import MlflowClient
from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

from rbptrack.analysis.filters import Filters
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses
from rbptrack.config.compose import compose_cells, read_words
from rbptrack.config.schema import Config
from rbptrack.measurement.record import MeasurementRecord, ReportRecord, read_measurement
from rbptrack.sweep import sweep
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.writer import RunWriter
from tests.store_fixtures import WriteCell
from tests.system.servers import PASSWORD, Server, TcpProxy, free_port, postgres_binaries, team_server
from tests.tracking.interrupts import interrupt

pytestmark = [
    pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with team_server() as server:
        yield server


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder. The environment has the user name and the password of the server's administrator."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    return tmp_path


def statuses(uri: str, experiment: str) -> list[str]:
    """Return the status of every run of an experiment; an empty list if there is no such experiment."""
    client = MlflowClient(uri)
    named = client.get_experiment_by_name(experiment)
    return [run.info.status for run in client.search_runs([named.experiment_id])] if named else []


def files_with_password(folder: Path) -> list[Path]:
    """Return the files in a folder that contain the administrator's password."""
    return [path for path in folder.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


def test_measurement_delivered_to_server_can_be_read(
    server: Server, write_cell: WriteCell, working_folder: Path
) -> None:
    store = Store(server.uri, "read")
    run_id = Outbox(store).deliver(write_cell(documents=60, groups=20))
    runs = store.runs()
    assert np.isclose(runs.ranks(run_id).ce, runs["ce"][0])
    assert runs.groups(run_id)[0] == "site 0"
    assert list(store.verify()) == []
    page = f"{server.uri}/#/experiments/{store.measurements.find()}/runs/{run_id}"
    assert store.measurements.run_address(run_id).partition("?")[0] == page
    assert not (working_folder / "mlflow.db").exists()
    assert files_with_password(working_folder) == []


def test_report_saved_on_server_can_be_read_and_names_its_sweep(
    server: Server, write_cell: WriteCell, working_folder: Path
) -> None:
    store = Store(server.uri, "reports")
    run_id = Outbox(store).deliver(write_cell(documents=60, groups=20))
    record = ReportRecord(title="first", tags={"rbptrack.sweep": "first"}, covered_run_ids=[run_id])
    report_id = store.save("sweep", record, {"report.html": "<p>"})
    store.save_view()
    assert store.artifact(report_id, "report.html").read_text() == "<p>"
    assert store.runs(Filters(sweep=["first"]))["run_id"].tolist() == [run_id]
    assert list(store.verify()) == []
    assert files_with_password(working_folder) == []


def test_measurement_that_server_did_not_take_is_delivered_once_later(server: Server, write_cell: WriteCell) -> None:
    proxy = TcpProxy(server.port)
    store = Store(proxy.uri, "away")
    Outbox(store).deliver(write_cell(1000))
    proxy.close()
    waiting = write_cell(2000)
    with pytest.raises(StoreAway):
        Outbox(store).deliver(waiting)
    (delivery,) = Outbox(store).deliver_waiting()
    assert delivery.error
    proxy.open()
    (delivery,) = Outbox(store).deliver_waiting()
    assert delivery.error == ""
    assert Outbox(store).deliver_waiting() == []
    assert statuses(server.uri, "away") == ["FINISHED", "FINISHED"]


@pytest.mark.parametrize("step", ["log_record", "log_inputs", "add_files", "end"])
def test_delivery_interrupted_at_any_step_is_completed_later(
    step: str, server: Server, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = TcpProxy(server.port)
    store = Store(proxy.uri, f"interrupted-{step}")
    folder = write_cell()
    original_step = getattr(RunWriter, step)

    def close_and_continue(self: RunWriter, *args: Any, **options: Any) -> object:
        proxy.close()
        return original_step(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, step, close_and_continue)
        with pytest.raises(StoreAway):
            Outbox(store).deliver(folder)
    proxy.open()
    (delivered,) = Outbox(store).deliver_waiting()
    assert delivered.error == ""
    assert statuses(server.uri, f"interrupted-{step}") == ["FINISHED"]
    assert list(store.verify()) == []


DELIVER = """
import sys, time
from pathlib import Path
from rbptrack.tracking import Outbox, Store

store = Store(sys.argv[1], "two")
for folder in sorted(Path("mlruns/cells").iterdir()):
    Outbox(store).write_address(folder.absolute())
deadline = time.monotonic() + 250
while [delivery for delivery in Outbox(store).deliver_waiting() if delivery.error] and time.monotonic() < deadline:
    time.sleep(0.2)
"""


def test_cells_that_two_machines_deliver_at_once_count_once(
    server: Server, write_cell: WriteCell, working_folder: Path
) -> None:
    """Each machine has its own folder of cells, and so its own lock. If both log a cell, the newer run counts."""
    for s in (1000, 2000, 3000):
        write_cell(s)
    second_folder = working_folder / "second"
    shutil.copytree(working_folder / "mlruns", second_folder / "mlruns")
    words = [sys.executable, "-W", "ignore", "-c", DELIVER, server.uri]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen(words, cwd=folder, env=environment) for folder in (working_folder, second_folder)]
    assert [process.wait(300) for process in processes] == [0, 0]
    store = Store(server.uri, "two")
    assert len(store.runs()) == 3
    assert set(statuses(server.uri, "two")) == {"FINISHED"}
    assert list(working_folder.rglob("record.json")) == []
    assert {fault.kind for fault in store.verify()} <= {"superseded"}


def test_artifacts_are_downloaded_once_and_again_if_the_copy_is_damaged(
    server: Server, write_cell: WriteCell, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(working_folder / "cache of the writer"))
    run_id = Outbox(Store(server.uri, "downloads")).deliver(write_cell())
    downloaded = []
    download_file = MlflowArtifactsRepository._download_file

    def download_and_note(self: MlflowArtifactsRepository, remote_file_path: str, local_path: str) -> None:
        downloaded.append(remote_file_path)
        download_file(self, remote_file_path, local_path)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(MlflowArtifactsRepository, "_download_file", download_and_note)
    runs = Store(server.uri, "downloads").runs()
    assert np.isclose(runs.ranks(run_id).ce, runs.histogram(run_id).ce)
    assert downloaded == []  # the process that uploaded the files kept copies
    monkeypatch.setenv("RBPTRACK_CACHE", str(working_folder / "cache"))
    for _ in range(2):
        runs = Store(server.uri, "downloads").runs()
        assert np.isclose(runs.ranks(run_id).ce, runs.histogram(run_id).ce)
    assert sorted(downloaded) == ["histogram.parquet", "ranks.parquet"]
    (copy,) = (working_folder / "cache").rglob("ranks.parquet")
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    assert np.isclose(runs.ranks(run_id).ce, runs["ce"][0])
    assert downloaded.count("ranks.parquet") == 2


def test_verify_raises_store_away_if_connection_is_lost_and_changes_nothing(
    server: Server, write_cell: WriteCell
) -> None:
    proxy = TcpProxy(server.port)
    store = Store(proxy.uri, "verified")
    Outbox(store).deliver(write_cell())
    assert list(store.verify(repair=True)) == []
    search = store.measurements.search

    def search_and_close(*args: Any, **options: Any) -> Iterator[Any]:
        yield from list(search(*args, **options))
        proxy.close()

    store.measurements.search = search_and_close  # type: ignore[method-assign]
    with pytest.raises(StoreAway):
        list(store.verify(repair=True))
    assert statuses(server.uri, "verified") == ["FINISHED"]


def test_database_without_server_takes_measurements(
    server: Server, write_cell: WriteCell, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.database())
    store = Store()
    Outbox(store).deliver(write_cell())
    assert len(store.runs()) == 1
    assert list(store.verify()) == []
    assert files_with_password(working_folder) == []


@pytest.mark.parametrize(("wrong_part", "error"), [("password", BadInput), ("database", BadInput), ("port", StoreAway)])
def test_wrong_address_of_database_raises_error_without_password(
    wrong_part: str, error: type[Exception], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {
        "password": server.database("hunter3"),
        "database": server.database(name="nope"),
        "port": f"postgresql://tester:hunter3@127.0.0.1:{free_port()}/direct",
    }
    monkeypatch.setenv("MLFLOW_TRACKING_URI", addresses[wrong_part])
    with pytest.raises(error) as raised:
        Store().find("0" * 64)
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(("wrong_part", "error"), [("password", BadInput), ("port", StoreAway), ("host", StoreAway)])
def test_wrong_address_of_server_raises_error_in_one_line_without_password(
    wrong_part: str, error: type[Exception], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = {
        "password": server.with_password("hunter3"),
        "port": f"http://admin:hunter3@127.0.0.1:{free_port()}",
        "host": "http://admin:hunter3@no-such-host.invalid:5000",
    }
    monkeypatch.setenv("MLFLOW_TRACKING_URI", addresses[wrong_part])
    with pytest.raises(error) as raised:
        Store().find("0" * 64)
    assert "hunter" not in str(raised.value)
    assert "\n" not in str(raised.value)


USER_PASSWORD = "read and edit, please"


def ask_as_admin(server: Server, path: str, **content: object) -> None:
    response = requests.post(f"{server.uri}/api/{path}", json=content, auth=("admin", PASSWORD), timeout=60)
    assert response.status_code == 200, response.text


@pytest.fixture(scope="module")
def reader(server: Server) -> str:
    """The name of a user of the server who may only read. The password is `USER_PASSWORD`."""
    ask_as_admin(server, "2.0/mlflow/users/create", username="reader", password=USER_PASSWORD)
    return "reader"


def log_in(user: str, patch: pytest.MonkeyPatch, password: str = USER_PASSWORD) -> None:
    patch.setenv("MLFLOW_TRACKING_USERNAME", user)
    patch.setenv("MLFLOW_TRACKING_PASSWORD", password)


def test_user_who_may_only_read_cannot_deliver_until_permitted(
    server: Server, reader: str, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement stays on this machine. Another user, who may write, delivers it."""
    Outbox(Store(server.uri, "guarded")).deliver(write_cell(1000))
    folder = write_cell(2000)
    with monkeypatch.context() as patch:
        log_in(reader, patch)
        store = Store(server.uri, "guarded")
        assert len(store.runs()) == 1
        with pytest.raises(StoreRefuses) as raised:
            Outbox(store).deliver(folder)
        assert "\n" not in str(raised.value)
        assert Outbox(store).waiting_folders() == [folder]
    store = Store(server.uri, "guarded")
    (delivered,) = Outbox(store).deliver_waiting()
    assert delivered.error == ""
    assert len(store.runs()) == 2


@pytest.mark.parametrize("password", [USER_PASSWORD, "wrong, wrong, wrong"])
def test_check_writable_refuses_user_who_may_only_read_and_wrong_password(
    password: str, server: Server, reader: str, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    Outbox(Store(server.uri, "permissions")).deliver(write_cell(1000))
    log_in(reader, monkeypatch, password)
    with pytest.raises(StoreRefuses) as raised:
        Store(server.uri, "permissions").check_writable()
    assert "\n" not in str(raised.value)


def test_check_writable_accepts_administrator(server: Server, write_cell: WriteCell) -> None:
    Outbox(Store(server.uri, "permissions")).deliver(write_cell(1000))
    Store(server.uri, "permissions").check_writable()


def test_verify_of_server_prints_no_progress_bars_of_mlflow(
    server: Server, write_cell: WriteCell, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(server.uri, "quiet")
    Outbox(store).deliver(write_cell())
    assert list(store.verify()) == []
    out, err = capfd.readouterr()
    assert "%" not in out + err


@pytest.fixture(scope="module")
def editor(server: Server) -> str:
    """The name of a user of the server. The password is `USER_PASSWORD`. `permit_editing` permits experiments."""
    ask_as_admin(server, "2.0/mlflow/users/create", username="editor", password=USER_PASSWORD)
    return "editor"


def permit_editing(server: Server, user: str, store: Store) -> None:
    """Create the experiments of a store, and give a user the permission EDIT for them."""
    for experiment in (store.measurements, store.reports):
        permission = {"resource_type": "experiment", "resource_id": experiment.find_or_create(), "permission": "EDIT"}
        ask_as_admin(server, "3.0/mlflow/users/permissions/grant", username=user, **permission)


def test_user_who_may_edit_delivers_all_after_a_killed_delivery(
    server: Server, editor: str, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow lets a user delete runs only with the permission MANAGE."""
    permit_editing(server, editor, Store(server.uri, "edited"))
    log_in(editor, monkeypatch)
    store = Store(server.uri, "edited")
    folders = [write_cell(1000), write_cell(2000)]
    for folder in folders:
        Outbox(store).write_address(folder)
    with monkeypatch.context() as patch:
        for step in ("add_files", "discard"):
            patch.setattr(RunWriter, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            Outbox(store).deliver(sorted(folders)[0])
    assert statuses(server.uri, "edited") == ["RUNNING"]
    assert [delivery.error for delivery in Outbox(store).deliver_waiting()] == ["", ""]
    assert sorted(statuses(server.uri, "edited")) == ["FAILED", "FINISHED", "FINISHED"]
    assert list(store.verify()) == []
    assert len(store.runs()) == 2


def test_measurement_waits_while_the_artifacts_of_the_server_are_away(server: Server, write_cell: WriteCell) -> None:
    store = Store(server.uri, "no artifacts")
    Outbox(store).deliver(write_cell(1000))
    hidden = server.artifacts.with_name("hidden")
    server.artifacts.rename(hidden)
    server.artifacts.write_text("a file in place of the folder")
    try:
        Outbox(store).write_address(write_cell(2000))
        (delivery,) = Outbox(store).deliver_waiting()
        assert delivery.error
    finally:
        server.artifacts.unlink()
        hidden.rename(server.artifacts)
    (delivery,) = Outbox(store).deliver_waiting()
    assert delivery.error == ""
    assert statuses(server.uri, "no artifacts") == ["FINISHED", "FINISHED"]


def run_sweep(uri: str, experiment: str, *words: str) -> int:
    return sweep.run(configs_of(f"tracking.uri={uri}", f"tracking.experiment={experiment}", *words), words)


def configs_of(*words: str) -> list[Config]:
    return compose_cells(read_words(["dataset.documents=20", *words]))


def test_password_that_changes_during_a_sweep_costs_no_measurement(
    server: Server, editor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("model=nano/6k,nano/15k,nano/38k", "dataset=pydocs", "analyzers=[]")
    permit_editing(server, editor, Store(server.uri, "expired"))
    log = Store.log

    def log_and_change_password(self: Store, *args: Any, **options: Any) -> str:
        run_id = log(self, *args, **options)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a password that has expired")
        return run_id

    with monkeypatch.context() as patch:
        log_in(editor, patch)
        patch.setattr(Store, "log", log_and_change_password)
        assert run_sweep(server.uri, "expired", *words) == 1
    log_in(editor, monkeypatch)
    assert len(Outbox(Store(server.uri, "expired")).waiting_folders()) == 2
    assert run_sweep(server.uri, "expired", *words) == 0
    assert statuses(server.uri, "expired") == ["FINISHED"] * 3


@pytest.mark.usefixtures("pictures")
def test_sweep_and_verify_need_few_requests(server: Server) -> None:
    before = server.count_requests()
    assert run_sweep(server.uri, "counted", "model=nano/6k,nano/15k", "dataset=pydocs,stdlib") == 0
    requests_of_sweep = server.count_requests() - before
    assert requests_of_sweep <= 90
    store = Store(server.uri, "counted")
    before = server.count_requests()
    assert list(store.verify()) == []
    runs = [run for experiment in (store.measurements, store.reports) for run in experiment.search("")]
    num_files = sum(len(store.list_files(run.info.run_id)) for run in runs)
    requests_of_verify = server.count_requests() - before - len(runs) - 2
    assert requests_of_verify <= 1.5 * num_files


def test_import_of_a_measurement_needs_few_requests(server: Server, write_cell: WriteCell) -> None:
    store = Store(server.uri, "imported")
    Outbox(store).deliver(write_cell(1000))
    before = server.count_requests()
    record = MeasurementRecord(measurement=read_measurement(write_cell(2000)).measurement)
    with tempfile.TemporaryDirectory() as folder:
        record.write(Path(folder))
        Outbox(store).deliver(Path(folder))
    assert server.count_requests() - before <= 9
