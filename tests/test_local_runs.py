"""A local store is written without MLflow: the same rows as by its client."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.client import Client
from rbptrack.tracking.frame import Sink
from rbptrack.tracking.local_runs import LocalRuns
from rbptrack.tracking.store import Store

SINKS: tuple[Callable[[Path], Sink], ...] = (LocalRuns, lambda path: Client(MlflowClient(f"sqlite:///{path}")))
KEPT = ("runs", "params", "tags", "metrics", "latest_metrics", "datasets", "inputs", "input_tags")
MADE_UP = ("dataset_uuid", "source_id", "input_uuid", "deleted_time")  # ids, and now


def written(sink: Sink, database: Path) -> dict[str, list[dict[str, Any]]]:
    """Whatever a sink writes of two runs, the same twice, as the rows of each table."""
    names = {}
    for name in ("a / b", "deleted"):
        run_id = sink.begin("0", name, {"mlflow.user": "me", "rbptrack.kind": "measurement"}, started=1000)
        names[run_id] = name
    first, second = names
    for _ in range(2):
        points = [("ce", 2.5, 2000, 0), ("rbp_curve", 0.5, 2000, 10), ("rbp_curve", 0.25, 2000, 1), ("late", 1.0, 9, 5)]
        sink.log(first, points=points, params={}, tags={"rbptrack.kind": "other", "long": "x" * 9000})
        sink.add_dataset(first, {"name": "d", "digest": "1f", "source": "here", "profile": "{}"})
        sink.set_status(first, "FINISHED", ended=3000)
        sink.set_status(first, "RUNNING")
    sink.log(first, points=[("ce", 3.5, 3000, 0), ("late", 2.0, 10, 4)], params={"p": "y" * 7000, "q": "1"}, tags={})
    sink.set_status(first, "FAILED", ended=4000)
    sink.delete(second)
    with closing(sqlite3.connect(database)) as store:
        store.row_factory = sqlite3.Row
        tables = {name: [dict(row) for row in store.execute(f"select * from {name}")] for name in KEPT}
    for rows in tables.values():
        for row in rows:
            row |= {key: names[value] for key, value in row.items() if value in names}
            row |= {key: row[key] is not None for key in MADE_UP if key in row}
            if "artifact_uri" in row:
                row["artifact_uri"] = row["artifact_uri"].replace(first, "1").replace(second, "2")
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}


def test_the_same_rows_as_by_mlflow(empty_store: Path, tmp_path: Path) -> None:
    both = []
    for number, sink in enumerate(SINKS):
        database = tmp_path / f"{number}.db"
        shutil.copyfile(empty_store, database)
        both.append(written(sink(database), database))
    assert both[0] == both[1]


def test_a_run_that_is_gone_is_not_written(empty_store: Path, tmp_path: Path) -> None:
    database = shutil.copyfile(empty_store, tmp_path / "a.db")
    sink = LocalRuns(database)
    run_id = sink.begin("0", "a", {}, started=0)
    sink.delete(run_id)
    for gone in (run_id, "f" * 32):
        with pytest.raises(BadInput, match="or it was deleted"):
            sink.set_status(gone, "FINISHED")


def test_a_made_store_is_written_without_mlflow(empty_store: Path, tmp_path: Path) -> None:
    """Also into an experiment that is not there yet, whose picture MLflow's client then finds."""
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_store, tmp_path / "mlruns/mlflow.db")
    code = (
        "import sys; from rbptrack.config.schema import TrackingConfig; from rbptrack.tracking.store import Store; "
        "writer = Store(TrackingConfig(experiment='other')).writer; run = writer.begin('a', {}); "
        "writer.log(run, metrics={'ce': 1.5}, params={'p': 1}); writer.end(run); "
        "print({'mlflow', 'sqlalchemy'} & {*sys.modules}, run)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    imported, run_id = done.stdout.rsplit(maxsplit=1)
    assert imported == "set()"
    store = Store(TrackingConfig(uri=f"sqlite:///{tmp_path}/mlruns/mlflow.db", experiment="other"))
    run = store.open().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"ce": 1.5}
    assert run.info.artifact_uri.endswith(f"/artifacts/other/{run_id}/artifacts")
