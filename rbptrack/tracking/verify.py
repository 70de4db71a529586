"""Find alterations of a store: compare every run with its sealed record, its files with their hashes, and its ranks.

This does not protect against a person who can write to the store and compute a new seal.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import MissingArtifact, RbptrackError, StoreAway, first_line
from rbptrack.base.files import sha256
from rbptrack.ranks import RankHistogram, parse_rbp_name
from rbptrack.tracking.names import (
    CONFIG_FILE,
    COVERS_FILE,
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RANKS_FILE,
    RECORD_FILE,
    SCORES_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
    Kind,
    Metric,
    Tag,
)
from rbptrack.tracking.record import Record, compute_histogram, record_seal

if TYPE_CHECKING:
    from mlflow.entities import Run

    from rbptrack.tracking.artifacts import Artifacts
    from rbptrack.tracking.experiment import Experiment

TOLERANCE = 1e-9
"""The largest difference between a number and its value by the ranks. Sums in another order differ by less."""

_NOT_IN_RECORDS = (Tag.SEAL, Tag.WRITER)
_FILES_THAT_ARE_READ = (
    CONFIG_FILE, COVERS_FILE, DOCUMENTS_FILE, HISTOGRAM_FILE, RANKS_FILE, SCORES_FILE, TOKENS_FILE, UNSCORED_FILE,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A fault of a run that `verify` found.

    Attributes:
        run_id: the ID of the run.
        name: the name of the run, or the name of the sweep that lacks it.
        text: what is wrong.
        lost: whether the run is missing, not FINISHED any more, or in another experiment. It cannot be marked then.
        is_measurement: whether the run is a measurement. Other runs hold sweeps, analyses or scores.
        imported_from: the name of the file that the run was imported from. It is empty if the run was not imported.

    """

    run_id: str
    name: str
    text: str
    lost: bool = False
    is_measurement: bool = True
    imported_from: str = ""


def find_faults(store: Artifacts, measurements: Experiment, reports: Experiment) -> Iterator[Fault]:
    """Yield the differences between runs and their records, and the measurements of sweeps that are lost."""
    present: set[str] = set()
    sweeps: dict[str, str] = {}
    for experiment in (measurements, reports):
        for run in list(experiment.search("")):
            run_id = run.info.run_id
            name = run.info.run_name or ""
            tags = run.data.tags
            is_measurement = tags.get(Tag.KIND) == Kind.MEASUREMENT
            store.locations[run_id] = run.info.artifact_uri  # replaces an address that may be out of date
            if Tag.DAMAGED in tags:
                present.add(run_id)  # an earlier `verify --repair` reported it
            elif run.info.status != "FINISHED":
                if Tag.SEAL in tags and run.info.end_time:  # it is not being written, and it is not a failed cell
                    present.add(run_id)
                    text = f"its status is {run.info.status}; it was FINISHED"
                    yield Fault(run_id, name, text, lost=True, is_measurement=is_measurement)
            elif Tag.SEAL in tags or Tag.KIND in tags:  # runs of other programs have neither tag
                present.add(run_id)
                if tags.get(Tag.KIND) == Kind.SWEEP:
                    sweeps[run_id] = name
                if is_measurement != (experiment is measurements):
                    text = f"it was moved to the experiment {experiment.name}"
                    yield Fault(run_id, name, text, lost=True, is_measurement=is_measurement)
                imported_from = tags.get(Tag.IMPORTED_FROM, "")
                for text in differences_from_record(store, run):
                    yield Fault(run_id, name, text, is_measurement=is_measurement, imported_from=imported_from)
    yield from _lost_measurements(store, sweeps, present)


def _lost_measurements(store: Artifacts, sweeps: dict[str, str], present: set[str]) -> Iterator[Fault]:
    """Yield a fault for each measurement that a sweep used and that is not among the runs in `present`."""
    reported = set(present)
    for sweep, name in sweeps.items():
        try:
            covered = json.loads(store.artifact(sweep, COVERS_FILE).read_bytes())
        except (MissingArtifact, ValueError):  # a sweep without measurements; a damaged file is reported elsewhere
            continue
        for run_id in (run_id for run_id in covered if isinstance(run_id, str) and run_id not in reported):
            reported.add(run_id)
            yield Fault(run_id, name, f"this measurement of the sweep {_lost_run_state(store, run_id)}", lost=True)


def _lost_run_state(store: Artifacts, run_id: str) -> str:
    from mlflow.exceptions import MlflowException

    with store.connection.translated_errors():
        try:
            run = store.connection.client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return "is not in the store any more"
    if run.info.lifecycle_stage == "deleted":
        return f"was deleted: mlflow runs restore --run-id {run_id}"
    if Tag.SEAL not in run.data.tags:
        return "has lost its tags"
    return f"is {run.info.status} in the experiment {run.info.experiment_id}"


def differences_from_record(store: Artifacts, run: Run) -> Iterator[str]:
    """Yield the differences between a finished run and its record. Raises StoreAway if the store does not answer."""
    run_id = run.info.run_id
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            text = store.download(run_id, RECORD_FILE, folder).read_bytes()
            if record_seal(text) != run.data.tags.get(Tag.SEAL):
                yield f"{RECORD_FILE} does not match its seal"
                return
            record = Record.parse(text)
        except StoreAway:
            raise
        except (RbptrackError, OSError, ValueError, TypeError, KeyError) as error:
            yield f"{RECORD_FILE} cannot be read: {first_line(error)}"
            return
        yield from _differences("param", record.params, run.data.params)
        yield from _differences("metric", record.metrics, _own_single_metrics(run.data.metrics, record.curves))
        yield from _differences("tag", record.tags, _own_tags(run.data.tags))
        yield from _differences("time", _times(record.began, record.ended), _stored_times(run))
        yield from _differences("dataset", _named(record.dataset), _stored_datasets(run))
        yield from _altered_curves(store, run_id, record)
        for file in record.files:
            yield from _faults_of_file(store, run_id, file, record, folder)
        for file in _files_that_were_added(store, run_id, record):
            yield f"{file} was added"


def numbers_that_disagree(record: Record, ranks: Path) -> Iterator[str]:
    """Yield the numbers of a record (CE, RBP_k, tokens) that differ from those computed from its rank table."""
    histogram = compute_histogram(ranks)
    if record.metrics.get(Metric.NUM_TOKENS) != histogram.num_tokens:
        yield f"num_tokens is {record.metrics.get(Metric.NUM_TOKENS)}, but the ranks give {histogram.num_tokens}"
        return
    steps = dict(record.curves.get(Metric.RBP_CURVE, []))
    stored = [(name, value, _value_by_ranks(histogram, name)) for name, value in record.metrics.items()]
    stored += [(f"RBP_{k}", value, histogram.rbp(k)) for k, value in steps.items() if k <= histogram.vocab_size]
    for name, value, by_ranks in stored:
        if by_ranks is not None and not math.isclose(value, by_ranks, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{name} is {value}, but the ranks give {by_ranks}"


def _value_by_ranks(histogram: RankHistogram, name: str) -> float | None:
    """Compute CE or rbp_<k> from a histogram. Returns NaN if k exceeds the vocabulary, and None for other metrics."""
    if name == Metric.CE:
        return histogram.ce
    k = parse_rbp_name(name)
    if k is None:
        return None
    return histogram.rbp(k) if k <= histogram.vocab_size else math.nan


def _differences(what: str, sealed: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    for name in sorted(sealed.keys() | stored.keys()):
        if name not in stored or stored[name] is None:
            yield f"the {what} {name} is missing; it was {sealed[name]}"
        elif name not in sealed:
            yield f"the {what} {name} = {stored[name]} was added"
        elif stored[name] != sealed[name]:
            yield f"the {what} {name} is {stored[name]}; it was {sealed[name]}"


def _own_tags(tags: dict[str, str]) -> dict[str, str]:
    """Return the tags of rbptrack that a record holds. Users of MLflow may add other tags."""
    return {name: value for name, value in tags.items() if name.startswith(Tag.PREFIX) and name not in _NOT_IN_RECORDS}


def _times(began: float, ended: float) -> dict[str, int]:
    """Return the times of a run in milliseconds, the unit of MLflow."""
    return {"began": int(began * 1000), "ended": int(ended * 1000)}


def _stored_times(run: Run) -> dict[str, int]:
    return {"began": run.info.start_time, "ended": run.info.end_time}


def _named(dataset: dict[str, str]) -> dict[str, str]:
    """Return the digest of a record's dataset by name. The result is empty if the record has no dataset."""
    return {dataset["name"]: dataset["digest"]} if dataset else {}


def _stored_datasets(run: Run) -> dict[str, str]:
    """Return the digests of the run's datasets by name.

    Source and profile are not compared. MLflow keeps those of the first run that logged this name and digest.
    """
    inputs = run.inputs.dataset_inputs if run.inputs else []
    return {entry.dataset.name: entry.dataset.digest for entry in inputs}


def _files_that_were_added(store: Artifacts, run_id: str, record: Record) -> list[str]:
    """Return the files that rbptrack would read and that the record does not name. Other files are the user's own."""
    with store.connection.translated_errors():
        present = {entry.path for entry in store.connection.client.list_artifacts(run_id)}
    return sorted(present.intersection(_FILES_THAT_ARE_READ) - record.files.keys())


def _own_single_metrics(metrics: dict[str, float], curves: dict[str, Any]) -> dict[str, float]:
    """Return the metrics of rbptrack that have one value. MLflow's own metrics of the machine are left out."""
    return {name: value for name, value in metrics.items() if name not in curves and not name.startswith("system/")}


def _altered_curves(store: Artifacts, run_id: str, record: Record) -> Iterator[str]:
    for name, curve in record.curves.items():
        with store.connection.translated_errors():
            history = store.connection.client.get_metric_history(run_id, name)
        if sorted((point.step, point.value) for point in history) != sorted(curve):
            yield f"the curve {name} was altered"


def _faults_of_file(store: Artifacts, run_id: str, file: str, record: Record, folder: Path) -> Iterator[str]:
    """Fetch an artifact into a folder and yield its differences from the record."""
    try:
        path = store.download(run_id, file, folder)
    except MissingArtifact:
        yield f"{file} is missing"
        return
    if sha256(path) != record.files[file]:
        yield f"{file} is damaged"
    elif file == RANKS_FILE:
        yield from numbers_that_disagree(record, path)
    path.unlink()
