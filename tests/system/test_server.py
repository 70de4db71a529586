"""A team's tracking server: passwords, a server that goes away and comes back, artifacts through its proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow.artifacts
import numpy as np
import pytest
import requests
from mlflow import MlflowClient

from rbptrack.analysis.runs import Filters
from rbptrack.base.errors import BadInput, StoreAway, StoreRefuses
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.writer import RunWriter
from tests.store_fixtures import WriteCell
from tests.system.servers import PASSWORD, Door, Server, free_port, postgres_binaries, running

pytestmark = [
    pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, logged in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    return tmp_path


def statuses(uri: str, experiment: str) -> list[str]:
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    return [run.info.status for run in client.search_runs([found.experiment_id])] if found else []


def holds_no_password(folder: Path) -> bool:
    return not [path for path in folder.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]


def test_a_measurement_goes_through_the_server_and_back(server: Server, write_cell: WriteCell, user: Path) -> None:
    store = Store(server.uri, "whole")
    run_id = Outbox(store).deliver(write_cell(documents=60, groups=20))
    saved = store.save("sweep", "first", sweep="first", files={"report.html": "<p>"}, covers=[run_id])
    store.save_view()
    runs = store.runs(Filters(sweep=["first"]))
    assert np.isclose(runs.ranks(run_id).ce, runs["ce"][0])
    assert runs.groups(run_id)[0] == "site 0"
    assert store.artifact(saved, "report.html").read_text() == "<p>"
    assert list(store.verify()) == []
    page = f"{server.uri}/#/experiments/{store.measurements.find()}/runs/{run_id}"
    assert store.measurements.page(run_id).partition("?")[0] == page
    assert not (user / "mlflow.db").exists()
    assert holds_no_password(user)


def test_what_is_measured_while_the_server_is_away_is_delivered_once(server: Server, write_cell: WriteCell) -> None:
    door = Door(server.port)
    store = Store(door.uri, "away")
    first = write_cell(1000)
    Outbox(store).deliver(first)
    door.close()
    waits = write_cell(2000)
    with pytest.raises(StoreAway):
        Outbox(store).deliver(waits)
    assert [d.error != "" for d in Outbox(store).deliver_waiting()] == [True]
    door.open()
    assert [d.error for d in Outbox(store).deliver_waiting()] == [""]
    assert Outbox(store).deliver_waiting() == []
    assert statuses(server.uri, "away") == ["FINISHED", "FINISHED"]


@pytest.mark.parametrize("step", ["log_record", "log_inputs", "add_files", "end"])
def test_a_server_that_goes_away_in_the_middle_gets_the_run_whole_later(
    step: str, server: Server, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door(server.port)
    store = Store(door.uri, f"middle-{step}")
    folder = write_cell()
    done = getattr(RunWriter, step)

    def shut(self: RunWriter, *args: Any, **options: Any) -> object:
        door.close()
        return done(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, step, shut)
        with pytest.raises(StoreAway):
            Outbox(store).deliver(folder)
    door.open()
    (delivered,) = Outbox(store).deliver_waiting()
    assert delivered.error == ""
    assert statuses(server.uri, f"middle-{step}") == ["FINISHED"]
    assert list(store.verify()) == []


DELIVER = """
import sys, time
from pathlib import Path
from rbptrack.tracking import Outbox, Store

store = Store(sys.argv[1], "two")
for folder in sorted(Path("mlruns/cells").iterdir()):
    Outbox(store).address(folder.absolute())
deadline = time.monotonic() + 250
while [one for one in Outbox(store).deliver_waiting() if one.error] and time.monotonic() < deadline:
    time.sleep(0.2)
"""


def test_two_machines_that_deliver_the_same_at_once(server: Server, write_cell: WriteCell, user: Path) -> None:
    """Each has folders, and so a lock, of its own."""
    for s in (1000, 2000, 3000):
        write_cell(s)
    shutil.copytree(user / "mlruns", user / "second" / "mlruns")
    words = [sys.executable, "-W", "ignore", "-c", DELIVER, server.uri]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    processes = [subprocess.Popen(words, cwd=folder, env=environment) for folder in (user, user / "second")]
    assert [process.wait(300) for process in processes] == [0, 0]
    store = Store(server.uri, "two")
    assert len(store.runs()) == 3
    assert set(statuses(server.uri, "two")) == {"FINISHED"}
    assert list(user.rglob("record.json")) == []
    assert list(store.verify()) == []


def test_remote_artifacts_are_fetched_once_and_again_where_the_copy_is_damaged(
    server: Server, write_cell: WriteCell, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(user / "cache"))
    run_id = Outbox(Store(server.uri, "fetched")).deliver(write_cell())
    names = []
    download = mlflow.artifacts.download_artifacts

    def counted(**options: Any) -> str:
        names.append(options["artifact_path"])
        return str(download(**options))

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", counted)
    for _ in range(2):
        runs = Store(server.uri, "fetched").runs()
        assert np.isclose(runs.ranks(run_id).ce, runs.histogram(run_id).ce)
    assert sorted(names) == ["histogram.parquet", "ranks.parquet"]
    (kept,) = (user / "cache").rglob("ranks.parquet")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert np.isclose(runs.ranks(run_id).ce, runs["ce"][0])
    assert names.count("ranks.parquet") == 2


def test_verify_of_a_server_that_is_away_finds_no_damage_but_says_so(server: Server, write_cell: WriteCell) -> None:
    door = Door(server.port)
    store = Store(door.uri, "verified")
    Outbox(store).deliver(write_cell())
    faults = store.verify(repair=True)
    assert list(faults) == []
    search = store.measurements.search

    def then_shut(*args: Any, **options: Any) -> Iterator[Any]:
        yield from list(search(*args, **options))
        door.close()

    store.measurements.search = then_shut  # type: ignore[method-assign]
    with pytest.raises(StoreAway):
        list(store.verify(repair=True))
    assert statuses(server.uri, "verified") == ["FINISHED"]


def test_a_database_without_a_server(
    server: Server, write_cell: WriteCell, user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.database())
    store = Store()
    Outbox(store).deliver(write_cell())
    assert len(store.runs()) == 1
    assert list(store.verify()) == []
    assert holds_no_password(user)
    for wrong, kind in (
        (server.database("hunter3"), BadInput),
        (server.database(name="nope"), BadInput),
        (f"postgresql://tester:hunter3@127.0.0.1:{free_port()}/direct", StoreAway),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", wrong)
        with pytest.raises(kind) as refused:
            Store().find("0" * 64)
        assert "hunter" not in str(refused.value)


def test_wrong_passwords_and_addresses(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, kind in (
        (server.with_password("hunter3"), BadInput),
        (f"http://admin:hunter3@127.0.0.1:{free_port()}", StoreAway),
        ("http://admin:hunter3@no-such-host.invalid:5000", StoreAway),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(kind) as refused:
            Store().find("0" * 64)
        assert "hunter" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_a_user_who_may_only_read_is_told_before_and_in_the_middle_of_a_sweep(
    server: Server, write_cell: WriteCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement waits on this disk, and is delivered when the permission is there."""
    Outbox(Store(server.uri, "guarded")).deliver(write_cell(1000))
    user = {"username": "reader", "password": "read only, please"}
    answer = requests.post(f"{server.uri}/api/2.0/mlflow/users/create", json=user, auth=("admin", PASSWORD), timeout=60)
    assert answer.status_code == 200, answer.text
    folder = write_cell(2000)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
        patch.setenv("MLFLOW_TRACKING_PASSWORD", "read only, please")
        store = Store(server.uri, "guarded")
        assert len(store.runs()) == 1
        for write in (store.check_writable, lambda: Outbox(store).deliver(folder)):
            with pytest.raises(StoreRefuses) as refused:
                write()
            assert "\n" not in str(refused.value)
        assert Outbox(store).waiting() == [folder]
        patch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong, wrong, wrong")
        with pytest.raises(StoreRefuses):
            Store(server.uri, "guarded").check_writable()
    store = Store(server.uri, "guarded")
    store.check_writable()
    assert [delivered.error for delivered in Outbox(store).deliver_waiting()] == [""]
    assert len(store.runs()) == 2


def test_verify_of_a_server_draws_no_bars(
    server: Server, write_cell: WriteCell, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(server.uri, "quiet")
    Outbox(store).deliver(write_cell())
    assert list(store.verify()) == []
    out, err = capfd.readouterr()
    assert "%" not in out + err
