"""Find changes in a store: compare runs with their sealed records, files with their hashes, and metrics with ranks.

A person who can write to the store can change a run and compute a new seal. Such a change is not found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rbptrack.base.errors import (
    BadInput,
    FileAccessError,
    MissingArtifact,
    RbptrackError,
    StoreAway,
    file_access_error,
    first_line,
)
from rbptrack.base.files import sha256
from rbptrack.measurement.build import faults_of_ranks
from rbptrack.measurement.document import FINGERPRINT_TAG, TAG_PREFIX, names_of
from rbptrack.measurement.files import MEASUREMENT_FILES, RANKS_FILE, RECORD_FILE
from rbptrack.measurement.parts import Label
from rbptrack.measurement.record import MeasurementRecord, Record, parse_record, read_record, record_seal
from rbptrack.tracking.names import SCORES_FILE, Kind, Tag
from rbptrack.tracking.writer import dataset_input

if TYPE_CHECKING:
    from mlflow.entities import Run

    from rbptrack.tracking.artifacts import Artifacts
    from rbptrack.tracking.experiment import Experiment

_NOT_COMPARED = frozenset(
    {Tag.SEAL, Tag.WRITER, Tag.DAMAGED, Tag.TRAINING_RUN, *(TAG_PREFIX + label for label in names_of(Label))}
)
"""Tags that are not in records, and labels, which everybody may change."""


@dataclass(frozen=True)
class Fault:
    """A fault of a run that `verify` found.

    Attributes:
        run_id: the ID of the run.
        name: the name of the run. For a missing measurement of a sweep, the name of the sweep.
        text: what is wrong.
        kind: "damaged" if the run differs from its record. `verify --repair` marks only such runs. "lost" if the run is
            missing, no longer FINISHED, or in another experiment. "unreadable" if the operating system cannot read one
            of its files, or memory runs out. "superseded" if the run is undamaged, but a newer run of the same
            measurement counts.
        is_measurement: whether the run is a measurement. Other runs hold sweeps, analyses or scores.
        imported_from: the name of the file from which the run was imported; empty if it was not imported.

    """

    run_id: str
    name: str
    text: str
    kind: Literal["damaged", "lost", "unreadable", "superseded"] = "damaged"
    is_measurement: bool = True
    imported_from: str = ""


def find_faults(store: Artifacts, measurements: Experiment, reports: Experiment, since: float = 0.0) -> Iterator[Fault]:
    """Yield the faults of all runs of the two experiments, and a fault for each lost measurement of a sweep.

    Args:
        store: the store.
        measurements: the experiment of measurements.
        reports: the experiment of sweeps, analyses and scores.
        since: only runs that began at this time or later are compared with their records, in seconds since 1970.

    """
    newest: dict[str, Run] = {}  # by fingerprint
    finished: set[str] = set()
    name_of_sweep: dict[str, str] = {}
    for experiment in (measurements, reports):
        for run in list(experiment.search("")):
            run_id = run.info.run_id
            store.remember(run)  # replaces an address that may be out of date
            if not _was_finished(run):
                continue
            finished.add(run_id)
            if Tag.DAMAGED in run.data.tags and run.info.status == "FAILED":
                continue  # an earlier `verify --repair` reported its faults, and nothing reads the run
            if run.data.tags.get(Tag.KIND) == Kind.SWEEP and run.info.status == "FINISHED":
                name_of_sweep[run_id] = run.info.run_name or ""
            start_time = run.info.start_time
            if isinstance(start_time, int) and start_time < since * 1000:
                continue
            yield from _faults_of_run(store, run, experiment, measurements)
            fingerprint = run.data.tags.get(FINGERPRINT_TAG, "") if run.info.status == "FINISHED" else ""
            if fingerprint and newest.setdefault(fingerprint, run) is not run:  # the newest comes first
                text = (
                    f"the newer run {newest[fingerprint].info.run_id} of the same measurement counts, this one does not"
                )
                yield Fault(run_id, run.info.run_name or "", text, kind="superseded")
    yield from _lost_measurements(store, name_of_sweep, finished)


def _was_finished(run: Run) -> bool:
    """Return whether rbptrack finished a run, whatever its status is now.

    Return False for a run that is being written (it has no end time), the run of a failed cell (no seal), a run whose
    process was interrupted, and a run of another program (no seal and no kind).
    """
    tags = run.data.tags
    if run.info.status == "FINISHED":
        return bool({Tag.DAMAGED, Tag.SEAL, Tag.KIND} & tags.keys())
    was_discarded = run.info.status == "FAILED" and Tag.FAILURE in tags
    return Tag.DAMAGED in tags or (Tag.SEAL in tags and bool(run.info.end_time) and not was_discarded)


def _faults_of_run(store: Artifacts, run: Run, experiment: Experiment, measurements: Experiment) -> Iterator[Fault]:
    """Yield the faults of a run of an experiment: its status, the experiment, and differences from its record."""
    tags = run.data.tags
    is_measurement = tags.get(Tag.KIND) == Kind.MEASUREMENT
    imported_from = tags.get(Tag.IMPORTED_FROM, "") or run.data.params.get("imported_from", "")
    fault = Fault(run.info.run_id, run.info.run_name or "", "", is_measurement=is_measurement)
    if run.info.status != "FINISHED":
        yield replace(fault, text=f"its status is {run.info.status}; it was FINISHED", kind="lost")
        return
    if is_measurement != (experiment is measurements):
        yield replace(fault, text=f"it was moved to the experiment {experiment.name}", kind="lost")
    try:
        for text in _differences_from_record(store, run):
            yield replace(fault, text=text, imported_from=imported_from)
    except (StoreAway, BadInput):  # the store cannot be used
        raise
    except Exception as error:
        if access_error := file_access_error(error, fault.name):
            yield replace(fault, text=str(access_error), kind="unreadable")
        elif isinstance(error, RbptrackError):
            yield replace(fault, text=first_line(error), imported_from=imported_from)
        else:  # perhaps memory ran out: `verify --repair` must not mark the run
            text = f"it cannot be compared with its record ({type(error).__name__}: {first_line(error)})"
            yield replace(fault, text=text, kind="unreadable")


def _lost_measurements(store: Artifacts, name_of_sweep: dict[str, str], finished: set[str]) -> Iterator[Fault]:
    """Yield a fault for each measurement that a sweep used and that is not in `finished`."""
    reported: set[str] = set()
    for sweep_id, sweep_name in name_of_sweep.items():
        try:
            run_ids = store.covered_run_ids(sweep_id)
        except (MissingArtifact, FileAccessError):  # `_faults_of_run` reports this fault
            continue
        for run_id in run_ids:
            if run_id not in finished and run_id not in reported:
                reported.add(run_id)
                text = f"this measurement of the sweep {_lost_run_state(store, run_id)}"
                yield Fault(run_id, sweep_name, text, kind="lost")


def _lost_run_state(store: Artifacts, run_id: str) -> str:
    """Return the end of a sentence that says what happened to a run, such as `is not in the store any more`."""
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


def _differences_from_record(store: Artifacts, run: Run) -> Iterator[str]:
    """Yield the differences between a finished run and its record.

    Raises RbptrackError if the run or one of its files is damaged, and FileAccessError if a file cannot be read.
    """
    run_id = run.info.run_id
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        content = read_record(store.download(run_id, [RECORD_FILE], folder)[RECORD_FILE])
        if record_seal(content) != run.data.tags.get(Tag.SEAL):
            yield f"{RECORD_FILE} does not match its seal"
            return
        record = parse_record(content)
        yield from _changed_facts(run, record)
        for name, curve in record.curves.items():
            with store.connection.translated_errors():
                history = store.connection.client.get_metric_history(run_id, name)
            if sorted((point.step, point.value) for point in history) != sorted(curve.items()):
                yield f"the curve {name} was altered"
        stored_files = store.list_files(run_id)
        damaged = list(_faults_of_files(store, run_id, record, stored_files, folder))
        yield from damaged
        # Users may add files with other names.
        for file in sorted(stored_files.intersection([*MEASUREMENT_FILES, SCORES_FILE]) - record.files.keys()):
            yield f"{file} was added"
        if isinstance(record, MeasurementRecord) and RANKS_FILE in record.files and not damaged:
            yield from faults_of_ranks(record.measurement, folder)


def _changed_facts(run: Run, record: Record) -> Iterator[str]:
    """Yield the differences between a run and its record in params, metrics, tags, times and the dataset."""
    curves = record.curves
    yield from _changed_values("param", record.params, run.data.params)
    metrics = {
        name: value
        for name, value in run.data.metrics.items()
        if name not in curves and not name.startswith("system/")  # MLflow may add metrics of the machine
    }
    yield from _changed_values("metric", record.metrics, metrics)
    # Users may add other tags.
    tags = {name: value for name, value in run.data.tags.items() if name.startswith(TAG_PREFIX)}
    sealed_tags = record.tags
    if isinstance(record, MeasurementRecord):
        sealed_tags[Tag.KIND] = Kind.MEASUREMENT
    yield from _changed_values("tag", _without_labels(sealed_tags), _without_labels(tags))
    sealed_times = {"began": int(record.began * 1000), "ended": int(record.ended * 1000)}  # MLflow keeps milliseconds
    yield from _changed_values("time", sealed_times, {"began": run.info.start_time, "ended": run.info.end_time})
    # Source and profile are not compared: MLflow keeps those of the first run with a dataset of this name and digest.
    dataset = dataset_input(record.measurement) if isinstance(record, MeasurementRecord) else {}
    inputs = run.inputs.dataset_inputs if run.inputs else []
    digests = {"digest": ", ".join(entry.dataset.digest for entry in inputs)} if inputs else {}
    yield from _changed_values("dataset", {"digest": dataset["digest"]} if dataset else {}, digests)


def _without_labels(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in tags.items() if name not in _NOT_COMPARED}


def _changed_values(kind: str, sealed: dict[str, Any], stored: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each value that differs between a record (`sealed`) and the store (`stored`)."""
    for name in sorted(sealed.keys() | stored.keys()):
        if name not in stored or stored[name] is None:
            yield f"the {kind} {name} is missing; it was {sealed[name]}"
        elif name not in sealed:
            yield f"the {kind} {name} = {stored[name]} was added"
        elif stored[name] != sealed[name]:
            yield f"the {kind} {name} is {stored[name]}; it was {sealed[name]}"


def _faults_of_files(
    store: Artifacts, run_id: str, record: Record, stored_files: Set[str], folder: Path
) -> Iterator[str]:
    """Yield the differences between artifacts and the record.

    Artifacts on a server are downloaded into a folder. Artifacts on this machine are linked there.
    """
    for file in sorted(record.files.keys() - stored_files):
        yield f"{file} is missing"
    paths = store.download(run_id, record.files.keys() & stored_files, folder)
    for file, path in sorted(paths.items()):
        try:
            if sha256(path) != record.files[file]:
                yield f"{file} is damaged"
        except BadInput as error:  # it is not a regular file
            yield first_line(error)
        if path.parent != folder:
            (folder / file).symlink_to(path.absolute())
