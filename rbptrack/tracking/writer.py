"""Single steps of writing a run: creating and ending it, numbers, inputs, files; and its description."""

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
from rbptrack.base.secrets import without_password
from rbptrack.base.words import counted
from rbptrack.facts import COLUMNS
from rbptrack.ranks.names import metric_label, parse_rbp_name, rbp_name, se_name
from rbptrack.tracking import names
from rbptrack.tracking.artifacts import local_path
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import Tag
from rbptrack.tracking.record import Record

if TYPE_CHECKING:
    from mlflow.entities import Metric, RunInfo

_MAX_TAG_LENGTH = 8000  # characters that MLflow keeps
_METRICS_OF_A_CALL = 900  # MLflow takes 1000
_PARAMS_OF_A_CALL = 100
_CE = names.Metric.CE
_K_OF_DESCRIPTIONS = 10  # of RBP_k, in the description of a run


class RunWriter:
    """Writes into one experiment.

    The caller holds the lock of the connection. Runs that this process began under it and that are still RUNNING can
    then be deleted safely.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._connection = experiment.connection

    def create(self, name: str, tags: Mapping[str, str], began: float) -> RunInfo:
        """Begin a run; of its tags those that say something, shortened to what MLflow keeps."""
        experiment = self._experiment.make()
        own = {"mlflow.user": _user(), "mlflow.source.name": "rbptrack", "mlflow.source.type": "LOCAL"}
        own[Tag.WRITER] = self._connection.writer
        shortened = {key: shortened_text(value) for key, value in tags.items() if value}
        with self._connection.explained():
            run = self._connection.client.create_run(
                experiment, start_time=int(began * 1000), run_name=name, tags=own | shortened
            )
        return run.info

    def log(
        self, run_id: str, *, params: Mapping[str, str] | None = None, metrics: Mapping[str, float] | None = None
    ) -> None:
        """Log params, and metrics of this moment."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._log_batches(
            run_id, params or {}, [Metric(name, value, now, 0) for name, value in (metrics or {}).items()]
        )

    def log_record(self, run_id: str, record: Record, model_id: str | None) -> None:
        """Log the params and numbers of a measurement; all but its curves point to its LoggedModel, if it has one."""
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
        metrics = [Metric(name, record.metrics[name], ended, 0, **pointer) for name in in_order(record.metrics)]
        for name, curve in record.curves.items():
            metrics += [Metric(name, value, ended, step) for step, value in curve]
        self._log_batches(run_id, {name: record.params[name] for name in in_order(record.params)}, metrics)

    def _log_batches(self, run_id: str, params: Mapping[str, str], metrics: Sequence[Metric]) -> None:
        """Log in as few calls as MLflow allows."""
        from mlflow.entities import Param

        entries = [Param(name, value) for name, value in params.items()]
        with self._connection.explained():
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
            with self._connection.explained():
                self._connection.client.log_inputs(run_id, datasets, models)

    def add_files(self, run: RunInfo, paths: Sequence[Path]) -> None:
        """Log artifacts, and sync them where they lie on this machine: before the run is FINISHED.

        MLflow reads the whole run for each file. Files are therefore added before the metrics.
        """
        if not paths:
            return
        with self._connection.explained():
            for path in paths:
                self._connection.client.log_artifact(run.run_id, str(path))
            location = local_path(run.artifact_uri)
            if location and location.is_dir():
                sync_tree(location)
                for folder in location.parents[:2]:
                    sync(folder)

    def end(self, run_id: str, status: str, ended: float) -> None:
        """End a run, FINISHED or FAILED."""
        with self._connection.explained():
            self._connection.client.set_terminated(run_id, status, end_time=int(ended * 1000))

    def delete_unfinished(self, condition: str = "") -> None:
        """Remove the runs that a process which died began under the lock that the caller holds.

        A run of another folder may be under way, and is left alone. That of a machine that died stays RUNNING until
        a command writes from that folder again, or somebody deletes it in MLflow; only FINISHED runs count anywhere.
        """
        for run in self._experiment.search(f"attributes.status = 'RUNNING'{condition}"):
            if run.data.tags.get(Tag.WRITER) == self._connection.writer:
                self.delete(run.info.run_id)

    def delete(self, run_id: str) -> None:
        """Remove a run that was not completed."""
        with self._connection.explained():
            self._connection.client.delete_run(run_id)


def in_order(names: Iterable[str]) -> list[str]:
    """Sort metrics or params as people read them: CE, RBP_k by k, then as in the table of facts, costs last.

    MLflow's page of a run lists metrics in the order in which they were logged.
    """
    places = {name: place for place, name in enumerate(COLUMNS, start=1)}

    def key(name: str) -> tuple[int, int, bool]:
        metric = name.removesuffix("_se")
        k = 0 if metric == _CE else parse_rbp_name(metric)
        return places.get(metric, len(places)) if k is None else 0, k or 0, metric != name

    return sorted(names, key=key)


def describe(record: Record) -> str:
    """Markdown for whoever meets a measurement's run in MLflow: what it is of, and where its numbers come from."""
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
            f"Imported ({tags[Tag.IMPORTED]} {markup.markdown_text(source)}); what is missing was not in the source."
        )
    return "  \n".join(lines)


def _with_error(name: str, metrics: Mapping[str, float]) -> str:
    """Return `**RBP_10** 0.512 ± 0.004`, without an error if there is none; empty if there is no such metric."""
    if name not in metrics:
        return ""
    error = metrics.get(se_name(name), 0.0)
    digits = max(3, 1 - math.floor(math.log10(error))) if error > 0 else 4
    spread = f" ± {error:.{digits}f}" if error > 0 else ""
    unit = " nats" if name == names.Metric.CE else ""
    return f"**{metric_label(name)}** {metrics[name]:.{digits}f}{spread}{unit}"


def shortened_text(text: str) -> str:
    """A text without passwords, and cut to what MLflow keeps."""
    text = without_password(text)
    if len(text) <= _MAX_TAG_LENGTH:
        return text
    return text[: _MAX_TAG_LENGTH - 3] + "..."


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container whose user has no name
        return "unknown"
