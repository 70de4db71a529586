# ruff: noqa: S608 - what users give is bound; names of tables and columns are ours
"""Writing runs into the tables of a local store: without importing MLflow, and in a hundredth of its time.

The rows are those that MLflow's own client writes (its `SqlAlchemyStore`, 3.15 to 3.17); tests hold them against it.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from rbptrack.base.errors import BadInput
from rbptrack.tracking.frame import Point

_WAIT_SECONDS = 30.0  # for another program that writes
_PARAM, _TAG = 6000, 8000  # characters of a value beyond which MLflow cuts it off
_CONTEXT = ("mlflow.data.context", "evaluation")
_LATEST = (
    "insert into latest_metrics (run_uuid, key, value, timestamp, step, is_nan) values (?, ?, ?, ?, ?, 0)"
    " on conflict (key, run_uuid) do update set value = excluded.value, timestamp = excluded.timestamp,"
    " step = excluded.step, is_nan = 0"
    " where (excluded.step, excluded.timestamp, excluded.value)"
    " > (latest_metrics.step, latest_metrics.timestamp, latest_metrics.value)"
)


class LocalRuns:
    """Writes runs of a SQLite database; each call is one commit that waits for the disk.

    Every method raises sqlite3.Error where the database refuses, and BadInput for a run that is not there or deleted.

    Args:
        database: of a store whose tables are of a known version, with artifacts in folders of this machine.

    """

    def __init__(self, database: Path) -> None:
        self._database = database

    def make_experiment(self, name: str, artifacts: str, tags: Mapping[str, str]) -> None:
        """Make an experiment, unless there is one of this name."""
        now = _now()
        with self._opened() as store:
            row = (name, artifacts, "active", now, now)
            columns = "name, artifact_location, lifecycle_stage, creation_time, last_update_time"
            made = store.execute(f"insert or ignore into experiments ({columns}) values (?, ?, ?, ?, ?)", row)
            if made.rowcount:
                rows = [(key, value, made.lastrowid) for key, value in tags.items()]
                store.executemany("insert into experiment_tags (key, value, experiment_id) values (?, ?, ?)", rows)

    def begin(self, experiment: str, name: str, tags: Mapping[str, str], *, started: int) -> str:
        """Make a run that is RUNNING; returns its id."""
        run_id = uuid.uuid4().hex
        with self._opened() as store:
            query = "select artifact_location from experiments where experiment_id = ? and lifecycle_stage = 'active'"
            place = store.execute(query, (int(experiment),)).fetchone()
            if place is None:
                raise BadInput(f"the tracking store {self._database} has no experiment {experiment} any more")
            row = {
                **{"run_uuid": run_id, "name": name, "user_id": tags.get("mlflow.user", "unknown")},
                **{"source_type": "UNKNOWN", "source_name": "", "entry_point_name": "", "source_version": ""},
                **{"status": "RUNNING", "start_time": started, "lifecycle_stage": "active"},
                **{"artifact_uri": f"{place[0].rstrip('/')}/{run_id}/artifacts", "experiment_id": int(experiment)},
            }
            store.execute(f"insert into runs ({', '.join(row)}) values ({', '.join('?' * len(row))})", [*row.values()])
            _set_tags(store, run_id, {"mlflow.runName": name, **tags})
        return run_id

    def log(self, run_id: str, *, points: Iterable[Point], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Log numbers, params that the run lacks, and tags."""
        with self._opened(run_id) as store:
            rows = [(run_id, *point) for point in points]
            columns = "run_uuid, key, value, timestamp, step, is_nan"
            store.executemany(f"insert or ignore into metrics ({columns}) values (?, ?, ?, ?, ?, 0)", rows)
            store.executemany(_LATEST, rows)
            values = [(key, value[:_PARAM], run_id) for key, value in params.items()]
            store.executemany("insert or ignore into params (key, value, run_uuid) values (?, ?, ?)", values)
            _set_tags(store, run_id, tags)

    def set_status(self, run_id: str, status: str, *, ended: int | None = None) -> None:
        """Let a run be RUNNING again, or FINISHED, FAILED or KILLED, and keep when it ended."""
        with self._opened(run_id) as store:
            query = "update runs set status = ?, end_time = coalesce(?, end_time) where run_uuid = ?"
            store.execute(query, (status, ended, run_id))

    def delete(self, run_id: str) -> None:
        """Put a run among the deleted."""
        with self._opened() as store:
            query = "update runs set lifecycle_stage = 'deleted', deleted_time = ? where run_uuid = ?"
            store.execute(query, (_now(), run_id))

    def add_dataset(self, run_id: str, dataset: Mapping[str, str]) -> None:
        """Say which dataset a run has read, by `DATASET_INPUT`."""
        with self._opened(run_id) as store:
            (experiment,) = store.execute("select experiment_id from runs where run_uuid = ?", (run_id,)).fetchone()
            key = (experiment, dataset["name"], dataset["digest"])
            store.execute(
                "insert or ignore into datasets (dataset_uuid, dataset_source_type, dataset_source, dataset_profile,"
                " experiment_id, name, digest) values (?, 'rbptrack', ?, ?, ?, ?, ?)",
                (uuid.uuid4().hex, dataset["source"], dataset["profile"], *key),
            )
            query = "select dataset_uuid from datasets where experiment_id = ? and name = ? and digest = ?"
            (source,) = store.execute(query, key).fetchone()
            row = (uuid.uuid4().hex, source, run_id)
            columns = "input_uuid, source_type, source_id, destination_type, destination_id"
            made = store.execute(f"insert or ignore into inputs ({columns}) values (?, 'DATASET', ?, 'RUN', ?)", row)
            if made.rowcount:
                store.execute("insert into input_tags (input_uuid, name, value) values (?, ?, ?)", (row[0], *_CONTEXT))

    def add_files(self, run_id: str, folder: Path, place: Path) -> None:
        """Copy what is under a folder to a run's artifacts, which lie at a place."""
        shutil.copytree(folder, place, dirs_exist_ok=True)

    def add_file(self, run_id: str, path: Path, name: str, place: Path) -> None:
        """Copy a file to a run's artifacts, which lie at a place, under a name that may have folders in it."""
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place / name)

    @contextmanager
    def _opened(self, run_id: str = "") -> Iterator[sqlite3.Connection]:
        """One commit; of a run, only where that is active."""
        with closing(sqlite3.connect(self._database, timeout=_WAIT_SECONDS, isolation_level=None)) as store:
            store.execute("pragma synchronous=FULL")
            store.execute("begin immediate")
            with store:
                query = "select lifecycle_stage from runs where run_uuid = ?"
                if run_id and store.execute(query, (run_id,)).fetchone() != ("active",):
                    raise BadInput(f"the tracking store {self._database} has no run {run_id}, or it was deleted")
                yield store


def _set_tags(store: sqlite3.Connection, run_id: str, tags: Mapping[str, str]) -> None:
    rows = [(key, str(value)[:_TAG], run_id) for key, value in tags.items()]
    query = "insert into tags (key, value, run_uuid) values (?, ?, ?)"
    store.executemany(f"{query} on conflict (key, run_uuid) do update set value = excluded.value", rows)


def _now() -> int:
    return int(time.time() * 1000)
