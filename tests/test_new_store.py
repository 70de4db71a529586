"""A store is made whole or not at all, whatever stops the process that makes it, and by however many at once."""

from __future__ import annotations

import inspect
import logging
import logging.config
import os
import resource
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import mlflow.store.db.utils
import pytest

from rbptrack.base.errors import BadInput
from rbptrack.base.files import TemporaryFolder, clear_temporary, temporary_files
from rbptrack.base.process import INTERRUPTED, install_signals
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.store import Store
from tests.campaigns.recorded import note

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def make() -> None:
    with temporary_files():
        Store(TrackingConfig()).open()


def forked(action: Callable[[], None], place: Path) -> int:
    """The number of a process that does something in a folder: a fork of this one, which has made its imports."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.chdir(place)
        # MLflow makes its tables by its migrations here; other tests copy them.
        mlflow.store.db.utils._initialize_tables = inspect.unwrap(mlflow.store.db.utils._initialize_tables)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        install_signals()
        action()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def whole(database: Path) -> bool:
    with closing(sqlite3.connect(database)) as connection:
        names = {name for (name,) in connection.execute("select name from experiments")}
        journal = connection.execute("pragma journal_mode").fetchone()[0]
        check = connection.execute("pragma integrity_check").fetchone()[0]
    return names == {"Default", "rbptrack"} and (journal, check) == ("wal", "ok")


@pytest.fixture
def temporaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own for temporary folders."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


@pytest.mark.parametrize("kills", [2, pytest.param(64, marks=pytest.mark.long)])
def test_a_process_stopped_while_it_makes_a_store_leaves_none_or_a_whole_one(
    kills: int, tmp_path: Path, temporaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    began = time.monotonic()
    assert os.waitpid(forked(make, undisturbed), 0)[1] == 0
    lasts = time.monotonic() - began
    assert whole(undisturbed / "mlruns/mlflow.db")
    for number in range(kills):
        place = tmp_path / str(number)
        place.mkdir()
        pid = forked(make, place)
        time.sleep(lasts * (number + 0.5) / kills)
        os.kill(pid, SIGNALS[number % len(SIGNALS)])
        os.waitpid(pid, 0)
        database = place / "mlruns/mlflow.db"
        assert not database.exists() or whole(database), number
        monkeypatch.chdir(place)
        make()
        assert whole(database), number
        left = {p.name for p in (place / "mlruns").iterdir()} - {"mlflow.db-wal", "mlflow.db-shm"}
        assert left <= {"mlflow.db", "mlflow.db.lock", "artifacts"}, number
        assert list(temporaries.iterdir()) == [], number
    note("making a store", times=kills)


def test_a_full_disk_leaves_no_store(
    tmp_path: Path, temporaries: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on the size of files fails writes as a full disk does."""

    def on_a_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        try:
            make()
        except BadInput as error:
            print(error, flush=True)

    assert os.waitpid(forked(on_a_full_disk, tmp_path), 0)[1] == 0
    assert "the tracking store sqlite:///" in capfd.readouterr().out
    assert not (tmp_path / "mlruns/mlflow.db").exists()
    monkeypatch.chdir(tmp_path)
    make()
    assert whole(tmp_path / "mlruns/mlflow.db")
    assert list(temporaries.iterdir()) == []


def test_several_processes_make_one_store(tmp_path: Path, temporaries: Path) -> None:
    pids = [forked(make, tmp_path) for _ in range(2)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert whole(tmp_path / "mlruns/mlflow.db")


def test_a_folder_is_made_while_others_clear_up(temporaries: Path) -> None:
    """A new folder has no lock for a moment: who clears up then may take it, never after it is handed out."""
    done = threading.Event()

    def clear() -> None:
        while not done.is_set():
            clear_temporary()

    others = [threading.Thread(target=clear) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(250):
            folder = TemporaryFolder()
            assert folder.path.is_dir()
            folder.remove()
    finally:
        done.set()
        for other in others:
            other.join()
    assert not any(temporaries.iterdir())


def test_an_empty_file_is_no_store(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(with_store)
    (with_store / "other.db").touch()
    assert not Store(TrackingConfig(uri=f"sqlite:///{with_store / 'other.db'}")).exists
    assert Store(TrackingConfig()).exists


def test_loggers_work_after_a_store_was_made(
    tmp_path: Path, temporaries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrations of MLflow's database may disable them, as alembic's `fileConfig` does in several versions."""
    from rbptrack.tracking import new_store

    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("rbptrack.engine.parts")
    monkeypatch.setattr(logger, "disabled", False)  # another test's migrations may have disabled it

    def disabling(uri: str) -> None:
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
            database.execute("create table experiments (name text, artifact_location text)")
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
        assert logger.disabled

    new_store.make(tmp_path / "mlflow.db", "rbptrack", disabling)
    assert not logger.disabled
