"""One experiment of a tracking server or database: find, log and read measurements."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlflow.artifacts
import pandas as pd
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from PIL import Image

from rbptrack.analysis.contract import COLUMNS, Runs
from rbptrack.config.paths import home
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.errors import BadInput, RbptrackError, StoreAway
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.tracking.context import source_tags
from rbptrack.tracking.frame import Found, from_database, newest, passing, row
from rbptrack.tracking.process import HEARTBEAT, TAG, marks
from rbptrack.tracking.record import Record, artifacts, color, describe
from rbptrack.tracking.uri import check_place, explained, reach, resolve_uri, without_password
from rbptrack.tracking.view import TAG as VIEW_TAG
from rbptrack.tracking.view import preset
from rbptrack.version import __version__

_PAGE = 1000
_BATCH = 900  # metrics or params in one call; MLflow takes at most 1000 metrics and 100 params
_PARAMS = 100
_CURVES = ("rbp_curve", "neg_log_rbp_curve")
_OWN_TAGS = (TAG, HEARTBEAT, "rbptrack.claim", "rbptrack.resumed")
_OWN_METRICS = ("system/", "progress/")
_TRAINING = {"mlflow.experimentKind": "custom_model_development"}  # else the UI opens its pages for LLM applications
_AWAY_SECONDS = 30.0  # how long a store that did not answer is not asked again


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
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.uri = resolve_uri(config)
        self.shown = without_password(self.uri)
        self.experiment = config.experiment
        self.database = (
            Path(unquote(self.uri.removeprefix("sqlite:///").split("?")[0])) if self.uri.startswith("sqlite:") else None
        )
        self._artifacts = config.artifacts
        self._client: MlflowClient | None = None
        self._locations: dict[str, str] = {}  # of the artifacts of each run that was asked for
        self._experiment_id = ""
        self._away_until = 0.0

    @property
    def exists(self) -> bool:
        """Whether there is anything to read; a local database that nobody made yet is not."""
        return self.database is None or self.database.exists()

    def check_writable(self) -> None:
        """BadInput unless the store can be written: a local one, or its folder; another one must answer."""
        if self.database is None:
            self.open()
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
        """The client, with database and experiment made if they are not there yet.

        Raises:
            StoreAway: nothing answers there now, or did not a moment ago.
            BadInput: it answers, and cannot be used: no permission, another MLflow's, an experiment deleted or moved.

        """
        if time.monotonic() < self._away_until:
            raise StoreAway(f"the tracking store {self.shown} cannot be reached")
        if self._client is None:
            if self.database is not None:
                with self._explained():
                    self.database.parent.mkdir(parents=True, exist_ok=True)
                # Several processes that make the database at once break it, sometimes for good.
                with FileLock(self.database.with_name(self.database.name + ".lock")):
                    self._connect()
            else:
                self._connect()
        assert self._client is not None  # noqa: S101
        return self._client

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors in words; after one that says that nobody answers, the next calls do not wait for it again."""
        try:
            with explained(self.uri):
                yield
        except StoreAway:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            raise

    def _connect(self) -> None:
        with self._explained():
            reach(self.uri)
            fresh = self.database is not None and not self.database.exists()
            client = MlflowClient(self.uri)
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                found = self._create(client)
            if found.lifecycle_stage == "deleted":
                raise BadInput(
                    f"the experiment {self.experiment!r} was deleted in the UI. Restore it there (or with `mlflow "
                    f"experiments restore -x {found.experiment_id}`), or choose another: tracking.experiment=NAME"
                )
            if self.database is not None:
                check_place(self.database, found.artifact_location, self.experiment)
            if fresh and self.database is not None:
                with closing(sqlite3.connect(self.database)) as connection:
                    connection.execute("pragma journal_mode=WAL")  # concurrent writers wait a third of the time
            self._experiment_id = found.experiment_id
            self._client = client

    def _create(self, client: MlflowClient) -> Experiment:
        """A new experiment. Without a server between, the artifacts' place is the client's to say."""
        location = None
        if self._artifacts:
            location = f"{self._artifacts.rstrip('/')}/{self.experiment}"
        elif self.database is not None:
            location = (self.database.parent / "artifacts" / self.experiment).as_uri()
        elif not self.uri.startswith(("http://", "https://")):
            location = (home() / "artifacts" / self.experiment).as_uri()
        try:
            made = client.create_experiment(self.experiment, artifact_location=location, tags=_TRAINING)
            return client.get_experiment(made)
        except MlflowException as error:
            found = client.get_experiment_by_name(self.experiment)  # another process was faster
            if found is None:
                raise error from None
            return found

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the experiment."""
        self.open()
        return self._experiment_id

    def find(self, fingerprint: str) -> str | None:
        """The run id of the newest finished measurement with this fingerprint, if there is one."""
        found = self.measurements(fingerprint, status="FINISHED", limit=1) if self.exists else []
        return found[0].info.run_id if found else None

    def measurements(self, fingerprint: str, *, status: str, limit: int | None = None) -> list[Run]:
        """Measurements with this fingerprint and status, newest first."""
        wanted = f"tags.`rbptrack.fingerprint` = '{fingerprint}' and attributes.status = '{status}'"
        return self.search(f"tags.`rbptrack.kind` = 'measurement' and {wanted}", limit=limit)

    def search(self, wanted: str, *, limit: int | None = None) -> list[Run]:
        """Runs of the experiment that pass a filter in MLflow's words, newest first."""
        client, token = self.open(), None
        runs: list[Run] = []
        with self._explained():
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
        client = self.open()
        with self._explained():
            run = client.create_run(
                self._experiment_id,
                start_time=int((started or time.time()) * 1000),
                run_name=name,
                tags=source_tags() | marks() | dict(tags),
            )
            return str(run.info.run_id)

    def resume(self, run_id: str) -> bool:
        """Make an unfinished run this process's own and RUNNING again; False if there is no such run here."""
        run = self._reopened(run_id)
        if run is not None:
            times = int(run.data.tags.get("rbptrack.resumed", "0")) + 1
            self.log(run_id, tags=marks() | {"rbptrack.resumed": str(times)})
        return run is not None

    def _reopened(self, run_id: str) -> Run | None:
        client = self.open()
        with self._explained():
            try:
                run = client.get_run(run_id)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return None
            mine = run.info.experiment_id == self._experiment_id and run.info.lifecycle_stage == "active"
            if not mine or run.info.status == "FINISHED":
                return None
            if run.info.status != "RUNNING":
                client.update_run(run_id, status="RUNNING")
            return run

    def end(self, run_id: str, status: str = "FINISHED") -> None:
        """Close a run: FINISHED, FAILED or KILLED."""
        client = self.open()
        with self._explained():
            client.set_terminated(run_id, status)

    def withdraw(self, run_id: str) -> None:
        """Delete a run that another made superfluous."""
        client = self.open()
        with self._explained():
            client.delete_run(run_id)

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        curves: Mapping[str, Mapping[int, float]] | None = None,
        tags: Mapping[str, str] | None = None,
        at: float | None = None,
        step: int = 0,
    ) -> None:
        """Log params, metrics, curves by step, and tags.

        Only finite numbers are logged; MLflow would turn an infinity into 1.8e308. Numbers logged again with the same
        time change nothing. A param keeps its first value, as MLflow demands: where a continued measurement has
        another (of the engine, or of the device), it is logged as tag `rbptrack.later/<param>`.

        Args:
            run_id: of a run that has begun.
            params: by name.
            metrics: by name, all at one step.
            curves: step -> number, by name.
            tags: by name.
            at: seconds since 1970; now, if not given.
            step: of the metrics.

        """
        now = int((at or time.time()) * 1000)
        rows = [Metric(k, float(v), now, step) for k, v in (metrics or {}).items() if math.isfinite(v)]
        for key, curve in (curves or {}).items():
            rows += [Metric(key, float(v), now, k) for k, v in curve.items() if math.isfinite(v)]
        client = self.open()
        with self._explained():
            for i in range(0, len(rows), _BATCH):
                client.log_batch(run_id, metrics=rows[i : i + _BATCH])
            tags = dict(tags or {}) | self._log_params(client, run_id, params or {})
            if tags:
                client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items()])

    def _log_params(self, client: MlflowClient, run_id: str, params: Mapping[str, object]) -> dict[str, str]:
        if not params:
            return {}
        known = client.get_run(run_id).data.params
        entries = [Param(k, str(v)) for k, v in params.items() if k not in known]
        for i in range(0, len(entries), _PARAMS):
            client.log_batch(run_id, params=entries[i : i + _PARAMS])
        return {f"rbptrack.later/{k}": str(v) for k, v in params.items() if known.get(k, str(v)) != str(v)}

    def log_folder(self, run_id: str, folder: Path) -> None:
        """Log every file under a folder as an artifact of the run, with its relative path."""
        client = self.open()
        with self._explained():
            client.log_artifacts(run_id, str(folder))

    def deliver(self, record: Record, folder: Path, run_id: str = "") -> str:
        """Log a finished measurement, complete, into the run that it began or a new one; returns the run's id.

        May be called again after a failure at any point: what is there already stays as it is, and a record that was
        delivered is not delivered twice.
        """
        same = f"tags.`rbptrack.record` = '{record.tags['rbptrack.record']}'"
        delivered = self.search(f"{same} and attributes.status = 'FINISHED'", limit=1)
        if delivered:
            return str(delivered[0].info.run_id)
        begun = [run_id] if run_id else [r.info.run_id for r in self.search(same)]
        run_id = next((r for r in begun if self._reopened(r)), "")
        run_id = run_id or self.begin(record.name, record.tags, started=record.started)
        tags = record.tags | color(record) | {"mlflow.note.content": describe(record)}
        metrics = record.metrics | _for_charts(record.metrics)
        self.log(run_id, params=record.params, metrics=metrics, curves=record.curves, tags=tags, at=record.ended)
        client = self.open()
        with self._explained():
            if record.dataset:
                dataset = Dataset(source_type="rbptrack", **record.dataset)
                client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")])])
            figure = folder / "figures" / "rank_distribution.png"
            if figure.exists() and "mlflow.loggedImages" not in client.get_run(run_id).data.tags:
                with Image.open(figure) as image:  # once more, as the UI's image grid takes it
                    client.log_image(run_id, image, key="rank_distribution", step=0)
            for path in artifacts(folder):
                parent = path.relative_to(folder).parent.as_posix()
                client.log_artifact(run_id, str(path), None if parent == "." else parent)
            client.set_terminated(run_id, "FINISHED")
        return run_id

    def record(self, run_id: str) -> Record:
        """A finished measurement as it was recorded, without what belongs to this store or the measuring process."""
        client = self.open()
        with self._explained():
            run = client.get_run(run_id)
            data, inputs = run.data, run.inputs.dataset_inputs if run.inputs else []
            found = {name: client.get_metric_history(run_id, name) for name in _CURVES if name in data.metrics}
        tags = {k: v for k, v in data.tags.items() if k.startswith("rbptrack.") and k not in _OWN_TAGS}
        metrics = {k: v for k, v in data.metrics.items() if k not in _CURVES and not k.startswith(_OWN_METRICS)}
        record = Record(str(run.info.run_name), tags, dict(data.params), metrics)
        record.curves = {name: {m.step: m.value for m in history} for name, history in found.items()}
        record.started, record.ended = run.info.start_time / 1000, run.info.end_time / 1000
        if inputs:
            first = inputs[0].dataset
            record.dataset = {k: str(getattr(first, k) or "") for k in ("name", "digest", "source", "profile")}
        return record

    def write_view(self) -> str:
        """Keep the preset view in the experiment; returns the key that opens it, empty where writing is not allowed."""
        client, (key, value) = self.open(), preset()
        try:
            with self._explained():
                if f"{VIEW_TAG}{key}" not in client.get_experiment(self._experiment_id).tags:
                    client.set_experiment_tag(self._experiment_id, f"{VIEW_TAG}{key}", value)
        except BadInput:  # a reader without the right to write sees the plain page
            return ""
        return key

    def artifact_names(self, run_id: str) -> list[str]:
        """Paths of a run's artifacts, those in folders included."""
        client, names, folders = self.open(), list[str](), [""]
        with self._explained():
            while folders:
                for entry in client.list_artifacts(run_id, folders.pop() or None):
                    (folders if entry.is_dir else names).append(entry.path)
        return names

    def artifact(self, run_id: str, path: str) -> Path:
        """A local copy of an artifact (the file itself where the store is local)."""
        here = Path(self.artifact_uri(run_id), path)
        if here.is_absolute() and here.exists():
            return here  # MLflow's own way asks the database several times for each file
        try:
            found = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path=path, tracking_uri=self.uri)
        except (MlflowException, OSError) as error:
            raise RbptrackError(f"run {run_id} lacks its artifact {path}: {error}") from error
        return Path(found)

    def artifact_uri(self, run_id: str) -> str:
        """Where the run's artifacts lie; a plain path where the store is local."""
        if run_id not in self._locations:
            try:
                uri = str(self.open().get_run(run_id).info.artifact_uri)
            except MlflowException as error:
                raise RbptrackError(f"the store knows no run {run_id}: {error}") from error
            self._locations[run_id] = unquote(urlsplit(uri).path) if uri.startswith("file:") else uri
        return self._locations[run_id]

    def runs(self, chosen: FilterConfig, *, run_ids: Sequence[str] = ()) -> Runs:
        """Finished measurements as a table: those of run_ids, or all that pass the filters.

        Raises:
            BadInput: nothing passes; says what there is.

        """
        if not self.exists:
            raise BadInput(f"there is no tracking store at {self.database}: measure something first")
        rows = [row(found) for found in self._finished()]
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

    def _finished(self) -> list[Found]:
        self.open()
        if self.database is not None:
            with suppress(sqlite3.Error):  # tables that differ from those that are known: ask MLflow
                return from_database(self.database, self._experiment_id)
        wanted = "tags.`rbptrack.kind` = 'measurement' and attributes.status = 'FINISHED'"
        return [Found.of(run) for run in self.search(wanted)]

    def ranks(self, run_id: str) -> RankTable:
        """The rank table of a measurement."""
        return RankTable.read(self.artifact(run_id, "ranks.parquet"))

    def measured(self, run_id: str) -> tuple[int, dict[str, float]]:
        """|V| and the logged metrics of a measurement."""
        data = self.open().get_run(run_id).data
        return int(data.params["model.vocab_size"]), dict(data.metrics)

    def sweep_run(self, sweep: str) -> str | None:
        """The run id of a sweep's own run, if there is one of that name."""
        runs = self.search("tags.`rbptrack.kind` = 'sweep'")
        return next((r.info.run_id for r in runs if r.data.tags.get("rbptrack.sweep") == sweep), None)

    def _sweep_runs(self, sweeps: Sequence[str]) -> dict[str, set[str]]:
        """Run ids that each sweep covers, those included that it found already measured."""
        covered: dict[str, set[str]] = {}
        if sweeps:
            for run in self.search("tags.`rbptrack.kind` = 'sweep'"):
                name = run.data.tags.get("rbptrack.sweep", "")
                if any(fnmatchcase(name, pattern) for pattern in sweeps):
                    cells = pd.read_csv(self.artifact(run.info.run_id, "cells.csv"), dtype=str)
                    covered[name] = set(cells["run_id"].dropna())
        return covered


def _for_charts(metrics: Mapping[str, float]) -> dict[str, float]:
    """-ln RBP_1, the law's ordinate: the UI's charts take metrics as they are."""
    share = metrics.get("rbp_1", 0.0)
    return {"neg_log_rbp_1": -math.log(share)} if share > 0 else {}


def _check_database(path: Path) -> None:
    """BadInput where a SQLite file is no database or cannot be read."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            connection.execute("select count(*) from sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        raise BadInput(f"the tracking store {path} is not a readable database: {error}") from error
