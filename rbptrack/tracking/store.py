"""Write measurements and reports to MLflow as runs, and read them.

A run is created only when its data are complete: a finished measurement, or the reason why a measurement failed.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from rbptrack.analysis.filters import NO_FILTERS, Filters
from rbptrack.analysis.rank_store import SCORES
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import (
    BadInput,
    MissingArtifact,
    RbptrackError,
    first_line,
    unknown_name,
)
from rbptrack.base.validation import broken_rules
from rbptrack.config.check import check_store
from rbptrack.config.patterns import matches_patterns
from rbptrack.console.output import print_problem
from rbptrack.measurement.build import same_number
from rbptrack.measurement.columns import DTYPE_BY_COLUMN
from rbptrack.measurement.document import FINGERPRINT_TAG, TAG_PREFIX, Label, Measurement, names_of, params_of, tags_of
from rbptrack.measurement.files import RECORD_FILE
from rbptrack.measurement.record import MeasurementRecord, ReportRecord
from rbptrack.ranks import rbp_ks, rbp_name, se_name
from rbptrack.tracking import view
from rbptrack.tracking.artifacts import Artifacts
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.models import LoggedModels
from rbptrack.tracking.names import (
    DEFAULT_EXPERIMENT,
    MEASUREMENTS_NOTE,
    PAGE_FILE,
    REPORTS_NOTE,
    REPORTS_SUFFIX,
    SCORES_FILE,
    Kind,
    Tag,
)
from rbptrack.tracking.verify import Fault, find_faults
from rbptrack.tracking.writer import MAX_PARAM_LENGTH, RunWriter, describe_measurement, shorten

_FINISHED = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"
_MAX_SINGLE_SEARCHES = 3  # more fingerprints than this are not searched one by one; all measurements are read instead
_FRESH_SECONDS = 60.0  # an answer of the store is used again for this time


class Store(Artifacts):
    """The measurements in one MLflow experiment, and the reports in another one.

    Creating a Store does not contact the server. Every method raises StoreAway if the store does not answer,
    StoreRefuses if it does not permit the access, and BadInput if it cannot be used for another reason.

    Args:
        uri: the address; empty for MLFLOW_TRACKING_URI or, if that is not set, for sqlite:///mlflow.db in this folder.
        experiment: the name of the experiment of measurements; empty for MLFLOW_EXPERIMENT_NAME or, if that is not set,
            for `rbptrack`.

    Attributes:
        measurements: the experiment of measurements.
        reports: the experiment of sweeps, analyses and scores.

    """

    def __init__(self, uri: str = "", experiment: str = "") -> None:
        experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or DEFAULT_EXPERIMENT
        check_store(uri, experiment)
        super().__init__(Connection(uri))
        self.measurements = Experiment(self.connection, experiment, MEASUREMENTS_NOTE)
        self.reports = Experiment(self.connection, experiment + REPORTS_SUFFIX, REPORTS_NOTE)
        self._measurement_writer = RunWriter(self.measurements)
        self._report_writer = RunWriter(self.reports)
        self._logged_models = LoggedModels(self.measurements)
        self._missing: set[str] = set()  # the fingerprints that the last `find_all` did not find
        self._asked = 0.0  # when this was
        self._metric_names: set[str] = set()  # of the measurements that were read

    @property
    def uri(self) -> str:
        """The address. The path of a SQLite file is absolute."""
        return self.connection.uri

    @property
    def shown_address(self) -> str:
        """The address for messages, without a password."""
        return self.connection.shown_address

    @property
    def experiment(self) -> str:
        """The name of the experiment of measurements."""
        return self.measurements.name

    def check_writable(self, datasets: Iterable[str] = ()) -> None:
        """Check that this user may write, by setting a tag of each experiment. Missing experiments are created.

        Args:
            datasets: the datasets that will be measured. The tag of the first experiment gives each one a colour.

        Raises:
            StoreRefuses: the store does not let this user write.
            StoreAway: the store does not answer.

        """
        with self.connection.write_lock():
            self.measurements.find_or_create()
            colours = view.with_colours(datasets, self.measurements.tags.get(Tag.COLOURS, ""))
            self.measurements.set_tag(Tag.COLOURS, json.dumps(colours), always=True)
            self.reports.describe()

    # Write measurements

    def find(self, fingerprint: str) -> str | None:
        """Return the ID of the newest finished run with a fingerprint, or None if there is no such run."""
        run = self._find_newest(FINGERPRINT_TAG, fingerprint)
        return run.info.run_id if run else None

    def find_equivalent(self, record: MeasurementRecord) -> str | None:
        """Return the ID of the newest finished run that is equivalent to a record, or None if there is no such run.

        A run with the record's fingerprint is equivalent, with one exception. The fingerprint of an import does not
        depend on the imported numbers. If the record is a later import with other numbers, it corrects the run, so the
        run is not equivalent.
        """
        run = self._find_newest(FINGERPRINT_TAG, record.fingerprint)
        return run.info.run_id if run and _is_equivalent(run, record) else None

    def find_all(self, fingerprints: Collection[str]) -> dict[str, str]:
        """Return the IDs of the newest finished runs by fingerprint. A fingerprint without a run is left out."""
        run_ids: dict[str, str] = {}
        if len(fingerprints) <= _MAX_SINGLE_SEARCHES:
            for fingerprint in fingerprints:
                run_id = self.find(fingerprint)
                if run_id:
                    run_ids[fingerprint] = run_id
        else:
            for run in self.measurements.search(_FINISHED):  # newest first
                fingerprint = run.data.tags.get(FINGERPRINT_TAG, "")
                if fingerprint in fingerprints:
                    run_ids.setdefault(fingerprint, run.info.run_id)
        self._missing = set(fingerprints) - run_ids.keys()
        self._asked = time.monotonic()
        return run_ids

    def was_missing(self, fingerprint: str) -> bool:
        """Return whether `find_all` looked for a fingerprint in the last minute, and did not find it."""
        return fingerprint in self._missing and time.monotonic() - self._asked < _FRESH_SECONDS

    def log(self, folder: Path, record: MeasurementRecord, seal: str, pictures: Sequence[Path] = ()) -> str:
        """Log a measurement as a run, unless the store has an equivalent run, and return the ID of the run.

        If the measurement was not forced, any equivalent run counts (`find_equivalent`). If it was forced, only the run
        with the record's seal counts. If logging fails, the incomplete run is deleted, or becomes FAILED. Incomplete
        runs of earlier attempts are treated in the same way. The caller must hold the lock of the connection.

        Args:
            folder: the folder with record.json and the files that it names.
            record: the content of record.json.
            seal: the seal of record.json.
            pictures: additional artifacts, which the record does not name.

        """
        measurement = record.measurement
        same = f"tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}' and tags.`{FINGERPRINT_TAG}` = '{record.fingerprint}'"
        runs = list(self.measurements.search(same))  # newest first
        finished = [run for run in runs if run.info.status == "FINISHED"]
        if measurement.forced:
            equivalent = [run for run in finished if run.data.tags.get(Tag.SEAL) == seal]
        else:
            equivalent = [run for run in finished[:1] if _is_equivalent(run, record)]
        writer = self._measurement_writer
        writer.discard_unfinished(runs)
        if equivalent:
            return str(equivalent[0].info.run_id)
        tags = {
            **record.tags(),
            Tag.KIND: Kind.MEASUREMENT,
            Tag.SEAL: seal,
            Tag.NOTE: describe_measurement(measurement),
            view.COLOUR: self._colour(measurement.dataset),
        }
        run = writer.create(record.title, tags, record.began)
        run_id: str = run.run_id
        self.locations[run_id] = run.artifact_uri
        files = [folder / name for name in (*sorted(record.files), RECORD_FILE)]
        try:
            model_id = self._logged_models.find_or_create(measurement, run_id)
            writer.log_record(run_id, record, model_id)
            writer.log_inputs(run_id, measurement, model_id)
            writer.add_files(run, [*files, *pictures])
            writer.end(run_id, "FINISHED", record.ended)
        except BaseException:
            with suppress(RbptrackError):  # a run that cannot be discarded now is discarded by the next delivery
                writer.discard(run_id)
            raise
        self.keep_copies(run_id, files)
        return run_id

    def log_failure(self, name: str, description: Mapping[str, Any], reason: str) -> str:
        """Log a FAILED run for a measurement that failed, with the reason in a tag. Returns the ID of the run.

        Args:
            name: the name of the run.
            description: the fields of the measurement that are known.
            reason: why it failed.

        """
        writer = self._measurement_writer
        now = time.time()
        with self.connection.write_lock():
            tags = {**tags_of(description), Tag.KIND: Kind.MEASUREMENT, Tag.FAILURE: reason}
            run_id: str = writer.create(name, tags, now).run_id
            writer.log(run_id, params=params_of(description))
            writer.end(run_id, "FAILED", now)
        return run_id

    def relabel(self, runs: Runs, labels: Mapping[str, object]) -> list[str]:
        """Change labels of measurements, such as their family. Their numbers, fingerprints and seals stay.

        Args:
            runs: the measurements.
            labels: the new values by label: family, size, seed, checkpoint, training_tokens or dataset.

        Returns:
            A line for each measurement that changes: its old and its new name.

        Raises:
            BadInput: a name is not a label, or a value breaks its rule. Nothing is changed.

        """
        for name in labels:
            if name not in names_of(Label):
                raise unknown_name("label", name, names_of(Label))
        client = self.connection.client
        changes: list[tuple[Any, Measurement, Measurement]] = []
        run_ids = set(runs["run_id"])
        for run in self.finished_runs():
            if run.info.run_id in run_ids:
                old = Measurement.from_run(run.data.tags, run.data.params, run.data.metrics)
                try:
                    new = old.updated(labels)
                except ValidationError as error:
                    raise BadInput(next(broken_rules(error)).sentence) from error
                if new != old:
                    changes.append((run, old, new))
        lines = []
        with self.connection.write_lock(), self.connection.translated_errors():
            for run, old, new in changes:
                run_id = run.info.run_id
                tags = new.tags()
                for name in labels:
                    tag = TAG_PREFIX + name
                    if tag in tags:
                        client.set_tag(run_id, tag, tags[tag])
                    elif tag in run.data.tags:
                        client.delete_tag(run_id, tag)
                client.set_tag(run_id, Tag.NOTE, describe_measurement(new))
                client.set_tag(run_id, view.COLOUR, self._colour(new.dataset))
                client.update_run(run_id, name=new.title)
                lines.append(f"{old.title} -> {new.title}")
        return lines

    # Write sweeps, analyses and scores

    def save(
        self,
        kind: str,
        name: str,
        *,
        sweep: str = "",
        description: str = "",
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        tags: Mapping[str, str] | None = None,
        covered_run_ids: Sequence[str] = (),
        began: float = 0.0,
    ) -> str:
        """Save a sweep, an analysis or scores as a run in the experiment of reports. Returns the ID of the run.

        Args:
            kind: a value of `Kind`.
            name: the name of the run.
            sweep: the name of the sweep that the run belongs to.
            description: Markdown for the run's page. If the files include a page, a link to it is added.
            params: the params of the run. Empty ones are left out.
            metrics: the metrics of the run; all are finite.
            files: the contents of the artifacts, by file name.
            tags: additional tags.
            covered_run_ids: the run IDs of the measurements that a sweep or analysis used. `runs` reads
                this list to apply the filter `sweep`.
            began: when it began, in seconds since 1970; 0 for now.

        """
        all_tags = {Tag.KIND: kind, Tag.SWEEP: sweep, **(tags or {})}
        contents = dict(files or {})
        if covered_run_ids:
            all_tags[Tag.COVERS] = str(len(covered_run_ids))
        stored_tags = {tag: shorten(value) for tag, value in all_tags.items() if value}
        stored_params = {
            param: shorten(str(value), MAX_PARAM_LENGTH) for param, value in (params or {}).items() if value
        }
        writer = self._report_writer
        with self.connection.write_lock(), tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for file, content in contents.items():
                (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
            record = ReportRecord(
                name=name,
                stored_tags=stored_tags,
                stored_params=stored_params,
                stored_metrics=dict(metrics or {}),
                covered_run_ids=list(covered_run_ids),
                began=began or time.time(),
                ended=time.time(),
            )
            seal = record.write(folder)
            writer.discard_unfinished(self.reports.search("attributes.status = 'RUNNING'"))
            run = writer.create(name, stored_tags | {Tag.SEAL: seal}, record.began)
            run_id: str = run.run_id
            if PAGE_FILE in contents:
                page = f"#/experiments/{run.experiment_id}/runs/{run_id}/artifacts/{PAGE_FILE}"
                description = f"[Page with figures]({page})\n\n{description}"
            writer.add_files(run, [folder / file for file in (*contents, RECORD_FILE)])
            writer.log(run_id, params=stored_params, metrics=metrics, tags={Tag.NOTE: description})
            writer.end(run_id, "FINISHED", record.ended)
        self.locations[run_id] = run.artifact_uri
        return run_id

    def save_scores(self, table: pd.DataFrame, file_name: str) -> pd.DataFrame | None:
        """Save imported scores of tasks, unless the store already has all of them.

        Args:
            table: one row per score, with the columns `SCORES`.
            file_name: the name of the file that the scores come from.

        Returns:
            The scores that the store had before, or None if it has all of `table` already.

        """
        content = table[list(SCORES)].to_csv(index=False)
        scores = _read_scores(io.StringIO(content)).astype(str)
        earlier = self.scores()
        if len(scores.merge(earlier.astype(str))) == len(scores):
            return None
        tags = {Tag.IMPORTED_FROM: file_name}
        self.save(Kind.SCORES, f"scores {file_name}", files={SCORES_FILE: content}, tags=tags)
        return earlier

    def save_view(self) -> str:
        """Save the view *CE and RBP_k* in the Views menu of MLflow's page.

        Returns the end of the view's address, which follows the address of the server.
        """
        if not self._metric_names:
            list(self.finished_runs())
        with self.connection.write_lock():
            experiment_id = self.measurements.find_or_create()
            previous = self.measurements.tags.get(view.TAG, "")
            self.measurements.set_tag(view.TAG, view.view_tag(self._metric_names, previous))
        return view.view_address(experiment_id)

    def _colour(self, dataset: str) -> str:
        """Return the colour of a dataset's runs. A tag of the experiment keeps the colours of all datasets."""
        self.measurements.find_or_create()
        colours = view.with_colours([dataset], self.measurements.tags.get(Tag.COLOURS, ""))
        self.measurements.set_tag(Tag.COLOURS, json.dumps(colours))
        return colours[dataset]

    # Read

    def runs(self, filters: Filters = NO_FILTERS, *, run_ids: Sequence[str] | None = None) -> Runs:
        """Return finished measurements. Of several runs with one fingerprint, only the newest is used.

        Args:
            filters: the filters that measurements must pass. If `run_ids` is given, the filter `sweep` is not applied.
            run_ids: the IDs of the runs to choose from, or None for all runs.

        Raises:
            BadInput: nothing was measured yet, the store has none of `run_ids`, or no measurement passes the filters.

        """
        frame = self._frame(run_ids)
        if run_ids is not None:
            if not len(frame):
                raise BadInput(
                    f"the tracking store {self.shown_address} has none of the {len(run_ids)} runs with these IDs"
                )
        if not len(frame):
            raise self._no_measurement_error()
        ordered = frame.sort_values(["family", "non_embedding_params", "dataset"], kind="stable", na_position="last")
        runs = Runs(ordered, self)
        if filters.sweep and run_ids is None:
            runs = runs[self._belong_to_sweeps(runs.frame, filters.sweep)]
        return runs.select(replace(filters, sweep=()))

    def _frame(self, run_ids: Sequence[str] | None) -> pd.DataFrame:
        """Return the finished measurements (with these IDs) as a frame. A run that breaks a rule is left out."""
        rows = []
        for run in self.finished_runs(run_ids):
            try:
                measurement = Measurement.from_run(run.data.tags, run.data.params, run.data.metrics)
                started = pd.Timestamp(index(run.info.start_time), unit="ms", tz="UTC")
            except (ValueError, TypeError, OverflowError) as error:
                rule = "its start time is not a time"
                if isinstance(error, ValidationError):
                    rule = next(broken_rules(error)).sentence
                print_problem(f"run {run.info.run_id} is left out: {rule}")
                continue
            rows.append(measurement.columns() | {"run_id": run.info.run_id, "started": started})
        return pd.DataFrame(rows).reindex(columns=[*DTYPE_BY_COLUMN, *_rbp_columns(rows)])

    def finished_runs(self, run_ids: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield MLflow's runs of finished measurements, newest first. Of each fingerprint, only the newest is used.

        Args:
            run_ids: the IDs of the runs to choose from, or None for all runs.

        """
        condition = _FINISHED
        if run_ids is not None:
            if not run_ids:
                return
            condition += f" and attributes.run_id IN ({', '.join(map(repr, run_ids))})"
        seen = set()
        for run in self.measurements.search(condition):
            fingerprint = run.data.tags.get(FINGERPRINT_TAG) or run.info.run_id
            if fingerprint not in seen:
                seen.add(fingerprint)
                self.remember(run)
                self._metric_names |= run.data.metrics.keys()
                yield run

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks. Only the newest score of each model, revision and task is used.

        Raises MissingArtifact if a file of scores is damaged. If it were left out, older scores would count.
        """
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SCORES}'"
        tables = []
        for run in self.reports.search(condition):
            self.remember(run)
            tables.append(_read_scores(self.recorded_file(run.info.run_id, SCORES_FILE)))
        if not tables:
            return pd.DataFrame(columns=list(SCORES))
        return pd.concat(tables, ignore_index=True).drop_duplicates(["model", "revision", "task"])

    def verify(self, *, repair: bool = False, since: float = 0.0) -> Iterator[Fault]:
        """Compare every run with its sealed record, and its numbers with its ranks. Yields the faults.

        Args:
            repair: whether to mark damaged runs after all faults were yielded. The next sweep measures the marked
                measurements again. Marked imports can be imported again.
            since: only runs that began at this time or later are compared, in seconds since 1970.

        Raises:
            BadInput: the store or the experiment does not exist.

        """
        if not self.connection.exists or self.measurements.find() is None:
            raise self._no_measurement_error()
        faults_by_run: dict[str, list[str]] = {}
        for fault in find_faults(self, self.measurements, self.reports, since):
            yield fault
            if fault.kind == "damaged":
                faults_by_run.setdefault(fault.run_id, []).append(fault.text)
        if repair:
            client = self.connection.client
            with self.connection.translated_errors():
                for run_id, texts in faults_by_run.items():
                    client.set_tag(run_id, Tag.DAMAGED, shorten("; ".join(texts)))
                    client.update_run(run_id, status="FAILED")  # a FAILED run is no longer read

    def _find_newest(self, tag: str, value: str) -> Any:
        """Return MLflow's newest run of a finished measurement with this value of a tag, or None."""
        condition = f"{_FINISHED} and tags.`{tag}` = '{value}'"
        return next(iter(self.measurements.search(condition, max_runs=1)), None)

    def _belong_to_sweeps(self, frame: pd.DataFrame, patterns: Sequence[str]) -> pd.Series[bool]:
        """Return for each measurement whether sweeps made or reused it, by patterns of the sweeps' names.

        Raises BadInput if there are no such measurements.
        """
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SWEEP}'"
        reused: set[str] = set()
        for run in self.reports.search(condition):
            if Tag.COVERS in run.data.tags and matches_patterns([run.data.tags.get(Tag.SWEEP, "")], patterns):
                self.remember(run)
                reused |= set(self.covered_run_ids(run.info.run_id))
        is_made = frame["sweep"].fillna("").map(lambda name: matches_patterns([name], patterns))
        belongs: pd.Series[bool] = frame["run_id"].isin(reused) | is_made.astype(bool)
        if not belongs.any():
            newest_first = frame.sort_values("started", ascending=False)["sweep"].dropna().unique()
            names = ", ".join(map(str, newest_first[:10])) or "none"
            raise BadInput(
                f"no measurement has sweep={','.join(patterns)}. Sweeps of the store, the newest first: {names}"
            )
        return belongs

    def _no_measurement_error(self) -> BadInput:
        """Return the error that says why there are no measurements."""
        if not self.connection.exists:
            return BadInput(f"there is no tracking store {self.shown_address} yet: measure something first")
        store = f"the tracking store {self.shown_address}"
        if self.measurements.find() is None:
            names = ", ".join(self.connection.experiment_names()) or "none"
            return BadInput(f"{store} has no experiment {self.experiment}. Experiments: {names}")
        return BadInput(
            f"{store} has no finished measurement in the experiment {self.experiment}: measure something first"
        )


def _is_equivalent(run: Any, record: MeasurementRecord) -> bool:
    """Return whether MLflow's finished run of a fingerprint is equivalent to a record (`Store.find_equivalent`)."""
    if not record.measurement.imported_as or int(record.began * 1000) <= run.info.start_time:
        return True
    stored = {name: value for name, value in run.data.metrics.items() if name not in record.curves()}
    metrics = record.metrics()
    if run.data.params != record.params() or stored.keys() != metrics.keys():
        return False
    return all(same_number(value, metrics[name]) for name, value in stored.items())


def _rbp_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names rbp_<k> and rbp_<k>_se among the keys of rows, ascending in k."""
    names = {name for row in rows for name in row}
    columns = []
    for k in rbp_ks(names):
        columns += [name for name in (rbp_name(k), se_name(rbp_name(k))) if name in names]
    return columns


def _read_scores(file: Path | io.StringIO) -> pd.DataFrame:
    """Read a table of scores. Raises MissingArtifact if a column is missing, or holds something else than numbers."""
    texts = dict.fromkeys(("model", "revision", "task"), str)
    try:
        table = pd.read_csv(file, dtype=texts, keep_default_na=False)[list(SCORES)]
        numbers = pd.to_numeric(table["score"])
        pd.to_numeric(table["n"].replace("", 0))
    except (KeyError, ValueError) as error:
        raise MissingArtifact(f"{SCORES_FILE} is damaged ({first_line(error)})") from error
    if not np.isfinite(numbers.astype(float)).all():
        raise MissingArtifact(f"{SCORES_FILE} is damaged: a score is not a finite number")
    return table
