"""Local stores in trouble: moved, their experiment deleted, their folder read-only, their disk full."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

import rbptrack
from rbptrack.base.errors import BadInput, StoreAway, disk_trouble
from rbptrack.commands import import_, sync
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.explained import explained
from rbptrack.tracking.process import alive, marks
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.store import Store
from tests.patience import until
from tests.synthetic import authors_folder, ranked


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with one imported measurement that has ranks."""
    monkeypatch.chdir(tmp_path)
    authors_folder(tmp_path / "results", **{"70m": (1, 7)})
    assert import_.main(["results", "vocab_size=50304", "without_s=true"]) == 0
    return tmp_path / "mlruns"


def checksums(folder: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def database_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One works beside a copy of the database that came without the artifacts."""
    copy = store.with_name("copy") / "mlruns"
    copy.mkdir(parents=True)
    for path in store.glob("mlflow.db*"):
        shutil.copy(path, copy)
    monkeypatch.chdir(copy.parent)


def test_a_copied_store_is_used_and_the_original_stays_as_it_is(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(store, store.parent / "else where" / "mlruns"))
    before = checksums(store)
    monkeypatch.chdir(copy.parent)
    authors_folder(copy.parent / "more", **{"160m": (1, 3)})
    assert import_.main(["more", "vocab_size=50304", "without_s=true"]) == 0
    runs = rbptrack.runs()
    assert sorted(runs.ranks(r).strict_rank.tolist() for r in runs.frame["run_id"]) == [[1, 3], [1, 7]]
    assert checksums(store) == before
    assert len(list(copy.rglob("ranks.parquet"))) == 2
    with closing(sqlite3.connect(copy / "mlflow.db")) as connection:
        addresses = connection.execute(
            "select artifact_location from experiments union select artifact_uri from runs"
            " union select artifact_location from logged_models"
        )
        assert all(address.startswith(f"{copy.as_uri()}/") for (address,) in addresses)
    monkeypatch.chdir(store.parent)
    assert len(rbptrack.runs()) == 1


@pytest.mark.usefixtures("database_alone")
def test_a_copy_without_the_artifacts_is_refused_with_the_repair(store: Path) -> None:
    before = checksums(store)
    with pytest.raises(BadInput, match=r"copied from .* without the artifacts of 1 runs.\nRepair: cp -an ") as caught:
        rbptrack.runs()
    assert checksums(store) == before
    command = str(caught.value).partition("Repair: ")[2].partition(", or")[0]
    subprocess.run(command, shell=True, check=True)
    assert rbptrack.runs().frame["run_id"].notna().all()
    (other,) = rbptrack.runs().frame["run_id"]
    assert rbptrack.runs().ranks(other).strict_rank.tolist() == [1, 7]


@pytest.mark.usefixtures("database_alone")
def test_a_copy_may_do_without_its_artifacts(capsys: pytest.CaptureFixture[str]) -> None:
    assert sync.main(["moved=true"]) == 0
    assert "4 paths updated: artifacts lie beside the database" in capsys.readouterr().out
    assert len(rbptrack.runs()) == 1


def test_a_copy_that_cannot_be_written_is_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own artifacts are read, though its addresses name the original's."""
    copy = Path(shutil.copytree(store, store.parent / "copy" / "mlruns"))
    for path in store.rglob("ranks.parquet"):
        path.write_bytes(b"the original has changed since")
    monkeypatch.chdir(copy.parent)
    monkeypatch.setattr("os.access", lambda path, mode: not str(path).startswith(str(copy)))
    runs = rbptrack.runs()
    assert runs.ranks(runs.frame["run_id"][0]).strict_rank.tolist() == [1, 7]
    with closing(sqlite3.connect(copy / "mlflow.db")) as connection:
        (address,) = connection.execute("select artifact_uri from runs").fetchone()
    assert address.startswith(store.as_uri())


def test_a_moved_store_is_used(store: Path) -> None:
    moved = shutil.move(store, store.with_name("elsewhere") / "mlruns")
    runs = rbptrack.runs(tracking_uri=f"sqlite:///{Path(moved) / 'mlflow.db'}")
    assert not store.exists()
    assert runs.ranks(runs.frame["run_id"][0]).strict_rank.tolist() == [1, 7]


def test_artifacts_that_were_put_elsewhere_stay_there(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tracking.artifacts=` beside another store is no sign of a copy."""
    other = tmp_path / "other"
    other.mkdir()
    config = TrackingConfig(uri=f"sqlite:///{other / 'mlflow.db'}", artifacts=(store / "shared").as_uri())
    for _ in range(2):
        Store(config).open()
    with closing(sqlite3.connect(other / "mlflow.db")) as connection:
        query = "select artifact_location from experiments where name = 'rbptrack'"
        assert connection.execute(query).fetchone() == ((store / "shared/rbptrack").as_uri(),)


def test_an_experiment_that_was_deleted_in_the_ui(store: Path) -> None:
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    client.delete_experiment("1")
    with pytest.raises(BadInput, match=r"was deleted in the UI. Restore it .*restore -x 1.*tracking.experiment=NAME"):
        rbptrack.runs()


def test_a_missing_artifact_names_its_run(store: Path) -> None:
    runs = rbptrack.runs()
    for path in store.rglob("ranks.parquet"):
        path.unlink()
    with pytest.raises(rbptrack.base.errors.RbptrackError, match=runs.frame["run_id"][0]):  # type: ignore[attr-defined]
        runs.ranks(runs.frame["run_id"][0])


def test_a_read_only_folder(store: Path) -> None:
    """Said before anything is measured; the superuser is made to feel permissions, too."""
    prefix = []
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv is not installed: apt-get install util-linux")
        prefix = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"]
    store.chmod(0o555)
    (store / "mlflow.db").chmod(0o444)
    try:
        code = (
            "from rbptrack.tracking.store import Store; from rbptrack.config.schema import TrackingConfig\n"
            "try: Store(TrackingConfig()).check_writable()\nexcept Exception as e: print(type(e).__name__, e)"
        )
        command = [*prefix, sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=store.parent)
    finally:
        store.chmod(0o755)
    assert done.stdout.startswith(f"BadInput the tracking store {store / 'mlflow.db'} is not writable"), done.stderr


def test_the_error_that_a_server_answers_with_is_said() -> None:
    """MLflow's message holds the address twice before it comes to the error; this one's bucket was away."""
    path = "/api/2.0/mlflow-artifacts/artifacts/1/2f975d6ca5754adeb10264bb3863690f/artifacts/figures/a.png"
    said = (
        f"API request to http://tracking:5000{path} failed with exception HTTPConnectionPool(host='tracking', "
        f"port=5000): Max retries exceeded with url: {path} (Caused by ResponseError('too many 500 error responses'))"
    )
    words = "the tracking server http://tracking:5000 answers with error 500 where artifacts are kept: its log says why"
    with pytest.raises(StoreAway, match=f"^{words}$"), explained("http://tracking:5000"):
        raise MlflowException(said)
    with pytest.raises(StoreAway, match="answers with error 503: its log says why"), explained("http://tracking:5000"):
        raise MlflowException("API request to endpoint /runs/create failed with error code 503 != 200.")


def test_a_full_disk_is_said_in_words(tmp_path: Path) -> None:
    """/dev/full fails as a full disk does."""
    (tmp_path / "part.parquet.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="space") as caught:
        ranked([1]).write(tmp_path / "part.parquet")
    assert "the disk is full at" in str(disk_trouble(caught.value, tmp_path))


def test_a_full_database_is_said_in_words(store: Path) -> None:
    with closing(sqlite3.connect(store / "mlflow.db")) as connection:
        pages = connection.execute("pragma page_count").fetchone()[0]
        connection.execute(f"pragma max_page_count = {pages}")
        with pytest.raises(sqlite3.OperationalError, match="disk is full") as caught:
            connection.execute("create table more as select randomblob(1000000) as x")

    with pytest.raises(BadInput, match="is full: free some space"), explained(f"sqlite:///{store / 'mlflow.db'}"):
        raise caught.value


def test_a_process_is_known_from_another_of_its_number() -> None:
    """A living one, its child that ended and was not waited for, one of an earlier boot, one of another machine."""
    assert alive(marks())
    mine = json.loads(marks()[Tag.PROCESS])

    def tags(*, heartbeat: float, **changes: object) -> dict[str, str]:
        return {Tag.PROCESS: json.dumps(mine | changes), Tag.HEARTBEAT: str(time.time() - heartbeat)}

    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "end of the child")
        assert not alive(tags(heartbeat=0, pid=child.pid))
    assert not alive(tags(heartbeat=0, pid=child.pid))
    assert not alive(tags(heartbeat=0, created=mine["created"] - 100))
    assert alive(tags(heartbeat=1000))
    assert not alive(tags(heartbeat=1000, host="elsewhere"))
    assert alive(tags(heartbeat=0, host="elsewhere"))
    assert alive(tags(heartbeat=0, namespace="pid:[1]"))
    if mine["machine"]:
        assert not alive(tags(heartbeat=0, booted=mine["booted"] - 1e4, boot=""))
        assert alive(tags(heartbeat=0, booted=mine["booted"] - 9, boot=""))
    if mine["boot"]:  # a clock that is set kills no run
        assert alive(tags(heartbeat=0, booted=mine["booted"] - 90))
        assert not alive(tags(heartbeat=0, boot="another"))
    assert not alive({})
