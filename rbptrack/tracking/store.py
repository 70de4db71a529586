"""Write measurements and reports to MLflow as runs, and read them.

A run is created only when its data are complete: a finished measurement, or the reason why a measurement failed.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from rbptrack.analysis.rank_store import SCORES
from rbptrack.analysis.runs import NO_FILTERS, Filters, Runs
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.base.files import sha256
from rbptrack.config.check import check_store
from rbptrack.config.patterns import matches_patterns
from rbptrack.tracking import view
from rbptrack.tracking.artifacts import Artifacts
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.experiment import Experiment
from rbptrack.tracking.models import Models
from rbptrack.tracking.names import (
    COVERS_FILE,
    EXPERIMENT,
    RECORD_FILE,
    REPORTS,
    SCORES_FILE,
    SEAL_FILE,
    Kind,
    Tag,
)
from rbptrack.tracking.record import Record, record_seal
from rbptrack.tracking.rows import runs_frame
from rbptrack.tracking.verify import Fault, find_faults
from rbptrack.tracking.writer import RunWriter, describe, shortened_text

_FINISHED = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"
_ONE_BY_ONE = 20  # up to this number, fingerprints are searched one by one; for more, all measurements are read once


class Store(Artifacts):
    """The measurements in one MLflow experiment, and the reports in another one.

    Creating a Store does not contact the server. Every method raises StoreAway if the store does not answer,
    StoreRefuses if it does not permit the access, and BadInput if it cannot be used for another reason.

    Args:
        uri: the address; empty means MLFLOW_TRACKING_URI, or else MLflow's default in this folder, sqlite:///mlflow.db.
        experiment: the name of the experiment of measurements; empty means MLFLOW_EXPERIMENT_NAME, or else `rbptrack`.

    Attributes:
        measurements: the experiment of measurements.
        reports: the experiment of sweeps, analyses and scores.

    """

    def __init__(self, uri: str = "", experiment: str = "") -> None:
        experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "") or EXPERIMENT
        check_store(uri, experiment)
        super().__init__(Connection(uri))
        self.measurements = Experiment(self.connection, experiment)
        self.reports = Experiment(self.connection, experiment + REPORTS)
        self._writer = RunWriter(self.measurements)
        self._report_writer = RunWriter(self.reports)

    @property
    def uri(self) -> str:
        """The address. The path of a SQLite file is absolute."""
        return self.connection.uri

    @property
    def shown(self) -> str:
        """The address without a password."""
        return self.connection.shown

    @property
    def experiment(self) -> str:
        """The name of the experiment of measurements."""
        return self.measurements.name

    def check_writable(self) -> None:
        """Create the experiments if they do not exist, and check that the store lets this user write."""
        with self.connection.write_lock():
            self.measurements.check_writable()
            self.reports.check_writable()

    # Write measurements

    def find(self, fingerprint: str) -> str | None:
        """Return the ID of the newest finished run with a fingerprint, or None if there is no such run."""
        run = self._newest(fingerprint)
        return run.info.run_id if run else None

    def find_same(self, record: Record) -> str | None:
        """Return the ID of the newest finished run that is equivalent to a record, or None if there is no such run.

        A run with the same fingerprint is equivalent, unless the record is a newer import with other numbers. The
        fingerprint of imported numbers does not depend on the numbers, so such a record is logged as a correction.
        """
        run = self._newest(record.fingerprint)
        if run is None:
            return None
        if "imported" in record.identity and int(record.began * 1000) > run.info.start_time:
            numbers = {name: value for name, value in run.data.metrics.items() if name not in record.curves}
            if (numbers, run.data.params) != (record.metrics, record.params):
                return None
        run_id: str = run.info.run_id
        return run_id

    def find_all(self, fingerprints: Collection[str]) -> dict[str, str]:
        """Return the IDs of the newest finished runs by fingerprint. A fingerprint without a run is left out."""
        if len(fingerprints) <= _ONE_BY_ONE:
            run_ids = {fingerprint: self.find(fingerprint) for fingerprint in fingerprints}
            return {fingerprint: run_id for fingerprint, run_id in run_ids.items() if run_id}
        runs: dict[str, str] = {}
        for run in self.measurements.search(_FINISHED):  # newest first
            fingerprint = run.data.tags.get(Tag.FINGERPRINT, "")
            if fingerprint in fingerprints:
                runs.setdefault(fingerprint, run.info.run_id)
        return runs

    def find_delivered(self, record: Record, seal: str) -> str | None:
        """Return the ID of the finished run of a record, or None if the record must still be logged.

        If the measurement was not forced, an equivalent run of another measurement counts, too.
        """
        if not record.tags.get(Tag.FORCED):
            return self.find_same(record)
        condition = f"{_FINISHED} and tags.`{Tag.SEAL}` = '{seal}'"
        return next((run.info.run_id for run in self.measurements.search(condition, most=1)), None)

    def log(self, folder: Path, record: Record, seal: str, pictures: Sequence[Path] = ()) -> str:
        """Log a measurement as a run, and return the ID of the run. If this fails, the incomplete run is deleted.

        The caller must hold the lock of the connection.

        Args:
            folder: the folder with record.json and the files that it names.
            record: the content of record.json.
            seal: the seal of record.json.
            pictures: additional artifacts, which the record does not name.

        """
        self._writer.delete_unfinished(f" and tags.`{Tag.FINGERPRINT}` = '{record.fingerprint}'")
        run = self._writer.create(record.name, record.tags | {Tag.SEAL: seal, Tag.NOTE: describe(record)}, record.began)
        run_id: str = run.run_id
        try:
            model_id = Models(self.measurements).find_or_create(record, run_id)
            self._writer.log_record(run_id, record, model_id)
            self._writer.log_inputs(run_id, record, model_id)
            files = [folder / name for name in (*sorted(record.files), RECORD_FILE)]
            self._writer.add_files(run, [*files, *pictures])
            self._writer.end(run_id, "FINISHED", record.ended)
        except BaseException:
            with suppress(RbptrackError):  # a run that cannot be deleted now is deleted by the next delivery
                self._writer.delete(run_id)
            raise
        return run_id

    def fail(self, record: Record, why: str) -> str:
        """Log a FAILED run for a measurement, with the reason in a tag. Returns the ID of the run."""
        with self.connection.write_lock():
            tags = record.tags | {Tag.FAILURE: why}
            run_id: str = self._writer.create(record.name, tags, record.began).run_id
            self._writer.log(run_id, params=record.params)
            self._writer.end(run_id, "FAILED", record.ended or time.time())
        return run_id

    def mark_damaged(self, run_id: str, why: str) -> None:
        """Mark a measurement as damaged and its run as FAILED. It then no longer counts as measured."""
        with self.connection.translated_errors():
            self.connection.client.set_tag(run_id, Tag.DAMAGED, shortened_text(why))
            self.connection.client.update_run(run_id, status="FAILED")

    # Write sweeps, analyses and scores

    def save(
        self,
        kind: str,
        name: str,
        *,
        sweep: str = "",
        description: str = "",
        metrics: Mapping[str, float] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        tags: Mapping[str, str] | None = None,
        covers: Sequence[str] = (),
        began: float = 0.0,
    ) -> str:
        """Save a sweep, an analysis or scores as a run in the experiment of reports. Returns the ID of the run.

        Args:
            kind: a value of `Kind`.
            name: the name of the run.
            sweep: the name of the sweep that the run belongs to.
            description: Markdown for the run's page.
            metrics: the metrics of the run; all are finite.
            files: the contents of the artifacts, by file name.
            tags: additional tags.
            covers: the run IDs of the measurements that a sweep or analysis used. The filter `sweep` finds them, too.
            began: when it began, in seconds since 1970; 0 means now.

        """
        own = {
            Tag.KIND: kind,
            Tag.SWEEP: sweep,
            Tag.COVERS: str(len(covers)) if covers else "",
            **(tags or {}),
        }
        contents = dict(files or {})
        if covers:
            contents[COVERS_FILE] = json.dumps(list(covers))
        with self.connection.write_lock(), tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for file, content in contents.items():
                (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
            stored = {tag: shortened_text(value) for tag, value in own.items() if value}
            record = Record(name, stored, metrics=dict(metrics or {}), began=began or time.time(), ended=time.time())
            record.write(folder)
            seal = (folder / SEAL_FILE).read_text()
            self._report_writer.delete_unfinished()
            run = self._report_writer.create(name, stored | {Tag.SEAL: seal, Tag.NOTE: description}, record.began)
            run_id: str = run.run_id
            self._report_writer.add_files(run, [folder / file for file in (*contents, RECORD_FILE)])
            self._report_writer.log(run_id, metrics=metrics)
            self._report_writer.end(run_id, "FINISHED", record.ended)
        self.locations[run_id] = run.artifact_uri
        return run_id

    def save_scores(self, table: pd.DataFrame, name: str) -> bool:
        """Save scores of tasks.

        Args:
            table: one row per score, with the columns `SCORES`.
            name: a name for the scores.

        Returns:
            False if `scores` returns all these scores already. Nothing is saved then.

        """
        content = table[list(SCORES)].to_csv(index=False)
        new = _read_scores(io.StringIO(content)).astype(str)
        if len(new.merge(self.scores().astype(str))) == len(new):
            return False
        self.save(Kind.SCORES, f"scores {name}", files={SCORES_FILE: content})
        return True

    def save_view(self) -> None:
        """Save the view *CE and RBP_k* in the Views menu of MLflow's page, and give each dataset a colour."""
        experiment = self.measurements.find_or_create()
        client = self.connection.client
        runs = list(self.measurements.search(_FINISHED))
        with self.connection.write_lock(), self.connection.translated_errors():
            for run_id, colour in view.missing_colours(runs).items():
                client.set_tag(run_id, view.COLOUR, colour)
            tags = client.get_experiment(experiment).tags
            value = view.tag_value({name for run in runs for name in run.data.metrics}, tags.get(view.TAG, ""))
            if value != tags.get(view.TAG):
                client.set_experiment_tag(experiment, view.TAG, value)

    def view_page(self) -> str:
        """Return the part of the saved view's address after the address of the server."""
        return view.link(self.measurements.find_or_create())

    # Read

    def runs(self, filters: Filters = NO_FILTERS, *, run_ids: Sequence[str] | None = None) -> Runs:
        """Return finished measurements. Of several runs with one fingerprint, only the newest is used.

        Args:
            filters: the filters that measurements must pass. They are applied even if `run_ids` is given, except for
                the filter `sweep`.
            run_ids: if given, only these runs.

        Raises:
            BadInput: nothing was measured yet, or no measurement passes.

        """
        frame = runs_frame(self.finished())
        if run_ids is not None:
            frame = frame[frame["run_id"].isin(list(run_ids))]
            if not len(frame):
                raise BadInput(f"the tracking store {self.shown} has none of the {len(run_ids)} runs with these IDs")
        elif filters.sweep and len(frame):
            frame = self._in_sweeps(frame, filters.sweep)
        if not len(frame):
            raise self._empty()
        ordered = frame.sort_values(["family", "non_embedding_params", "dataset"], kind="stable", na_position="last")
        return Runs(ordered, self).select(replace(filters, sweep=()))

    def finished(self) -> Iterator[Any]:
        """Yield MLflow's runs of finished measurements, newest first. Of each fingerprint, only the newest is used."""
        seen = set()
        for run in self.measurements.search(_FINISHED):
            fingerprint = run.data.tags.get(Tag.FINGERPRINT) or run.info.run_id
            if fingerprint not in seen:
                seen.add(fingerprint)
                self.locations[run.info.run_id] = run.info.artifact_uri
                yield run

    def sealed_record(self, run_id: str) -> Record:
        """Return the record of a measurement.

        Raises:
            MissingArtifact: the record does not match its seal, or a file is missing or does not match the record.

        """
        with self.connection.translated_errors():
            run = self.connection.client.get_run(run_id)
        text = self.artifact(run_id, RECORD_FILE).read_bytes()
        damaged = [RECORD_FILE]
        if record_seal(text) == run.data.tags.get(Tag.SEAL):
            record = Record.parse(text)
            damaged = [name for name, digest in record.files.items() if sha256(self.artifact(run_id, name)) != digest]
        if damaged:
            names = ", ".join(damaged)
            raise MissingArtifact(f"{run.info.run_name}: altered since it was sealed: {names}. Run rbptrack verify")
        return record

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks. Of several scores of a model in one task, only the newest is used."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SCORES}'"
        tables = [_read_scores(self.artifact(run.info.run_id, SCORES_FILE)) for run in self.reports.search(condition)]
        if not tables:
            return pd.DataFrame(columns=list(SCORES))
        return pd.concat(tables, ignore_index=True).drop_duplicates(["model", "revision", "task"])

    def verify(self, *, repair: bool = False) -> Iterator[Fault]:
        """Compare every run with its sealed record, and its numbers with its ranks. Yields the faults.

        Args:
            repair: whether to mark damaged runs, after all faults were yielded. The next sweep measures the marked
                measurements again. Marked imports can be imported again.

        """
        if not self.connection.exists or self.measurements.find() is None:
            raise self._empty()
        texts: dict[str, list[str]] = {}
        for fault in find_faults(self, self.measurements, self.reports):
            yield fault
            if not fault.lost:
                texts.setdefault(fault.run_id, []).append(fault.text)
        for run_id, faults in texts.items():
            if repair:
                self.mark_damaged(run_id, "; ".join(faults))

    # Helpers

    def _newest(self, fingerprint: str) -> Any:
        condition = f"{_FINISHED} and tags.`{Tag.FINGERPRINT}` = '{fingerprint}'"
        return next(iter(self.measurements.search(condition, most=1)), None)

    def _in_sweeps(self, frame: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
        """Return the measurements that these sweeps made or reused. Raises BadInput if there are none."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SWEEP}'"
        covered: set[str] = set()
        for run in self.reports.search(condition):
            if Tag.COVERS in run.data.tags and matches_patterns([run.data.tags.get(Tag.SWEEP, "")], patterns):
                covered |= set(json.loads(self.artifact(run.info.run_id, COVERS_FILE).read_text()))
        measured = frame["sweep"].map(lambda name: matches_patterns([str(name)], patterns))
        chosen = frame[measured | frame["run_id"].isin(covered)]
        if not len(chosen):
            by_time = frame.sort_values("started", ascending=False)["sweep"].dropna().unique()
            names = ", ".join(map(str, by_time[:10])) or "none"
            raise BadInput(
                f"no measurement has sweep={','.join(patterns)}. Sweeps of the store, the newest first: {names}"
            )
        return chosen

    def _empty(self) -> BadInput:
        if not self.connection.exists:
            return BadInput(f"there is no tracking store {self.shown} yet: measure something first")
        if self.measurements.find() is None:
            names = ", ".join(self.connection.experiment_names()) or "none"
            return BadInput(
                f"the tracking store {self.shown} has no experiment {self.experiment}. Experiments: {names}"
            )
        return BadInput(f"the experiment {self.experiment} of {self.shown} holds no finished measurement")


def _read_scores(file: Path | io.StringIO) -> pd.DataFrame:
    return pd.read_csv(file, dtype={"model": str, "revision": str, "task": str}, keep_default_na=False)
