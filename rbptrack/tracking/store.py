"""The store: measurements and reports as runs of MLflow, in and out.

A run is made when there is something to log: a measurement that is finished, or one that failed with its reason.
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
from rbptrack.analysis.runs import EVERYTHING, Filters, Runs
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.base.files import sha256
from rbptrack.config.check import check_store
from rbptrack.config.patterns import fits
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
from rbptrack.tracking.record import Record, seal_of
from rbptrack.tracking.rows import frame_of
from rbptrack.tracking.verify import Fault, faults_of_store
from rbptrack.tracking.writer import RunWriter, describe, shortened_text

_FINISHED = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.MEASUREMENT}'"
_ONE_BY_ONE = 20  # fingerprints that are asked for one by one; for more all measurements are read once


class Store(Artifacts):
    """The measurements of one experiment of MLflow, and the reports of another one.

    Nothing is contacted before it is asked for something. Every method raises StoreAway if the store does not answer,
    and BadInput if it refuses.

    Args:
        uri: the address; empty: MLFLOW_TRACKING_URI, else MLflow's own default in this folder, sqlite:///mlflow.db.
        experiment: the name of the experiment of measurements; empty: MLFLOW_EXPERIMENT_NAME, else `rbptrack`.

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
        """The address, absolute."""
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
        """Make the experiments, and see whether the store lets this user write. Raises BadInput if it does not."""
        with self.connection.alone():
            self.measurements.check_writable()
            self.reports.check_writable()

    # Measurements, in

    def find(self, fingerprint: str) -> str | None:
        """The newest finished run of a fingerprint."""
        run = self._newest(fingerprint)
        return run.info.run_id if run else None

    def find_same(self, record: Record) -> str | None:
        """The newest finished run of a record's fingerprint, unless the record corrects it.

        The fingerprint of imported numbers says what they are of and not what they are: a newer import with others
        takes the place of the older one, as the newest run of a fingerprint counts.
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
        """The newest finished run of each fingerprint that has one."""
        if len(fingerprints) <= _ONE_BY_ONE:
            found = {fingerprint: self.find(fingerprint) for fingerprint in fingerprints}
            return {fingerprint: run_id for fingerprint, run_id in found.items() if run_id}
        runs: dict[str, str] = {}
        for run in self.measurements.search(_FINISHED):  # newest first
            fingerprint = run.data.tags.get(Tag.FINGERPRINT, "")
            if fingerprint in fingerprints:
                runs.setdefault(fingerprint, run.info.run_id)
        return runs

    def find_delivered(self, record: Record, seal: str) -> str | None:
        """Return the finished run of a record, or that of an equivalent measurement if that suffices."""
        if not record.tags.get(Tag.FORCED):
            return self.find_same(record)
        condition = f"{_FINISHED} and tags.`{Tag.SEAL}` = '{seal}'"
        return next((run.info.run_id for run in self.measurements.search(condition, most=1)), None)

    def log(self, folder: Path, record: Record, seal: str, pictures: Sequence[Path] = ()) -> str:
        """Log a measurement as a run, whole or not at all; the caller holds the lock of the connection.

        Args:
            folder: holds record.json and the files that it names.
            record: what record.json says.
            seal: the seal of record.json.
            pictures: further artifacts, which the record does not name.

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
            with suppress(RbptrackError):  # if it cannot be removed now, the next delivery does it
                self._writer.delete(run_id)
            raise
        return run_id

    def fail(self, record: Record, why: str) -> str:
        """Log that a measurement failed, and why."""
        with self.connection.alone():
            tags = record.tags | {Tag.FAILURE: why}
            run_id: str = self._writer.create(record.name, tags, record.began).run_id
            self._writer.log(run_id, params=record.params)
            self._writer.end(run_id, "FAILED", record.ended or time.time())
        return run_id

    def mark_damaged(self, run_id: str, why: str) -> None:
        """Let a finished measurement no longer count as measured."""
        with self.connection.explained():
            self.connection.client.set_tag(run_id, Tag.DAMAGED, shortened_text(why))
            self.connection.client.update_run(run_id, status="FAILED")

    # Sweeps, analyses and scores, in

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
        """Save a sweep or an analysis as a run of its own in the experiment of reports.

        Args:
            kind: a value of `Kind`.
            name: the run's name.
            sweep: the sweep that it belongs to.
            description: Markdown on the run's page.
            metrics: finite numbers.
            files: artifacts, by name.
            tags: further ones.
            covers: run ids of the measurements that it is about; a sweep's filter finds these, whoever measured them.
            began: seconds since 1970; 0: now.

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
        with self.connection.alone(), tempfile.TemporaryDirectory() as temporary:
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
        """Keep scores of tasks, with the columns of `SCORES`.

        Returns False, and keeps nothing, if each of them is already the score that counts. Scores that an import of
        other values has replaced since count again.
        """
        content = table[list(SCORES)].to_csv(index=False)
        given = _read_scores(io.StringIO(content)).astype(str)
        if len(given.merge(self.scores().astype(str))) == len(given):
            return False
        self.save(Kind.SCORES, f"scores {name}", files={SCORES_FILE: content})
        return True

    def save_view(self) -> None:
        """Save our view of the measurements in the Views menu of MLflow's page, and give datasets their colours."""
        experiment = self.measurements.make()
        client = self.connection.client
        runs = list(self.measurements.search(_FINISHED))
        with self.connection.alone(), self.connection.explained():
            for run_id, colour in view.missing_colours(runs).items():
                client.set_tag(run_id, view.COLOUR, colour)
            tags = client.get_experiment(experiment).tags
            value = view.tag_value({name for run in runs for name in run.data.metrics}, tags.get(view.TAG, ""))
            if value != tags.get(view.TAG):
                client.set_experiment_tag(experiment, view.TAG, value)

    def view_page(self) -> str:
        """The part of an address, below a server's, that opens our view of the measurements."""
        return view.link(self.measurements.make())

    # Out

    def runs(self, filters: Filters = EVERYTHING, *, run_ids: Sequence[str] | None = None) -> Runs:
        """Finished measurements, of each fingerprint the newest: those that pass, or those with these run IDs.

        Raises:
            BadInput: nothing was measured yet, or nothing passes.

        """
        frame = frame_of(self.finished())
        if run_ids is not None:
            frame = frame[frame["run_id"].isin(list(run_ids))]
            if not len(frame):
                raise BadInput(f"{self.shown} has none of the {len(run_ids)} runs that were asked for")
        elif filters.sweep and len(frame):
            frame = self._of_sweeps(frame, filters.sweep)
        if not len(frame):
            raise self._empty()
        ordered = frame.sort_values(["family", "non_embedding_params", "dataset"], kind="stable", na_position="last")
        return Runs(ordered, self).select(replace(filters, sweep=()))

    def finished(self) -> Iterator[Any]:
        """Finished measurements as MLflow's runs, of each fingerprint the newest; newest first."""
        seen = set()
        for run in self.measurements.search(_FINISHED):
            fingerprint = run.data.tags.get(Tag.FINGERPRINT) or run.info.run_id
            if fingerprint not in seen:
                seen.add(fingerprint)
                self.locations[run.info.run_id] = run.info.artifact_uri
                yield run

    def sealed_record(self, run_id: str) -> Record:
        """The record of a measurement; MissingArtifact where it or one of its files is not what was sealed."""
        with self.connection.explained():
            run = self.connection.client.get_run(run_id)
        text = self.artifact(run_id, RECORD_FILE).read_bytes()
        damaged = [RECORD_FILE]
        if seal_of(text) == run.data.tags.get(Tag.SEAL):
            record = Record.parse(text)
            damaged = [name for name, digest in record.files.items() if sha256(self.artifact(run_id, name)) != digest]
        if damaged:
            names = ", ".join(damaged)
            raise MissingArtifact(f"{run.info.run_name}: not what was sealed: {names}. rbptrack verify says more")
        return record

    def scores(self) -> pd.DataFrame:
        """The scores of tasks that were imported; of one model's scores in one task the newest."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SCORES}'"
        tables = [_read_scores(self.artifact(run.info.run_id, SCORES_FILE)) for run in self.reports.search(condition)]
        if not tables:
            return pd.DataFrame(columns=list(SCORES))
        return pd.concat(tables, ignore_index=True).drop_duplicates(["model", "revision", "task"])

    def verify(self, *, repair: bool = False) -> Iterator[Fault]:
        """Compare every finished run with its sealed record, and its numbers with its ranks.

        Args:
            repair: mark damaged runs. The next sweep measures a marked measurement again.

        """
        if not self.connection.exists or self.measurements.find() is None:
            raise self._empty()
        texts: dict[str, list[str]] = {}
        for fault in faults_of_store(self, self.measurements, self.reports):
            yield fault
            if not fault.lost:
                texts.setdefault(fault.run_id, []).append(fault.text)
        for run_id, faults in texts.items():
            if repair:
                self.mark_damaged(run_id, "; ".join(faults))

    # Steps

    def _newest(self, fingerprint: str) -> Any:
        condition = f"{_FINISHED} and tags.`{Tag.FINGERPRINT}` = '{fingerprint}'"
        return next(iter(self.measurements.search(condition, most=1)), None)

    def _of_sweeps(self, frame: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
        """Return the measurements that these sweeps made or reused. Raises BadInput if there are none."""
        condition = f"attributes.status = 'FINISHED' and tags.`{Tag.KIND}` = '{Kind.SWEEP}'"
        covered: set[str] = set()
        for run in self.reports.search(condition):
            if Tag.COVERS in run.data.tags and fits([run.data.tags.get(Tag.SWEEP, "")], patterns):
                covered |= set(json.loads(self.artifact(run.info.run_id, COVERS_FILE).read_text()))
        made = frame["sweep"].map(lambda name: fits([str(name)], patterns))
        chosen = frame[made | frame["run_id"].isin(covered)]
        if not len(chosen):
            names = ", ".join(sorted({str(name) for name in frame["sweep"].dropna()})[-10:]) or "none"
            raise BadInput(f"no measurement has sweep={','.join(patterns)}. The store has {names}")
        return chosen

    def _empty(self) -> BadInput:
        if not self.connection.exists:
            return BadInput(f"no tracking store {self.shown} yet: measure something first")
        if self.measurements.find() is None:
            names = ", ".join(self.connection.experiment_names()) or "none"
            return BadInput(
                f"the tracking store {self.shown} has no experiment {self.experiment}. Experiments: {names}"
            )
        return BadInput(f"the experiment {self.experiment} of {self.shown} holds no finished measurement")


def _read_scores(file: Path | io.StringIO) -> pd.DataFrame:
    return pd.read_csv(file, dtype={"model": str, "revision": str, "task": str}, keep_default_na=False)
