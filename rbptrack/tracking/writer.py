"""Write a run step by step: create it, log numbers, inputs and files, end it."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import RbptrackError, StoreRefuses
from rbptrack.base.files import sync, sync_tree
from rbptrack.base.secrets import without_password
from rbptrack.measurement.document import Measurement
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.tracking.artifacts import PARALLEL, artifact_repository, local_path
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Metric, Run, RunInfo

MAX_PARAM_LENGTH = 6000
"""The largest number of characters in a param of MLflow."""

_MAX_TAG_LENGTH = 8000  # largest number of characters in a tag of MLflow
_METRICS_PER_REQUEST = 890  # MLflow accepts 1000 metrics, params and tags together
_PARAMS_PER_REQUEST = 100  # MLflow accepts 100
_DIGEST_LENGTH = 8  # characters of the hash of the texts; the param documents_hash holds the whole hash


class RunWriter:
    """Writes the runs of one experiment.

    The caller must hold the connection's lock for writing. No other process then writes runs under this lock. A run
    that was begun under this lock and is still RUNNING is left over from a process that has ended.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._connection = experiment.connection

    @contextmanager
    def run(
        self, name: str, tags: Mapping[str, str], began: float, ended: float, status: str = "FINISHED"
    ) -> Iterator[RunInfo]:
        """Create a run for a block that logs its content, and end it. If the block fails, the run is discarded.

        Args:
            name: the name of the run.
            tags: the tags of the run, as in `create`.
            began: when the run began, in seconds since 1970.
            ended: when it ended, in seconds since 1970.
            status: the status after the block: FINISHED or FAILED.

        """
        run = self.create(name, tags, began)
        try:
            yield run
            self.end(run.run_id, status, ended)
        except BaseException:
            with suppress(RbptrackError):  # the process that writes next discards it (`discard_unfinished`)
                self.discard(run.run_id)
            raise

    def create(self, name: str, tags: Mapping[str, str], began: float) -> RunInfo:
        """Begin a run. Empty tags are left out, and long ones are shortened to the length that MLflow keeps."""
        experiment_id = self._experiment.find_or_create()
        all_tags = {
            "mlflow.user": _user_name(),
            "mlflow.source.name": "rbptrack",
            "mlflow.source.type": "LOCAL",
            Tag.WRITER: self._connection.lock_name,
        }
        all_tags |= {key: shorten(value) for key, value in tags.items() if value}
        with self._connection.translated_errors():
            run = self._connection.client.create_run(
                experiment_id, start_time=int(began * 1000), run_name=name, tags=all_tags
            )
        return run.info

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Log params, metrics and tags. The metrics get the present time."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        entities = [Metric(name, value, now, 0) for name, value in (metrics or {}).items()]
        self._log_batches(run_id, params or {}, entities, tags or {})

    def log_record(self, run_id: str, record: MeasurementRecord, model_id: str | None) -> None:
        """Log the params, metrics and curves of a measurement.

        Args:
            run_id: the ID of the run.
            record: the record of the measurement.
            model_id: the ID of the LoggedModel that the metrics point to, or None. Curves do not point to it.

        """
        from mlflow.entities import Metric

        ended = int(record.ended * 1000)
        model_and_dataset: dict[str, Any] = {}
        if model_id:
            dataset = dataset_input(record.measurement)
            model_and_dataset = {
                "model_id": model_id,
                "dataset_name": dataset.get("name"),
                "dataset_digest": dataset.get("digest"),
            }
        metrics = []
        for name, value in record.metrics.items():
            metrics.append(Metric(name, value, ended, 0, **model_and_dataset))
        for name, curve in record.curves.items():
            metrics += [Metric(name, value, ended, step) for step, value in curve.items()]
        self._log_batches(run_id, record.params, metrics, {})

    def _log_batches(
        self, run_id: str, params: Mapping[str, str], metrics: Sequence[Metric], tags: Mapping[str, str]
    ) -> None:
        from mlflow.entities import Param, RunTag

        entries = [Param(name, value) for name, value in params.items()]
        run_tags = [RunTag(name, shorten(value)) for name, value in tags.items()]
        requests = max(
            bool(run_tags), -(-len(entries) // _PARAMS_PER_REQUEST), -(-len(metrics) // _METRICS_PER_REQUEST)
        )
        with self._connection.translated_errors():
            for i in range(requests):
                self._connection.client.log_batch(
                    run_id,
                    params=entries[i * _PARAMS_PER_REQUEST : (i + 1) * _PARAMS_PER_REQUEST],
                    metrics=metrics[i * _METRICS_PER_REQUEST : (i + 1) * _METRICS_PER_REQUEST],
                    tags=run_tags if i == 0 else (),
                )

    def log_inputs(self, run_id: str, measurement: Measurement, model_id: str | None) -> None:
        """Log the dataset and the LoggedModel of a measurement."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

        datasets = []
        if values := dataset_input(measurement):
            dataset = Dataset(source_type="rbptrack", **values)
            datasets.append(DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")]))
        models = [LoggedModelInput(model_id)] if model_id else None
        if datasets or models:
            with self._connection.translated_errors():
                self._connection.client.log_inputs(run_id, datasets, models)

    def add_files(self, run: RunInfo, paths: Sequence[Path]) -> None:
        """Log files as artifacts. If the store keeps artifacts on this machine, wait until they are on the disk."""
        repository = artifact_repository(run.artifact_uri, self._connection)
        with self._connection.translated_errors():
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(repository.log_artifact, map(str, paths)))
            location = local_path(run.artifact_uri)
            if location and location.is_dir():
                sync_tree(location)
                for folder in location.parents[:2]:
                    sync(folder)

    def end(self, run_id: str, status: str, ended: float) -> None:
        """End a run with the status FINISHED or FAILED. `ended` is in seconds since 1970."""
        with self._connection.translated_errors():
            self._connection.client.set_terminated(run_id, status, end_time=int(ended * 1000))

    def discard_unfinished(self, runs: Iterable[Run]) -> None:
        """Discard runs whose process died while it held the lock that this process holds now.

        Runs that were begun under another lock are left alone, because their processes may still be writing. If such a
        process died, its run stays RUNNING until a process with that lock writes again, or until somebody deletes the
        run in MLflow. rbptrack reads only FINISHED runs.
        """
        for run in runs:
            if run.info.status == "RUNNING" and run.data.tags.get(Tag.WRITER) == self._connection.lock_name:
                self.discard(run.info.run_id)

    def discard(self, run_id: str) -> None:
        """Delete a run that was not completed. If the server does not let this user delete, the run becomes FAILED."""
        client = self._connection.client
        try:
            with self._connection.translated_errors():
                client.delete_run(run_id)
        except StoreRefuses:
            with self._connection.translated_errors():
                client.set_tag(run_id, Tag.FAILURE, "the process that logged this run was interrupted")
                client.set_terminated(run_id, "FAILED")


def dataset_input(measurement: Measurement) -> dict[str, str]:
    """Return name, digest, source and profile of MLflow's dataset. They are empty if the texts have no hash."""
    if not measurement.documents_hash:
        return {}
    return {
        "name": measurement.dataset,
        "digest": measurement.documents_hash[:_DIGEST_LENGTH],
        "source": json.dumps({"source": measurement.dataset_commit, "split": measurement.split}),
        "profile": json.dumps({"documents": measurement.documents, "scored_tokens": measurement.num_tokens}),
    }


def shorten(text: str, length: int = _MAX_TAG_LENGTH) -> str:
    """Remove passwords from a text, and shorten it to the length that MLflow keeps; by default, that of a tag."""
    text = without_password(text)
    return text if len(text) <= length else text[: length - 3] + "..."


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # in some containers the user has no name
        return "unknown"
