"""Reading a store: finished measurements as `Runs`, single runs, and their artifacts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import pandas as pd

from rbptrack.analysis.runs import COLUMNS, Runs
from rbptrack.analysis.source import SCORES
from rbptrack.base.errors import BadInput, RbptrackError, first_line
from rbptrack.config.patterns import fits
from rbptrack.config.schema import FilterConfig
from rbptrack.console.output import complain
from rbptrack.tracking.artifacts import Artifacts
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.record import RANKS, SCORES_FILE, Record
from rbptrack.tracking.runs_table import LoggedRun, Unusable, came_without_ranks, newest, passing, row
from rbptrack.tracking.schema import FILTERED, Kind, Tag
from rbptrack.tracking.tables import Tables

T = TypeVar("T")

_FEW = 100  # measurements for which a server is asked one by one, before it is asked for all


class Reader(Artifacts):
    """Reads one experiment.

    Every method raises StoreAway where the store does not answer, and BadInput where it refuses.
    """

    def find(self, fingerprint: str) -> str | None:
        """Return the run id of the newest finished measurement with this fingerprint and its ranks; None without."""
        return next((run.run_id for run in self.finished_with_ranks(fingerprint)), None)

    def finished_with_ranks(self, fingerprint: str) -> Iterator[LoggedRun]:
        """Yield the finished measurements with this fingerprint that have their ranks, newest first."""
        if self.connection.exists:
            runs = map(self._as_read, self.measurements(fingerprint, status="FINISHED"))
            yield from (run for run in runs if _usable(run) and self.has_ranks(run))

    def find_all(self, fingerprints: Collection[str]) -> dict[str, LoggedRun]:
        """Return the newest finished measurement of each fingerprint that has one with its ranks, as `find` finds
        it.
        """
        if not self.connection.exists:
            return {}
        runs: dict[str, LoggedRun] = {}
        for run in sorted(self._with_fingerprints(fingerprints), key=lambda run: run.started or 0, reverse=True):
            name = run.tags.get(Tag.FINGERPRINT, "")
            if name in fingerprints and name not in runs and _usable(run) and self.has_ranks(run):
                runs[name] = run
        return runs

    def _with_fingerprints(self, fingerprints: Collection[str]) -> list[LoggedRun]:
        """Return finished measurements, at least those of fingerprints: a database is asked once, a server once for
        all.
        """
        source = self.connection.source
        if isinstance(source, Tables):
            with self.connection.explained():
                run_ids = source.with_fingerprints(fingerprints)
            return self._finished(FilterConfig(), run_ids, self._as_read) if run_ids else []
        if len(fingerprints) <= _FEW:
            return [run for fingerprint in fingerprints for run in self.measurements(fingerprint, status="FINISHED")]
        return self._finished(FilterConfig(), (), self._as_read)

    def has_ranks(self, run: LoggedRun) -> bool:
        """Return whether a finished measurement's rank table is there and not empty, or it came without; says so if
        not.

        A store that does not say is believed.
        """
        sizes = self.sizes(run.run_id)
        if sizes is None or sizes.get(RANKS) or came_without_ranks(run.tags, MeasurementParams.read(run.params)):
            return True
        complain(f"run {run.run_id} ({run.name}) does not count as measured: its {RANKS} is missing or empty")
        return False

    def measurements(self, fingerprint: str, *, status: str) -> list[LoggedRun]:
        """Find the measurements with this fingerprint and status, newest first."""
        # Only measurements have a fingerprint; to ask for their kind too would make the search read all of them.
        return self.search({Tag.FINGERPRINT: fingerprint}, status=status)

    def search(
        self,
        tags: Mapping[str, str] = MappingProxyType({}),
        *,
        status: str = "",
        run_id: str = "",
        limit: int | None = None,
        analyses: bool = False,
    ) -> list[LoggedRun]:
        """Find runs of the experiment, and with `analyses` of the one of its analyses, newest first."""
        source = self.connection.source
        experiments = self.connection.experiment_ids if analyses else [self.connection.experiment_id]
        with self.connection.explained():
            return source.search(experiments, tags, status=status, run_id=run_id, limit=limit)

    def run(self, run_id: str) -> LoggedRun:
        """Read one run's params, metrics and tags."""
        source = self.connection.source
        with self.connection.explained():
            return source.run(run_id)

    def knows(self, run_id: str) -> bool:
        """Return whether the experiment has a run of this ID."""
        return bool(self.search(run_id=run_id, limit=1))

    def runs(self, chosen: FilterConfig, *, run_ids: Sequence[str] = ()) -> Runs:
        """Read finished measurements as a table: those of run_ids, or all that pass the filters.

        Raises:
            BadInput: no measurement fits the filters; the message lists what the store has.

        """
        if not self.connection.exists:
            raise BadInput(f"no tracking store at {self.connection.database}: measure something first")
        rows = list(filter(None, self._finished(chosen, run_ids, self._row)))
        if run_ids:
            wanted = set(run_ids)
            kept = [r for r in rows if r["run_id"] in wanted]
        else:
            kept = passing(newest(rows), chosen, self._sweep_runs(chosen.sweep))
        frame = pd.DataFrame(kept)
        if frame.empty:
            frame = pd.DataFrame(columns=list(COLUMNS))
        frame = frame.sort_values(["family", "non_embedding_params", "dataset"]) if len(frame) else frame
        return Runs(frame, self)

    def scores(self) -> pd.DataFrame:
        """Return the scores of tasks that were imported; of one model's scores in one task the newest."""
        kept = self.search({Tag.KIND: Kind.SCORES}, status="FINISHED")
        texts = {"model": str, "revision": str, "task": str}
        files = (self.artifact(run.run_id, SCORES_FILE) for run in kept)
        tables = [pd.read_csv(path, dtype=texts, keep_default_na=False) for path in files]
        every = pd.concat([pd.DataFrame(columns=list(SCORES)), *tables], ignore_index=True)
        every["n"] = pd.to_numeric(every["n"], errors="coerce")
        return every.drop_duplicates(["model", "revision", "task"])

    def finished(self, chosen: FilterConfig) -> list[LoggedRun]:
        """Return finished measurements that pass the filters, as they were read, lawful or not; older ones too.

        Raises:
            BadInput: no measurement fits the filters; the message lists what the store has.

        """
        runs = {run.run_id: run for run in self._finished(FilterConfig(), (), self._as_read)}
        about = {**FILTERED, "model": Tag.MODEL, "sweep": Tag.SWEEP}
        rows = [{"run_id": i, **{k: run.tags.get(t, "") for k, t in about.items()}} for i, run in runs.items()]
        return [runs[row["run_id"]] for row in passing(rows, chosen, self._sweep_runs(chosen.sweep))]

    def _finished(self, chosen: FilterConfig, run_ids: Sequence[str], read: Callable[[LoggedRun], T]) -> list[T]:
        """Return the records of finished measurements: at least those of run_ids, or those that may pass the
        filters.
        """
        source = self.connection.source
        experiment = self.connection.experiment_id
        with self.connection.explained():
            return source.finished(experiment, chosen, run_ids, read)

    def without_model(self) -> list[str]:
        """Return the ids of finished measurements whose metrics point to no LoggedModel; they can be linked to one."""
        source = self.connection.source
        experiment = self.connection.experiment_id
        with self.connection.explained():
            return source.without_model(experiment)

    def _row(self, run: LoggedRun) -> dict[str, Any] | None:
        """Return the row of a run; None, and said, where it holds no measurement."""
        return _usable(self._as_read(run))

    def _as_read(self, run: LoggedRun) -> LoggedRun:
        """Return the run and keep the address of its artifacts."""
        if run.artifacts:  # else each artifact costs a question of where its run keeps it
            self._locations[run.run_id] = self._located(run.artifacts)
        return run

    def sweep_run(self, sweep: str) -> str | None:
        """Return the run ID of a sweep's own run; None if no sweep has that name."""
        runs = self.search({Tag.KIND: Kind.SWEEP})
        return next((run.run_id for run in runs if run.tags.get(Tag.SWEEP) == sweep), None)

    def _sweep_runs(self, sweeps: Sequence[str]) -> dict[str, set[str]]:
        """Return the run ids that each sweep covers, including measurements that it found there."""
        covered: dict[str, set[str]] = {}
        if sweeps:
            for run in self.search({Tag.KIND: Kind.SWEEP}):
                name = run.tags.get(Tag.SWEEP, "")
                if fits([name], [pattern.removeprefix("!") for pattern in sweeps]):
                    covered[name] = self._cells(run.run_id)
        return covered

    def _cells(self, run_id: str) -> set[str]:
        """Return the run ids in a sweep's table of cells; a sweep that was killed left none."""
        try:
            cells = pd.read_csv(self.artifact(run_id, "cells.csv"), dtype=str)
            return set(cells["run_id"].dropna())
        except (RbptrackError, ValueError, KeyError) as error:
            complain(f"the table of cells of sweep run {run_id} is left out: {first_line(error)}")
            return set()

    def records(self, run_ids: Sequence[str]) -> dict[str, Record]:
        """Return the records of some hundreds of finished measurements, read at once from a database, by run id."""
        return self._records(run_ids) if isinstance(self.connection.source, Tables) else {}

    def record(self, run_id: str) -> Record:
        """Read a finished measurement as it was recorded, without what belongs to this store or to the process."""
        return self._records([run_id])[run_id]

    def _records(self, run_ids: Sequence[str]) -> dict[str, Record]:
        source = self.connection.source
        with self.connection.explained():
            return {run.run_id: run.record() for run in source.whole(run_ids)}

    def metric_faults(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by run id, the metrics whose last value and history differ, from a database."""
        source = self.connection.source
        with self.connection.explained():
            return source.metric_faults(run_ids)

    def came_without_ranks(self, run_id: str) -> bool:
        """Return whether a measurement was imported without ranks, so that none can be missing."""
        return bool(row(self.run(run_id))["without_ranks"])


def _usable(run: LoggedRun) -> dict[str, Any] | None:
    """Return the row of a run; None, with a message, where it holds no measurement."""
    try:
        return row(run)
    except Unusable as error:
        complain(f"run {run.run_id} ({run.name}) is left out: it holds no measurement ({error})")
        return None
