"""Find the runs of a store, and read them as measurements."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from rbptrack.base.errors import BadInput, MissingArtifact, first_line
from rbptrack.base.names import matches_patterns
from rbptrack.base.validation import broken_rules
from rbptrack.config.check import check_store
from rbptrack.console.output import print_problem
from rbptrack.measurement.build import same_number
from rbptrack.measurement.columns import DTYPE_BY_COLUMN
from rbptrack.measurement.document import FINGERPRINT_TAG, Measurement
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.ranks import rbp_ks, rbp_name, se_name
from rbptrack.tracking.artifacts import Artifacts
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.names import (
    DEFAULT_EXPERIMENT,
    MEASUREMENTS_NOTE,
    REPORTS_NOTE,
    REPORTS_SUFFIX,
    SCORES_FILE,
    Kind,
    Tag,
)

_FINISHED = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"
_MAX_SINGLE_SEARCHES = 3  # more fingerprints than this are not searched one by one; all measurements are read instead


class StoreReader(Artifacts):
    """Finds and reads the measurements in one MLflow experiment, and the reports in another one.

    Creating an object does not contact the server. Every method raises StoreAway if the store does not answer,
    StoreRefuses if it does not permit the access, and BadInput if it cannot be used for another reason.

    Args:
        uri: the address; empty for MLFLOW_TRACKING_URI or, if that is not set, for sqlite:///mlflow.db in this folder.
        experiment: the name of the experiment of measurements; empty for MLFLOW_EXPERIMENT_NAME or, if that is not set,
            for `rbptrack`.

    Attributes:
        measurements: the experiment of measurements.
        reports: the experiment of sweeps, analyses and scores.
        metric_names: the metrics of the measurements that were read.

    """

    def __init__(self, uri: str = "", experiment: str = "") -> None:
        experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or DEFAULT_EXPERIMENT
        check_store(uri, experiment)
        super().__init__(Connection(uri))
        self.measurements = Experiment(self.connection, experiment, MEASUREMENTS_NOTE)
        self.reports = Experiment(self.connection, experiment + REPORTS_SUFFIX, REPORTS_NOTE)
        self.metric_names: set[str] = set()

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

    def find(self, fingerprint: str) -> str | None:
        """Return the ID of the newest finished run with a fingerprint, or None if there is no such run."""
        run = self._find_newest(fingerprint)
        return run.info.run_id if run else None

    def find_equivalent(self, record: MeasurementRecord) -> str | None:
        """Return the ID of the newest finished run that is equivalent to a record, or None if there is no such run.

        A run with the record's fingerprint is equivalent, with one exception. The fingerprint of an import does not
        depend on the imported numbers. If the record is a later import with other numbers, it corrects the run, so the
        run is not equivalent.
        """
        run = self._find_newest(record.fingerprint)
        return run.info.run_id if run and is_equivalent(run, record) else None

    def find_all(self, fingerprints: Collection[str]) -> dict[str, str]:
        """Return the IDs of the newest finished runs by fingerprint. A fingerprint without a run is left out."""
        if len(fingerprints) <= _MAX_SINGLE_SEARCHES:
            run_ids = {fingerprint: self.find(fingerprint) or "" for fingerprint in fingerprints}
        else:
            run_ids = {run.data.tags.get(FINGERPRINT_TAG, ""): run.info.run_id for run in self.finished_runs()}
        return {fingerprint: run_ids[fingerprint] for fingerprint in fingerprints if run_ids.get(fingerprint)}

    def runs(self, filters: Filters = NO_FILTERS, *, run_ids: Sequence[str] | None = None) -> Runs:
        """Return finished measurements. Of several runs with one fingerprint, only the newest is used.

        Args:
            filters: the filters that measurements must pass. If `run_ids` is given, the filter `sweep` is not applied.
            run_ids: the IDs of the runs to choose from, or None for all runs.

        Raises:
            BadInput: nothing was measured yet, the store has none of `run_ids`, or no measurement passes the filters.

        """
        frame = self._frame(run_ids)
        if run_ids is not None and not len(frame):
            raise BadInput(
                f"the tracking store {self.shown_address} has none of the {len(run_ids)} runs with these IDs"
            )
        if not len(frame):
            raise self.no_measurement_error()
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
                self.metric_names |= run.data.metrics.keys()
                yield run

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks. Only the newest score of each model, revision and task is used.

        Raises MissingArtifact if a file of scores is damaged. If it were left out, older scores would count.
        """
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SCORES}'"
        tables = []
        for run in self.reports.search(condition):
            self.remember(run)
            tables.append(read_scores(self.recorded_file(run.info.run_id, SCORES_FILE)))
        if not tables:
            return pd.DataFrame(columns=list(SCORES))
        return pd.concat(tables, ignore_index=True).drop_duplicates(["model", "revision", "task"])

    def _find_newest(self, fingerprint: str) -> Any:
        """Return MLflow's newest run of a finished measurement with a fingerprint, or None."""
        condition = f"{_FINISHED} and tags.`{FINGERPRINT_TAG}` = '{fingerprint}'"
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

    def no_measurement_error(self) -> BadInput:
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


def is_equivalent(run: Any, record: MeasurementRecord) -> bool:
    """Return whether MLflow's finished run of a fingerprint is equivalent to a record (`Store.find_equivalent`)."""
    if not record.measurement.imported_as or int(record.began * 1000) <= run.info.start_time:
        return True
    stored = {name: value for name, value in run.data.metrics.items() if name not in record.curves}
    metrics = record.metrics
    if run.data.params != record.params or stored.keys() != metrics.keys():
        return False
    return all(same_number(value, metrics[name]) for name, value in stored.items())


def _rbp_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names rbp_<k> and rbp_<k>_se among the keys of rows, ascending in k."""
    names = {name for row in rows for name in row}
    columns = []
    for k in rbp_ks(names):
        columns += [name for name in (rbp_name(k), se_name(rbp_name(k))) if name in names]
    return columns


def read_scores(file: Path | io.StringIO) -> pd.DataFrame:
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
