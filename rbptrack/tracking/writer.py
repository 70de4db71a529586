"""Writing to a store: beginning and ending runs, and logging into them."""

from __future__ import annotations

import hashlib
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from rbptrack.base.errors import BadInput
from rbptrack.base.files import sync_tree
from rbptrack.base.secrets import refuse_known
from rbptrack.tracking import writing
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.context import source_tags
from rbptrack.tracking.logged_models import LoggedModels, Pointer, pointer_of_run
from rbptrack.tracking.process import marks
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import RANKS, SCORES_FILE, Record, color, describe, for_charts
from rbptrack.tracking.schema import Tag, scores_tags
from rbptrack.tracking.uploads import log_artifacts
from rbptrack.tracking.view import TAG as VIEW_TAG
from rbptrack.tracking.view import Shown, preset, view_key

_METRICS = 800  # in one call; MLflow takes at most 1000 entries
_OTHERS = 100  # params, and as many tags


class Writer:
    """Writes to one experiment.

    Every method raises StoreAway where the store does not answer, and BadInput where it refuses.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._models = LoggedModels(connection)

    def begin(self, name: str, tags: Mapping[str, str], *, started: float | None = None) -> str:
        """Create a run and return its id; it stays RUNNING until `end`."""
        refuse_known({"the run's name": name, **tags})
        if self.connection.read_only:
            self.connection.check_writable()  # raises: the copy that is read is not the store
        client = self._writing()
        with self.connection.explained():
            run = client.create_run(
                self.connection.experiment_id,
                start_time=int((started or time.time()) * 1000),
                run_name=name,
                tags=source_tags() | marks() | dict(tags),
            )
            return str(run.info.run_id)

    def resume(self, run_id: str, *, tags: Mapping[str, str] = MappingProxyType({})) -> bool:
        """Make an unfinished run this process's own and RUNNING again; False if this experiment lacks it."""
        run = self._unfinished(run_id)
        if run is not None:
            times = int(run.data.tags.get(Tag.RESUMED, "0")) + 1
            self.log(run_id, tags=marks() | {Tag.RESUMED: str(times)} | dict(tags))
            self._reopen(run)
        return run is not None

    def holds(self, run_id: str) -> bool:
        """Return whether a run is this process's own and RUNNING."""
        run = self._unfinished(run_id)
        own = run is not None and run.data.tags.get(Tag.PROCESS) == marks()[Tag.PROCESS]
        return own and run is not None and run.info.status == "RUNNING"

    def _unfinished(self, run_id: str) -> Run | None:
        """Return a run of this experiment that has not FINISHED and was not deleted; None if none has this ID."""
        client = self.connection.open()
        with self.connection.explained():
            try:
                run = client.get_run(run_id)
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return None
        ours = run.info.experiment_id == self.connection.experiment_id and run.info.lifecycle_stage == "active"
        closed = {Tag.DAMAGED, Tag.DUPLICATE} & set(run.data.tags)  # their numbers would stay beside the new ones
        return run if ours and run.info.status != "FINISHED" and not closed else None

    def _writing(self) -> MlflowClient:
        """Return the client, with this process's mark that it writes left beside a local store."""
        client = self.connection.open()
        if self.connection.database is not None:
            writing.begin(self.connection.database)
        return client

    def set_aside(self, run_id: str, tag: str, why: str, *, status: str = "FAILED") -> None:
        """Let a finished measurement no longer count as measured: another status, and a tag that says why."""
        self.log(run_id, tags={tag: why[:500]})
        client = self.connection.open()
        with self.connection.explained():
            client.update_run(run_id, status=status)

    def _reopen(self, run: Run) -> None:
        client = self._writing()
        with self.connection.explained():
            if run.info.status != "RUNNING":
                client.update_run(run.info.run_id, status="RUNNING")

    def end(self, run_id: str, status: str = "FINISHED") -> None:
        """Close a run: FINISHED, FAILED or KILLED."""
        client = self.connection.open()
        with self.connection.explained():
            client.set_terminated(run_id, status)

    def withdraw(self, run_id: str) -> None:
        """Delete an unfinished run that another made superfluous, if this experiment has it."""
        if self._unfinished(run_id) is not None:
            self.delete(run_id)

    def take_back(self, record: Record) -> bool:
        """Delete the runs of a record that this process made, finished or not; whether none of another is left."""
        ours = marks()[Tag.PROCESS]
        none_left = True
        for run in Reader(self.connection).search({Tag.RECORD: record.tags[Tag.RECORD]}):
            if run.tags.get(Tag.PROCESS) == ours:
                self.delete(run.run_id)
            else:  # of another import of the same measurement, at the same time or before
                none_left = False
        return none_left

    def delete(self, run_id: str) -> None:
        """Delete a run, whatever its state; MLflow keeps it among the deleted until `mlflow gc`."""
        client = self.connection.open()
        with self.connection.explained():
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
        model: Pointer | None = None,
    ) -> None:
        """Log params, metrics, curves by step, and tags.

        Only finite numbers are logged; MLflow would turn an infinity into 1.8e308. Numbers logged again with the same
        time change nothing. A param keeps its first value, as MLflow demands: where a continued measurement has
        another (of the engine, or of the device), it is logged as tag `rbptrack.later/<param>`.

        Curves are numbers by step; `step` is the metrics'. `at` is in seconds since 1970, by default now. `model`: what
        the metrics point to.
        """
        refuse_known({**(params or {}), **(tags or {})})
        now = int((at or time.time()) * 1000)
        make = model.metric if model else Metric
        rows = [make(k, float(v), now, step) for k, v in (metrics or {}).items() if math.isfinite(v)]
        for key, curve in (curves or {}).items():
            rows += [Metric(key, float(v), now, k) for k, v in curve.items() if math.isfinite(v)]
        client = self.connection.open()
        with self.connection.explained():
            new_params, later = _params_to_log(client, run_id, params or {})
            entries = [RunTag(k, v) for k, v in {**(tags or {}), **later}.items()]
            calls = max(math.ceil(len(rows) / _METRICS), math.ceil(max(len(new_params), len(entries)) / _OTHERS))
            for call in range(calls):  # as few as MLflow allows: each is a transaction that waits for the disk
                client.log_batch(
                    run_id,
                    metrics=rows[call * _METRICS :][:_METRICS],
                    params=new_params[call * _OTHERS :][:_OTHERS],
                    tags=entries[call * _OTHERS :][:_OTHERS],
                )

    def log_folder(self, run_id: str, folder: Path) -> None:
        """Log every file under a folder as an artifact of the run, with its relative path."""
        client = self.connection.open()
        with self.connection.explained(), self._on_disk(run_id):
            client.log_artifacts(run_id, str(folder))

    @contextmanager
    def _on_disk(self, run_id: str) -> Iterator[Path]:
        """Sync a run's new artifacts to the disk; yields their folder, which a server has elsewhere."""
        place = Path(Reader(self.connection).artifact_uri(run_id))
        made = [folder.parent for folder in place.parents[1:] if not folder.exists()]
        yield place
        if place.is_absolute() and place.is_dir():
            sync_tree(place, above=[*place.parents[:2], *made])  # the run's and the experiment's, for their names

    def deliver(self, record: Record, folder: Path, run_id: str = "") -> str:
        """Log a finished measurement, complete, into the run that it began or a new one; returns the run's id.

        May be called again after a failure at any point: logged data stays as it is, and a record is delivered once.
        """
        reader = Reader(self.connection)
        same = {Tag.RECORD: record.tags[Tag.RECORD]}
        for delivered in reader.search(same, status="FINISHED"):
            if not (folder / RANKS).exists() or reader.has_ranks(delivered):
                return delivered.run_id
        begun = [run_id] if run_id else [run.run_id for run in reader.search(same)]
        unfinished = list(filter(None, map(self._unfinished, begun)))
        for other in unfinished[1:]:  # of this process: it asked for a run, and the answer was lost
            if other.data.tags.get(Tag.PROCESS) == marks()[Tag.PROCESS]:
                self.delete(other.info.run_id)
        if unfinished:
            run_id = str(unfinished[0].info.run_id)
            self._reopen(unfinished[0])
        else:
            run_id = self.begin(record.name, record.tags, started=record.started)
        tags = record.tags | color(record) | {Tag.NOTE: describe(record)}
        charted = {name: {0: value} for name, value in for_charts(record).items()}
        model = self._models.of(record)
        self.log(
            run_id,
            params=record.params,
            metrics=record.metrics,
            curves=record.curves | charted,
            tags=tags,
            at=record.ended,
            model=model,
        )
        client = self.connection.open()
        with self.connection.explained():
            dataset = [Dataset(source_type="rbptrack", **record.dataset)] if record.dataset else []
            inputs = [DatasetInput(used, [InputTag("mlflow.data.context", "evaluation")]) for used in dataset]
            if inputs or model:
                client.log_inputs(run_id, inputs, [LoggedModelInput(model.model_id)] if model else None)
            with self._on_disk(run_id) as place:
                log_artifacts(client, run_id, folder, place)
            client.set_terminated(run_id, "FINISHED")
        return run_id

    def take_back_models(self) -> None:
        """Delete the models that came with runs which were taken back."""
        self._models.take_back()

    def link_models(self, run_ids: Sequence[str]) -> None:
        """Let the metrics of finished measurements, of an earlier version's stores, point to their models."""
        for run_id in run_ids:
            self._models.link(run_id)

    def log_more(self, run_id: str, metrics: Mapping[str, float], *, tags: Mapping[str, str] | None = None) -> None:
        """Add numbers to a finished measurement, which point to its model as its first ones do."""
        client = self.connection.open()
        with self.connection.explained():
            model = pointer_of_run(client.get_run(run_id))
        self.log(run_id, metrics=metrics, tags=tags, model=model)

    def keep_scores(self, table: pd.DataFrame, name: str) -> bool:
        """Keep scores of tasks as a run of their own; False where the very same are kept already."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / SCORES_FILE
            table.to_csv(path, index=False)
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            if Reader(self.connection).search({Tag.RECORD: content}, status="FINISHED", limit=1):
                return False
            run_id = self.begin(f"scores {name}", scores_tags(content))
            self.log_folder(run_id, Path(folder))
            self.end(run_id)
        return True

    def save_view(self, view: Shown) -> str:
        """Save a view of some runs in MLflow's menu; returns its key, empty where writing is not allowed."""
        client = self.connection.open()
        experiment_id = self.connection.experiment_id
        key = view_key(view.name)
        tag = f"{VIEW_TAG}{key}"
        try:
            with self.connection.explained():
                before = client.get_experiment(experiment_id).tags.get(tag, "")
                value = preset(view, before)
                if value != before:
                    client.set_experiment_tag(experiment_id, tag, value)
        except BadInput:  # a reader without the right to write sees the plain page
            return ""
        return key


def _params_to_log(
    client: MlflowClient, run_id: str, params: Mapping[str, object]
) -> tuple[list[Param], dict[str, str]]:
    """Return the params that a run lacks, and as tags those that it has with another value."""
    logged = client.get_run(run_id).data.params if params else {}
    missing = [Param(k, str(v)) for k, v in params.items() if k not in logged]
    return missing, {f"{Tag.LATER}{k}": str(v) for k, v in params.items() if logged.get(k, str(v)) != str(v)}
