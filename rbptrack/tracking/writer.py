"""Write a run step by step (create it, log numbers, inputs and files, end it), and describe it in Markdown."""

from __future__ import annotations

import getpass
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rbptrack.base import markup
from rbptrack.base.files import sync, sync_tree
from rbptrack.base.formatting import counted
from rbptrack.base.secrets import without_password
from rbptrack.facts import COLUMNS
from rbptrack.ranks.names import metric_label, parse_rbp_name, rbp_name, se_name
from rbptrack.tracking import names
from rbptrack.tracking.artifacts import local_path
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import Tag
from rbptrack.tracking.record import Record

if TYPE_CHECKING:
    from mlflow.entities import Metric, RunInfo

_MAX_TAG_LENGTH = 8000  # largest number of characters in a tag of MLflow
_METRICS_OF_A_CALL = 900  # number of metrics in one request; MLflow accepts 1000
_PARAMS_OF_A_CALL = 100  # number of params in one request
_CE = names.Metric.CE
_K_OF_DESCRIPTIONS = 10  # k of the RBP_k in the description of a run


class RunWriter:
    """Writes the runs of one experiment.

    The caller must hold the lock of the connection. Then no other process that shares the lock is writing a run, and
    runs that were begun under it and are still RUNNING can be deleted safely.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._connection = experiment.connection

    def create(self, name: str, tags: Mapping[str, str], began: float) -> RunInfo:
        """Begin a run.

        Args:
            name: the name of the run.
            tags: the tags. Empty tags are left out, and long ones are shortened to what MLflow keeps.
            began: when the run began, in seconds since 1970.

        """
        experiment = self._experiment.find_or_create()
        own_tags = {"mlflow.user": _user(), "mlflow.source.name": "rbptrack", "mlflow.source.type": "LOCAL"}
        own_tags[Tag.WRITER] = self._connection.writer
        shortened = {key: shortened_text(value) for key, value in tags.items() if value}
        with self._connection.translated_errors():
            run = self._connection.client.create_run(
                experiment, start_time=int(began * 1000), run_name=name, tags=own_tags | shortened
            )
        return run.info

    def log(
        self, run_id: str, *, params: Mapping[str, str] | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Log params and metrics. The time of the metrics is now."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._log_batches(
            run_id, params or {}, [Metric(name, value, now, 0) for name, value in (metrics or {}).items()]
        )

    def log_record(self, run_id: str, record: Record, model_id: str | None) -> None:
        """Log the params, metrics and curves of a measurement.

        Args:
            run_id: the ID of the run.
            record: the record of the measurement.
            model_id: the ID of the LoggedModel that the metrics point to, or None. Curves do not point to it.

        """
        from mlflow.entities import Metric

        ended = int(record.ended * 1000)
        pointer: dict[str, Any] = {}
        if model_id:
            dataset = record.dataset
            pointer = {
                "model_id": model_id,
                "dataset_name": dataset.get("name"),
                "dataset_digest": dataset.get("digest"),
            }
        metrics = [Metric(name, record.metrics[name], ended, 0, **pointer) for name in sort_names(record.metrics)]
        for name, curve in record.curves.items():
            metrics += [Metric(name, value, ended, step) for step, value in curve]
        self._log_batches(run_id, {name: record.params[name] for name in sort_names(record.params)}, metrics)

    def _log_batches(self, run_id: str, params: Mapping[str, str], metrics: Sequence[Metric]) -> None:
        """Log params and metrics in as few requests as MLflow allows."""
        from mlflow.entities import Param

        entries = [Param(name, value) for name, value in params.items()]
        with self._connection.translated_errors():
            client = self._connection.client
            for first in range(0, len(entries), _PARAMS_OF_A_CALL):
                client.log_batch(run_id, params=entries[first : first + _PARAMS_OF_A_CALL])
            for first in range(0, len(metrics), _METRICS_OF_A_CALL):
                client.log_batch(run_id, metrics=metrics[first : first + _METRICS_OF_A_CALL])

    def log_inputs(self, run_id: str, record: Record, model_id: str | None) -> None:
        """Log the dataset and the LoggedModel of a measurement."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput

        datasets = []
        if record.dataset:
            dataset = Dataset(source_type="rbptrack", **record.dataset)
            datasets.append(DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")]))
        models = [LoggedModelInput(model_id)] if model_id else None
        if datasets or models:
            with self._connection.translated_errors():
                self._connection.client.log_inputs(run_id, datasets, models)

    def add_files(self, run: RunInfo, paths: Sequence[Path]) -> None:
        """Log files as artifacts, and sync those that are stored on this machine to disk.

        Call this before `end`. A run that is FINISHED then has all its files.
        """
        if not paths:
            return
        with self._connection.translated_errors():
            for path in paths:
                self._connection.client.log_artifact(run.run_id, str(path))
            location = local_path(run.artifact_uri)
            if location and location.is_dir():
                sync_tree(location)
                for folder in location.parents[:2]:
                    sync(folder)

    def end(self, run_id: str, status: str, ended: float) -> None:
        """End a run with the status FINISHED or FAILED. `ended` is in seconds since 1970."""
        with self._connection.translated_errors():
            self._connection.client.set_terminated(run_id, status, end_time=int(ended * 1000))

    def delete_unfinished(self, condition: str = "") -> None:
        """Delete the unfinished runs of processes that died while they held the lock that this process holds.

        Runs that were begun under another lock are left alone, because their processes may still be writing. If such a
        process died, its run stays RUNNING until a command that uses the same lock writes again, or until somebody
        deletes the run in MLflow. rbptrack reads only FINISHED runs.

        Args:
            condition: an additional condition of MLflow's filter, beginning with ` and `.

        """
        for run in self._experiment.search(f"attributes.status = 'RUNNING'{condition}"):
            if run.data.tags.get(Tag.WRITER) == self._connection.writer:
                self.delete(run.info.run_id)

    def delete(self, run_id: str) -> None:
        """Delete a run."""
        with self._connection.translated_errors():
            self._connection.client.delete_run(run_id)


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort names of metrics or params for people: CE, RBP_k by k, the order of the table of facts, all others.

    The order matters because MLflow's page of a run lists metrics in the order in which they were logged.
    """
    places = {name: place for place, name in enumerate(COLUMNS, start=1)}

    def key(name: str) -> tuple[int, int, bool]:
        metric = name.removesuffix("_se")
        k = 0 if metric == _CE else parse_rbp_name(metric)
        return places.get(metric, len(places)) if k is None else 0, k or 0, metric != name

    return sorted(names, key=key)


def describe(record: Record) -> str:
    """Describe a measurement in Markdown, for its page in MLflow: model, dataset, main numbers, and their origin."""
    tags = record.tags
    params = record.params
    lines = [f"**{markup.markdown_text(tags[Tag.MODEL])}** on **{markup.markdown_text(tags[Tag.DATASET])}**"]
    facts = []
    if "documents" in params:
        facts.append(counted(int(params["documents"]), "document"))
    if "num_tokens" in record.metrics:
        facts.append(counted(int(record.metrics["num_tokens"]), "scored token"))
    if "seq_len" in params:
        facts.append(f"sequences of {params['seq_len']} tokens ({params.get('sequence', 'unknown rule')})")
    if "dtype" in params:
        facts.append(f"weights {params['dtype']}")
    if facts:
        lines.append(", ".join(facts))
    numbers = [_with_error(name, record.metrics) for name in (names.Metric.CE, rbp_name(_K_OF_DESCRIPTIONS))]
    if any(numbers):
        lines.append(", ".join(filter(None, numbers)))
    for what, prefix, repo, commit in (
        ("Model", "", params.get("repo"), tags.get(Tag.COMMIT)),
        ("Dataset", "datasets/", params.get("dataset_repo"), params.get("dataset_commit")),
    ):
        if repo:
            revision = (commit or "").partition("@")[2] or "main"
            address = f"https://huggingface.co/{prefix}{quote(repo)}/tree/{quote(revision)}"
            lines.append(f"{what}: [{markup.markdown_text(repo)}]({address})")
    if Tag.IMPORTED in tags:
        source = tags.get(Tag.IMPORTED_FROM, "")
        lines.append(
            f"Imported ({tags[Tag.IMPORTED]} {markup.markdown_text(source)}). "
            "Values that are missing here were not in the imported source."
        )
    return "  \n".join(lines)


def _with_error(name: str, metrics: Mapping[str, float]) -> str:
    """Format a metric as `**RBP_10** 0.5120 ± 0.0040`.

    If the standard error is unknown, only the value is written. If the metric is unknown, the result is empty.
    """
    if name not in metrics:
        return ""
    error = metrics.get(se_name(name), 0.0)
    digits = max(3, 1 - math.floor(math.log10(error))) if error > 0 else 4
    spread = f" ± {error:.{digits}f}" if error > 0 else ""
    unit = " nats" if name == names.Metric.CE else ""
    return f"**{metric_label(name)}** {metrics[name]:.{digits}f}{spread}{unit}"


def shortened_text(text: str) -> str:
    """Remove passwords from a text, and shorten it to the length that MLflow keeps."""
    text = without_password(text)
    if len(text) <= _MAX_TAG_LENGTH:
        return text
    return text[: _MAX_TAG_LENGTH - 3] + "..."


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # in some containers the user has no name
        return "unknown"
