"""Write measurements and reports to MLflow as runs."""

from __future__ import annotations

import io
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from rbptrack.analysis.rank_store import SCORES
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, unknown_name
from rbptrack.base.validation import broken_rules
from rbptrack.measurement.document import FINGERPRINT_TAG, TAG_PREFIX, Measurement, names_of, params_of, tags_of
from rbptrack.measurement.files import RECORD_FILE
from rbptrack.measurement.parts import Label
from rbptrack.measurement.record import MeasurementRecord, ReportRecord
from rbptrack.tracking import view
from rbptrack.tracking.colours import with_colours
from rbptrack.tracking.description import describe_measurement
from rbptrack.tracking.models import LoggedModels
from rbptrack.tracking.names import PAGE_FILE, SCORES_FILE, Kind, Tag
from rbptrack.tracking.reader import StoreReader, is_equivalent, read_scores
from rbptrack.tracking.verify import Fault, find_faults
from rbptrack.tracking.writer import MAX_PARAM_LENGTH, RunWriter, shorten


class Store(StoreReader):
    """Writes measurements and reports to MLflow, and reads them.

    A run is created only when its data are complete: a finished measurement, or the reason why a measurement failed.
    The arguments are those of `StoreReader`.
    """

    def __init__(self, uri: str = "", experiment: str = "") -> None:
        super().__init__(uri, experiment)
        self._measurement_writer = RunWriter(self.measurements)
        self._report_writer = RunWriter(self.reports)
        self._logged_models = LoggedModels(self.measurements)

    def check_writable(self, datasets: Iterable[str] = ()) -> None:
        """Check that this user may write, by setting a tag of each experiment. Missing experiments are created.

        Args:
            datasets: the datasets that will be measured. The tag of the first experiment gives each one a colour.

        Raises:
            StoreRefuses: the store does not let this user write.
            StoreAway: the store does not answer.

        """
        with self.connection.write_lock():
            self._choose_colours(datasets, always=True)
            self.reports.describe()

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
            equivalent = [run for run in finished[:1] if is_equivalent(run, record)]
        writer = self._measurement_writer
        writer.discard_unfinished(runs)
        if equivalent:
            return str(equivalent[0].info.run_id)
        tags = {
            **record.tags,
            Tag.KIND: Kind.MEASUREMENT,
            Tag.SEAL: seal,
            Tag.NOTE: describe_measurement(measurement),
            Tag.COLOUR: self._choose_colours([measurement.dataset])[measurement.dataset],
        }
        with writer.run(record.title, tags, record.began, record.ended) as run:
            run_id: str = run.run_id
            self.locations[run_id] = run.artifact_uri
            files = [folder / name for name in (*sorted(record.files), RECORD_FILE)]
            model_id = self._logged_models.find_or_create(measurement, run_id)
            writer.log_record(run_id, record, model_id)
            writer.log_inputs(run_id, measurement, model_id)
            writer.add_files(run, [*files, *pictures])
        self.keep_copies(run_id, files)
        return run_id

    def log_failure(self, name: str, description: Mapping[str, Any], reason: str) -> str:
        """Log a FAILED run for a measurement that failed, with the reason in a tag. Returns the ID of the run.

        Args:
            name: the name of the run.
            description: the fields of the measurement that are known.
            reason: why it failed.

        """
        now = time.time()
        tags = {**tags_of(description), Tag.KIND: Kind.MEASUREMENT, Tag.FAILURE: reason}
        writer = self._measurement_writer
        with self.connection.write_lock(), writer.run(name, tags, now, now, status="FAILED") as run:
            writer.log(run.run_id, params=params_of(description))
        return str(run.run_id)

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
                client.set_tag(run_id, Tag.COLOUR, self._choose_colours([new.dataset])[new.dataset])
                client.update_run(run_id, name=new.title)
                self._logged_models.relabel(new)
                lines.append(f"{old.title} -> {new.title}")
        return lines

    def save(
        self, kind: str, report: ReportRecord, files: Mapping[str, str | bytes] = {}, description: str = ""
    ) -> str:
        """Save a sweep, an analysis or scores as a run in the experiment of reports. Returns the ID of the run.

        Args:
            kind: a value of `Kind`.
            report: its name, tags, params and metrics, and the measurements that it used. `runs` reads these to apply
                the filter `sweep`. Empty tags and params are left out, and long ones are shortened. All metrics are
                finite.
            files: the contents of the artifacts, by file name.
            description: Markdown for the run's page. If the files include a page, a link to it is added.

        """
        tags = {Tag.KIND: kind, **report.tags}
        if report.covered_run_ids:
            tags[Tag.COVERS] = str(len(report.covered_run_ids))
        tags = {tag: shorten(value) for tag, value in tags.items() if value}
        params = {name: shorten(value, MAX_PARAM_LENGTH) for name, value in report.params.items() if value}
        report = report.model_copy(update={"tags": tags, "params": params})
        writer = self._report_writer
        with self.connection.write_lock(), tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for file, content in files.items():
                (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
            seal = report.write(folder)
            writer.discard_unfinished(self.reports.search("attributes.status = 'RUNNING'"))
            with writer.run(report.title, tags | {Tag.SEAL: seal}, report.began, report.ended) as run:
                run_id: str = run.run_id
                if PAGE_FILE in files:
                    page = f"#/experiments/{run.experiment_id}/runs/{run_id}/artifacts/{PAGE_FILE}"
                    description = f"[Page with figures]({page})\n\n{description}"
                writer.add_files(run, [folder / file for file in (*files, RECORD_FILE)])
                writer.log(run_id, params=params, metrics=report.metrics, tags={Tag.NOTE: description})
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
        scores = read_scores(io.StringIO(content)).astype(str)
        earlier = self.scores()
        if len(scores.merge(earlier.astype(str))) == len(scores):
            return None
        report = ReportRecord(title=f"scores {file_name}", tags={Tag.IMPORTED_FROM: file_name})
        self.save(Kind.SCORES, report, {SCORES_FILE: content})
        return earlier

    def save_view(self) -> str:
        """Save the view *CE and RBP_k* in the Views menu of MLflow's page.

        Returns the end of the view's address, which follows the address of the server.
        """
        if not self.metric_names:
            list(self.finished_runs())
        with self.connection.write_lock():
            experiment_id = self.measurements.find_or_create()
            previous = self.measurements.tags.get(Tag.VIEW, "")
            self.measurements.set_tag(Tag.VIEW, view.view_tag(self.metric_names, previous))
        return view.view_address(experiment_id)

    def _choose_colours(self, datasets: Iterable[str], *, always: bool = False) -> dict[str, str]:
        """Return the colours of all datasets, from a tag of the experiment. New datasets get a colour, which is kept.

        Args:
            datasets: datasets that may be new.
            always: whether the tag is written even if it does not change.

        """
        self.measurements.find_or_create()
        colours = with_colours(datasets, self.measurements.tags.get(Tag.COLOURS, ""))
        self.measurements.set_tag(Tag.COLOURS, json.dumps(colours), always=always)
        return colours

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
            raise self.no_measurement_error()
        faults_by_run: dict[str, list[str]] = {}
        for fault in find_faults(self, self.measurements, self.reports, since):
            yield fault
            if fault.kind == "damaged":
                faults_by_run.setdefault(fault.run_id, []).append(fault.text)
        if repair:
            client = self.connection.client
            with self.connection.write_lock(), self.connection.translated_errors():
                for run_id, texts in faults_by_run.items():
                    client.set_tag(run_id, Tag.DAMAGED, shorten("; ".join(texts)))
                    client.update_run(run_id, status="FAILED")  # a FAILED run is no longer read
