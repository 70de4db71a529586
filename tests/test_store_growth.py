"""What keeps a store fast when it holds many measurements."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow.store.db.utils import _upgrade_db, create_sqlalchemy_engine

from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.tracking.schema import MeasurementTags
from rbptrack.tracking.store import Store
from tools import made_stores


def test_a_measurement_is_found_by_an_index(with_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a store that was made before there was one; and MLflow's own migrations still pass."""
    monkeypatch.chdir(with_store)
    database = with_store / "mlruns/mlflow.db"

    def plan() -> str:
        with closing(sqlite3.connect(database)) as store:
            query = "explain query plan select run_uuid from tags where key = 'rbptrack.fingerprint' and value = 'x'"
            return " ".join(row[3] for row in store.execute(query))

    assert "rbptrack_tags" not in plan()
    connection = Store(TrackingConfig())
    writer = connection.writer
    run = writer.begin("a / b", MeasurementTags("x", "a", "1m", "a-1m", "b", "").tags())
    writer.end(run)
    assert "rbptrack_tags (key=? AND value=?)" in plan()
    assert connection.reader.find("x") == run
    assert connection.reader.find("y") is None
    _upgrade_db(create_sqlalchemy_engine(connection.uri))
    assert "rbptrack_tags" in plan()
    assert Store(TrackingConfig()).reader.find("x") == run


def test_a_store_that_cannot_be_written_is_read_without_the_index(
    with_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(with_store)
    writer = Store(TrackingConfig()).writer
    writer.end(writer.begin("a / b", MeasurementTags("x", "a", "1m", "a-1m", "b", "").tags()))
    database = with_store / "mlruns/mlflow.db"
    with closing(sqlite3.connect(database)) as store, store:
        store.execute("drop index rbptrack_tags")
    monkeypatch.setattr("rbptrack.tracking.local.sqlite3.connect", _read_only)
    assert Store(TrackingConfig()).reader.find("x")


_CONNECT = sqlite3.connect


def _read_only(database: str | Path, **options: bool) -> sqlite3.Connection:
    """As where the file's permissions forbid writing (tests may run as root, whom nothing forbids)."""
    return _CONNECT(database if options else f"file:{database}?mode=ro", uri=True)


def test_made_measurements_are_measurements(untouched: Path, tmp_path: Path) -> None:
    """The stores by which growth is measured: whole families, read as any others, and made once."""
    folder = made_stores.on_sqlite(untouched, tmp_path / "made", 60)
    connection = Store(TrackingConfig(uri=f"sqlite:///{folder / made_stores.DATABASE}"))
    runs = connection.reader.runs(FilterConfig(dataset=["d0"]))
    assert runs.frame.groupby("family")["size"].nunique().to_dict() == {"f00000": 10, "f00001": 10}
    assert (runs.frame.groupby("family")["rbp_1"].nunique() == 8).all()  # as many as were really measured
    assert runs.histogram(str(runs.frame["run_id"][0])).num_tokens > 0
    assert len(connection.reader.runs(FilterConfig())) == 60
    assert made_stores.on_sqlite(tmp_path / "nothing", folder, 60) == folder
