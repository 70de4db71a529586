"""One experiment of a tracking server or database: find, log and read measurements."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlflow.artifacts
import pandas as pd
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from rbptrack import __version__
from rbptrack.analyzer import COLUMNS, Runs
from rbptrack.config import FilterConfig, TrackingConfig
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.ranktable import RankHistogram, RankTable
from rbptrack.tracking.address import explained, resolve_uri, without_password
from rbptrack.tracking.rows import newest, passing, row

_PAGE = 1000
_BATCH = 900  # metrics or params in one call; MLflow takes at most 1000 metrics and 100 params
_PARAMS = 100


@dataclass(frozen=True)
class Cell:
    """What identifies a measurement in the store."""

    fingerprint: str
    family: str
    size: str
    model: str
    dataset: str
    sweep: str

    @property
    def title(self) -> str:
        """The run's name: `pythia-70m / wiki`."""
        return f"{self.model} / {self.dataset}"

    def tags(self) -> dict[str, str]:
        """The tags of a measurement, each with the prefix `rbptrack`."""
        return {
            "rbptrack.kind": "measurement",
            "rbptrack.version": __version__,
            "rbptrack.fingerprint": self.fingerprint,
            "rbptrack.family": self.family,
            "rbptrack.size": self.size,
            "rbptrack.model": self.model,
            "rbptrack.dataset": self.dataset,
            "rbptrack.sweep": self.sweep,
        }


class Store:
    """One experiment of one tracking server or database.

    Args:
        config: where; see `resolve_uri`.

    Raises:
        BadInput: the store cannot be reached, written, or is of another MLflow version.

    """

    def __init__(self, config: TrackingConfig) -> None:
        for name in ("alembic", "mlflow", "sqlalchemy"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.uri = resolve_uri(config)
        self.shown = without_password(self.uri)
        self.experiment = config.experiment
        self.database = (
            Path(unquote(self.uri.removeprefix("sqlite:///").split("?")[0])) if self.uri.startswith("sqlite:") else None
        )
        self._client: MlflowClient | None = None
        self._experiment_id = ""

    @property
    def exists(self) -> bool:
        """Whether there is anything to read; a local database that nobody made yet is not."""
        return self.database is None or self.database.exists()

    def check_writable(self) -> None:
        """BadInput unless a local store can be made or written here. Writes nothing."""
        if self.database is None:
            return
        folder = self.database.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            raise BadInput(f"the tracking store {self.database} cannot be made: {folder} is not a folder")
        target = self.database if self.database.exists() else folder
        if not os.access(target, os.W_OK) or not os.access(folder, os.W_OK):
            raise BadInput(f"the tracking store {self.database} is not writable: check the permissions of {target}")
        if self.exists:
            _check_database(self.database)

    def open(self) -> MlflowClient:
        """The client, with database and experiment made if they are not there yet."""
        if self._client is None:
            if self.database is not None:
                self.database.parent.mkdir(parents=True, exist_ok=True)
                # Several processes that make the database at once break it, sometimes for good.
                with FileLock(self.database.with_name(self.database.name + ".lock")):
                    self._connect()
            else:
                self._connect()
        assert self._client is not None  # noqa: S101
        return self._client

    def _connect(self) -> None:
        with explained(self.uri):
            fresh = self.database is not None and not self.database.exists()
            client = MlflowClient(self.uri)
            found = client.get_experiment_by_name(self.experiment)
            if found is not None and found.lifecycle_stage == "deleted":
                raise BadInput(
                    f"the experiment {self.experiment!r} was deleted in the UI. Restore it there (or with `mlflow "
                    f"experiments restore -x {found.experiment_id}`), or choose another: tracking.experiment=NAME"
                )
            if found is not None:
                self._experiment_id = found.experiment_id
            elif self.database is not None:
                artifacts = self.database.parent / "artifacts" / self.experiment
                self._experiment_id = client.create_experiment(self.experiment, artifact_location=artifacts.as_uri())
            else:
                self._experiment_id = client.create_experiment(self.experiment)
            if fresh and self.database is not None:
                with sqlite3.connect(self.database) as connection:
                    connection.execute("pragma journal_mode=WAL")  # concurrent writers wait a third of the time
            self._client = client

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the experiment."""
        self.open()
        return self._experiment_id

    def find(self, fingerprint: str) -> str | None:
        """The run id of the newest finished measurement with this fingerprint, if there is one."""
        if not self.exists:
            return None
        wanted = f"tags.`rbptrack.fingerprint` = '{fingerprint}' and attributes.status = 'FINISHED'"
        runs = self._search(f"tags.`rbptrack.kind` = 'measurement' and {wanted}", limit=1)
        return runs[0].info.run_id if runs else None

    def _search(self, wanted: str, *, limit: int | None = None) -> list[Run]:
        client, token = self.open(), None
        runs: list[Run] = []
        with explained(self.uri):
            while True:
                page = client.search_runs(
                    [self._experiment_id],
                    filter_string=wanted,
                    run_view_type=ViewType.ACTIVE_ONLY,
                    max_results=limit or _PAGE,
                    page_token=token,
                )
                runs += page
                token = page.token
                if not token or limit:
                    return runs

    def begin(self, name: str, tags: Mapping[str, str], *, started: float | None = None) -> str:
        """Create a run and return its id; it stays RUNNING until `end`."""
        with explained(self.uri):
            run = self.open().create_run(
                self.experiment_id,
                start_time=int((started or time.time()) * 1000),
                run_name=name,
                tags=dict(tags),
            )
            return str(run.info.run_id)

    def end(self, run_id: str, status: str = "FINISHED") -> None:
        """Close a run: FINISHED, FAILED or KILLED."""
        with explained(self.uri):
            self.open().set_terminated(run_id, status)

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        curves: Mapping[str, Mapping[int, float]] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log params, metrics (finite ones; MLflow would turn an infinity into 1.8e308), curves by step, and tags."""
        now = int(time.time() * 1000)
        rows = [Metric(k, float(v), now, 0) for k, v in (metrics or {}).items() if math.isfinite(v)]
        for key, curve in (curves or {}).items():
            rows += [Metric(key, float(v), now, step) for step, v in curve.items() if math.isfinite(v)]
        entries = [Param(k, str(v)) for k, v in (params or {}).items()]
        client = self.open()
        with explained(self.uri):
            for at in range(0, len(rows), _BATCH):
                client.log_batch(run_id, metrics=rows[at : at + _BATCH])
            for at in range(0, len(entries), _PARAMS):
                client.log_batch(run_id, params=entries[at : at + _PARAMS])
            if tags:
                client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def log_dataset(self, run_id: str, *, name: str, digest: str, source: str, profile: str) -> None:
        """Log the dataset as an input of the run, as MLflow's UI shows it; the digest is cut to 36 characters."""
        dataset = Dataset(name=name, digest=digest[:36], source_type="rbptrack", source=source, profile=profile)
        with explained(self.uri):
            self.open().log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")])])

    def log_folder(self, run_id: str, folder: Path) -> None:
        """Log every file under a folder as an artifact of the run, with its relative path."""
        with explained(self.uri):
            self.open().log_artifacts(run_id, str(folder))

    def artifact(self, run_id: str, path: str) -> Path:
        """A local copy of an artifact (the file itself where the store is local)."""
        try:
            found = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=path, tracking_uri=self.uri)
        except (MlflowException, OSError) as error:
            raise RbptrackError(f"run {run_id} lacks its artifact {path}: {error}") from error
        return Path(found)

    def artifact_uri(self, run_id: str) -> str:
        """Where the run's artifacts lie; a plain path where the store is local."""
        uri = str(self.open().get_run(run_id).info.artifact_uri)
        return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri

    def runs(self, chosen: FilterConfig, *, run_ids: Sequence[str] = ()) -> Runs:
        """Finished measurements as a table: those of run_ids, or all that pass the filters.

        Raises:
            BadInput: nothing passes; says what there is.

        """
        if not self.exists:
            raise BadInput(f"there is no tracking store at {self.database}: measure something first")
        wanted = "tags.`rbptrack.kind` = 'measurement' and attributes.status = 'FINISHED'"
        rows = [row(run) for run in self._search(wanted)]
        if run_ids:
            kept = [r for r in rows if r["run_id"] in set(run_ids)]
        else:
            kept = passing(newest(rows), chosen, self._sweep_runs(chosen.sweep))
        frame = pd.DataFrame(kept)
        if frame.empty:
            frame = pd.DataFrame(columns=list(COLUMNS))
        frame = frame.sort_values(["family", "non_embedding_params", "dataset"]) if len(frame) else frame
        return Runs(
            frame,
            histogram=lambda run_id: RankHistogram.read(self.artifact(run_id, "histogram.parquet")),
            ranks=self.ranks,
        )

    def ranks(self, run_id: str) -> RankTable:
        """The rank table of a measurement."""
        return RankTable.read(self.artifact(run_id, "ranks.parquet"))

    def measured(self, run_id: str) -> tuple[int, dict[str, float]]:
        """|V| and the logged metrics of a measurement."""
        data = self.open().get_run(run_id).data
        return int(data.params["model.vocab_size"]), dict(data.metrics)

    def sweep_run(self, sweep: str) -> str | None:
        """The run id of a sweep's own run, if there is one of that name."""
        runs = self._search("tags.`rbptrack.kind` = 'sweep'")
        return next((r.info.run_id for r in runs if r.data.tags.get("rbptrack.sweep") == sweep), None)

    def _sweep_runs(self, sweeps: Sequence[str]) -> dict[str, set[str]]:
        """Run ids that each sweep covers, those included that it found already measured."""
        covered: dict[str, set[str]] = {}
        if sweeps:
            for run in self._search("tags.`rbptrack.kind` = 'sweep'"):
                name = run.data.tags.get("rbptrack.sweep", "")
                if any(fnmatchcase(name, pattern) for pattern in sweeps):
                    cells = pd.read_csv(self.artifact(run.info.run_id, "cells.csv"), dtype=str)
                    covered[name] = set(cells["run_id"].dropna())
        return covered


def _check_database(path: Path) -> None:
    """BadInput where a SQLite file is no database or cannot be read."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            connection.execute("select count(*) from sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise BadInput(f"the tracking store {path} is not a readable database: {error}") from error
