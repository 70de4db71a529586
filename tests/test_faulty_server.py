"""A tracking server on a bad day: whatever it answers, each measurement arrives once and whole."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from mlflow import MlflowClient

import rbptrack
from rbptrack.base.errors import RbptrackError
from rbptrack.config.schema import TrackingConfig
from rbptrack.sweep.outcome import CellFailed
from rbptrack.tracking import local, outbox
from tests.campaigns.recorded import note
from tests.cells import run
from tests.faulty import Fault, Proxy
from tests.patience import PATIENCE, at_first_part
from tests.server import end, free_port, start_mlflow


class Restartable:
    """`mlflow server` on a SQLite database, which can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()
        self.start()

    def start(self) -> None:
        store = f"sqlite:///{self._folder}/server.db"
        self._process = start_mlflow(self._folder, store, self.port)

    def kill(self) -> None:
        end(self._process)


SAMPLE = (Fault.error, Fault.lost)  # the others: make test-long


@pytest.fixture(scope="module")
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy2(empty_store, folder / "server.db")
    started = Restartable(folder)
    yield started
    started.kill()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")  # attempts follow each other at once


def arrived(uri: str, experiment: str) -> list[dict[str, object]]:
    """What is the same in every run of a cell: numbers, curves' lengths, artifacts' names; fails for one unfinished."""
    client = MlflowClient(uri)
    kept = client.get_experiment_by_name(experiment)
    assert kept is not None
    runs = client.search_runs([kept.experiment_id], "tags.`rbptrack.kind` = 'measurement'")
    assert {r.info.status for r in runs} <= {"FINISHED", "KILLED"}
    said = []
    for r in (r for r in runs if r.info.status == "FINISHED"):
        curve = client.get_metric_history(r.info.run_id, "rbp_curve")
        kept = {k: v for k, v in r.data.metrics.items() if k == "ce" or k.startswith("rbp_")}
        names = sorted(a.path for a in client.list_artifacts(r.info.run_id))
        steps = [point.step for point in curve]
        assert len(steps) == len(set(steps))
        said.append(
            {"metrics": kept, "steps": sorted(steps), "artifacts": names, "inputs": len(r.inputs.dataset_inputs)}
        )
    return said


def until_it_is_there(proxy: Proxy, experiment: str) -> list[str]:
    """Measure a cell and ask again, as a user would, until the server has it; says how each attempt ended."""
    where = [f"tracking.uri={proxy.uri}", f"tracking.experiment={experiment}", "tracking.every=0.1"]
    ends: list[str] = []
    for _ in range(4):
        try:
            outbox.repair_and_deliver(TrackingConfig(uri=proxy.uri, experiment=experiment), tell=ends.append)
            outcome = run(*where)
            ends.append(f"{outcome.status}{', waits' if outcome.waits else ''}")
            if not outcome.waits:
                break
        except (RbptrackError, CellFailed) as error:
            ends.append(str(error))
        proxy.use(lambda number: None)  # the bad day is over
    return ends


@pytest.fixture(scope="module")
def healthy(server: Restartable, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, object]], int]:
    """What arrives when nothing is wrong, and how many requests that takes."""
    with pytest.MonkeyPatch.context() as patch, Proxy(server.port) as proxy:
        patch.chdir(tmp_path_factory.mktemp("healthy"))
        assert until_it_is_there(proxy, "healthy") == ["measured"]
        return arrived(proxy.uri, "healthy"), proxy.seen


def one_bad_day(proxy: Proxy, fault: Fault, first: int, length: int, healthy: list[dict[str, object]]) -> str:
    """Let some requests in a row fail; returns what is wrong afterwards, or nothing."""
    experiment = f"{fault.name}-{first}-{length}"
    proxy.use(lambda number: fault if first <= number < first + length else None)
    ends = until_it_is_there(proxy, experiment)
    proxy.use(lambda number: None)
    there = arrived(proxy.uri, experiment)
    return "" if there == healthy and not outbox.waiting() else f"{experiment}: {ends}; {len(there)} runs: {there}"


@pytest.mark.parametrize("fault", [pytest.param(f, marks=[] if f in SAMPLE else pytest.mark.long) for f in Fault])
def test_each_measurement_arrives_once(
    fault: Fault, server: Restartable, healthy: tuple[list[dict[str, object]], int]
) -> None:
    """One answer in the middle goes wrong; or five in a row, which outlast every second attempt."""
    expected, requests = healthy
    draw = random.Random(fault.name)
    with Proxy(server.port) as proxy:
        for length in (1, 5):
            assert one_bad_day(proxy, fault, draw.randrange(requests), length, expected) == ""
    note(f"server: {fault.value}", times=2)


@pytest.mark.long
@pytest.mark.parametrize("fault", list(Fault))
def test_any_request_may_go_wrong(
    fault: Fault, server: Restartable, healthy: tuple[list[dict[str, object]], int]
) -> None:
    expected, requests = healthy
    with Proxy(server.port) as proxy:
        wrong = [one_bad_day(proxy, fault, n, length, expected) for n in range(requests) for length in (1, 5)]
    wrong = [text for text in wrong if text]
    note(f"server: {fault.value}", times=2 * requests, wrong=wrong)
    assert wrong == []


@pytest.mark.long
def test_a_server_that_is_killed_and_restarted(server: Restartable, tmp_path: Path) -> None:
    """In the middle of a cell, while another waits for the next one: both arrive once."""
    with Proxy(server.port) as proxy:
        where = [f"tracking.uri={proxy.uri}", "tracking.experiment=restarted", "tracking.every=0.1"]
        with pytest.MonkeyPatch.context() as patch:
            killed = at_first_part(patch, server.kill)
            first = run(*where, "dataset.documents=30", "engine.part_tokens=300")
        assert killed.is_set()
        second = run(*where, "model=nano/15k")
        server.start()
        assert (first.status, second.status) == ("measured", "measured")
        assert first.waits
        assert second.waits
        told: list[str] = []
        tracking = TrackingConfig(uri=proxy.uri, experiment="restarted")
        assert outbox.repair_and_deliver(tracking, tell=told.append).left == 0
        assert sum(line.startswith("delivered") for line in told) == 2
        assert len(arrived(proxy.uri, "restarted")) == 2
        assert len(rbptrack.runs(tracking_uri=proxy.uri, experiment="restarted")) == 2
        note("server: killed", times=1)


def locked_for(database: Path, seconds: float) -> threading.Thread:
    """Another program writes into the database, and lets nobody else in for so long."""
    locked = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(database, isolation_level=None, timeout=PATIENCE)) as connection:
            connection.execute("begin exclusive")
            locked.set()
            time.sleep(seconds)
            connection.execute("rollback")

    thread = threading.Thread(target=hold)
    thread.start()
    assert locked.wait(PATIENCE)
    return thread


@pytest.mark.parametrize("seconds", [7, pytest.param(30, marks=pytest.mark.long)])  # SQLite waits for five
@pytest.mark.parametrize("when", ["at its begin", pytest.param("at its end", marks=pytest.mark.long)])
def test_a_locked_database(seconds: float, when: str, with_store: Path) -> None:
    run("model=nano/15k")  # makes the experiment
    holding: list[threading.Thread] = []

    def lock() -> None:
        holding.append(locked_for(with_store / "mlruns/mlflow.db", seconds))

    with pytest.MonkeyPatch.context() as patch:
        if when == "at its begin":
            lock()
        else:
            at_first_part(patch, lock)
        outcome = run("dataset.documents=30", "engine.part_tokens=300")
    holding[0].join()
    assert outcome.status == "measured"
    assert outbox.repair_and_deliver(TrackingConfig(), tell=print).left == 0
    assert run("dataset.documents=30").status == "skipped"
    uri = f"sqlite:///{with_store / 'mlruns/mlflow.db'}"
    assert len(arrived(uri, "rbptrack")) == 2
    if seconds == 30:
        note("locked", times=1)


def test_a_database_that_another_program_holds_is_writable_later(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = with_store / "mlruns/mlflow.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as holding:
        holding.execute("begin exclusive")
        # SQLite gives up after five seconds, if it is not told otherwise.
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
        with pytest.raises(sqlite3.OperationalError, match="locked"), closing(local.reading(database)) as connection:
            connection.execute("select count(*) from sqlite_master")
        local.check_writable(database)
