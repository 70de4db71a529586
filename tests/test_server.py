"""A team's tracking server: several users at once, wrong passwords, and a server that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mlflow.artifacts
import numpy as np
import psycopg
import pytest
from mlflow import MlflowClient

import rbptrack
from rbptrack.base.errors import BadInput, StoreAway
from rbptrack.commands import sync
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking import connection, outbox, reach, store
from rbptrack.tracking.client import Client
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.tables import Tables
from rbptrack.tracking.uri import resolve_uri
from rbptrack.tracking.verify import database_faults, unlooked
from tests.cells import run
from tests.conftest import Start
from tests.patience import PATIENCE, at_first_part
from tests.server import PASSWORD, QUOTED, Door, Server, free_port, postgres_binaries, running

pytestmark = [
    pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture
def user(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, logged in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE))  # the server may be busy
    return tmp_path


def measurements(server: Server, experiment: str) -> list[object]:
    client = MlflowClient(server.uri)
    kept = client.get_experiment_by_name(experiment)
    assert kept is not None
    return list(client.search_runs([kept.experiment_id], "tags.`rbptrack.kind` = 'measurement'"))


@pytest.fixture(scope="module")
def four(server: Server, start: Start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Two pairs of users who ask for the same, at once: their folders, and what each of their sweeps printed."""
    place = tmp_path_factory.mktemp("four")
    words = ["-m", "model=nano/6k,nano/15k", "dataset.documents=3", "analyzers=[]", "tracking.experiment=four"]
    processes = []
    for i in range(4):
        folder = place / f"user{i}"
        folder.mkdir()
        dataset = f"dataset={('pydocs', 'stdlib')[i % 2]}"
        processes.append(start(*words, dataset, cwd=folder, MLFLOW_TRACKING_URI=server.with_password()))
    codes = [p.wait(PATIENCE) for p in processes]
    out = ["".join(p.said) for p in processes]
    assert codes == [0] * 4, "\n".join(out)
    return place, out


def test_of_four_sweeps_at_once_each_measurement_is_read_once(
    server: Server, four: tuple[Path, list[str]], user: Path
) -> None:
    """Two that begin in the same moment may both measure a cell; one of the runs counts."""
    place, out = four
    runs = measurements(server, "four")
    read = [r for r in runs if Tag.DUPLICATE not in r.data.tags]  # type: ignore[attr-defined]
    assert sorted(r.info.run_name for r in read) == [  # type: ignore[attr-defined]
        f"nano-{s} / {d}" for s in ("15k", "6k") for d in ("pydocs", "stdlib")
    ]
    assert {r.info.status for r in read} == {"FINISHED"}  # type: ignore[attr-defined]
    ids = {r.info.run_id for r in read}  # type: ignore[attr-defined]
    assert {r.data.tags[Tag.DUPLICATE] for r in runs if r not in read} <= ids  # type: ignore[attr-defined]
    assert sum(text.count("  measured ") for text in out) >= 4
    assert "hunter2" not in "".join(out)
    assert not [p for p in place.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    four_runs = rbptrack.runs(tracking_uri=server.uri, experiment="four")
    assert set(four_runs.frame["run_id"]) == ids
    run_id = four_runs.frame["run_id"][0]
    assert np.isclose(four_runs.ranks(run_id).ce, four_runs.frame["ce"][0])  # through the server's artifact proxy


def test_what_is_measured_while_the_server_is_away_is_delivered_once(
    server: Server,
    user: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "_PATIENCE_SECONDS", 1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    door = Door(server.port)
    uri = f"http://127.0.0.1:{door.port}"
    tracking = [f"tracking.uri={uri}", "tracking.experiment=away", "tracking.every=0.2"]

    with monkeypatch.context() as patch:
        shut = at_first_part(patch, door.close)
        midway = run(*tracking, "engine.part_tokens=300", "dataset.documents=30")
    assert shut.is_set()
    assert midway.status == "measured"
    assert "cannot be reached" in midway.waits
    door.open(held=True)
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        patch.setattr(reach, "SILENCE_SECONDS", 1)
        patch.setattr(reach, "_REACH_SECONDS", 1)
        patch.setattr(connection, "_SLOW_SECONDS", 0.2)
        hung = run(*tracking)
        assert hung.waits
        assert door.met < 7  # as often as MLflow asks, each time for minutes
        assert len(outbox.waiting()) == 2
        again = run(*tracking)
        assert (again.status, bool(again.waits)) == ("skipped", True)
    assert "is slow to answer; waiting up to 1 s for it" in caplog.text
    door.close()
    assert sync.main([f"tracking.uri={uri}"]) == 1
    assert "0 delivered, 2 waiting" in capsys.readouterr().out
    door.open()
    assert sync.main([f"tracking.uri={uri}"]) == 0
    assert "2 delivered, 0 waiting" in capsys.readouterr().out
    assert sync.main([f"tracking.uri={uri}"]) == 0
    assert "nothing waits" in capsys.readouterr().out
    door.close()
    runs = measurements(server, "away")
    assert len(runs) == 2
    assert {r.info.status for r in runs} == {"FINISHED"}  # type: ignore[attr-defined]
    table = rbptrack.runs(tracking_uri=server.uri, experiment="away")
    for run_id, ce in zip(table.frame["run_id"], table.frame["ce"], strict=True):
        assert np.isclose(table.ranks(run_id).ce, ce)
    assert run(f"tracking.uri={server.uri}", "tracking.experiment=away").status == "skipped"


def test_remote_artifacts_are_downloaded_once(
    server: Server, four: tuple[Path, list[str]], user: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By all readers together; nothing is left in temporary folders, and a damaged copy is downloaded again."""
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    uri, names = server.uri, list[str]()
    download = mlflow.artifacts.download_artifacts

    def counted(*, artifact_path: str, **options: str) -> str:
        names.append(artifact_path)
        return str(download(artifact_path=artifact_path, **options))

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", counted)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for _ in range(2):
        runs = rbptrack.runs(tracking_uri=uri, experiment="four", size="6k", dataset="pydocs")
        (run_id,) = runs.frame["run_id"]
        for _ in range(2):
            assert np.isclose(runs.ranks(run_id).ce, runs.histogram(run_id).ce)
    assert sorted(names) == ["histogram.parquet", "ranks.parquet"]
    assert list((tmp_path / "tmp").iterdir()) == []
    for path in (tmp_path / "cache/artifacts").glob("*.parquet"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    runs = rbptrack.runs(tracking_uri=uri, experiment="four", size="6k", dataset="pydocs")
    assert np.isclose(runs.ranks(run_id).ce, runs.frame["ce"][0])
    assert names.count("ranks.parquet") == 2


def test_a_database_without_a_server(server: Server, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`postgresql://`: artifacts lie where the config says, and a wrong password is said without repeating one."""
    place = f"tracking.artifacts={user / 'shared'}"
    monkeypatch.setenv("PGPASSWORD", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.database())
    uri = resolve_uri(TrackingConfig())
    done = run(f"tracking.uri={uri}", place)
    assert done.status == "measured"
    assert not done.waits
    assert list((user / "shared").rglob("ranks.parquet"))
    assert len(rbptrack.runs(tracking_uri=uri)) == 1
    connection = Store(TrackingConfig(uri=uri))
    # Read from the tables, as a local store is: the same as by MLflow's search, which takes ten times as long.
    tables, client = Tables(uri), Client(connection.open())
    read = tables.search([connection.experiment_id], {}, status="FINISHED")
    assert read == client.search([connection.experiment_id], {}, status="FINISHED") == connection.reader.search()
    assert tables.finished(connection.experiment_id, FilterConfig(), [], lambda run: run) == read
    assert tables.whole([read[0].run_id]) == client.whole([read[0].run_id])
    assert not tables.metric_faults([read[0].run_id])
    with psycopg.connect(uri) as database:  # a measurement is found without reading a tag of each
        database.execute("set enable_seqscan = off")
        query = "explain select run_uuid from tags where key = 'rbptrack.fingerprint' and value = 'x'"
        assert any("rbptrack_fingerprints" in line for (line,) in database.execute(query))
        assert "create extension amcheck" in unlooked(connection)
        if database.execute("select 1 from pg_available_extensions where name = 'amcheck'").fetchone():
            database.execute("create extension amcheck")
            database.commit()
            assert unlooked(connection) == ""
            assert list(database_faults(connection)) == []
    assert not [p for p in user.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    for wrong, kind, words in (
        (server.database("hunter3"), BadInput, "refuses: password authentication failed"),
        (server.database(name="nope"), BadInput, 'database "nope" does not exist'),
        (uri.replace(f":{server.database_port}/", f":{free_port()}/"), StoreAway, "cannot be reached"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", wrong)
        with pytest.raises(kind, match=words) as caught:
            Store(TrackingConfig()).open()
        assert "hunter" not in str(caught.value)


def test_wrong_addresses_and_passwords(server: Server, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, kind, words in (
        (server.with_password("hunter3"), BadInput, "refuses this user or password"),
        (server.with_password(port=free_port()), StoreAway, "no tracking server answers"),
        (f"http://admin:{QUOTED}@no-such-host.invalid:5000", StoreAway, "no tracking server answers"),
        (f"htp://admin:{QUOTED}@127.0.0.1", BadInput, "names no kind of tracking store"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(kind, match=words) as caught:
            Store(TrackingConfig()).open()
        assert "hunter" not in str(caught.value)
    with pytest.raises(StoreAway):
        Store(TrackingConfig(uri=f"http://127.0.0.1:{free_port()}")).reader.find("0" * 64)
