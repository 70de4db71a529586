"""Reading a store: finished measurements as `Runs`, single runs, and their artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import mlflow.artifacts
import pandas as pd
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from rbptrack.analysis.contract import COLUMNS, Runs
from rbptrack.config.schema import FilterConfig
from rbptrack.console import complain
from rbptrack.errors import BadInput, MissingArtifact, RbptrackError, first_line
from rbptrack.parquet import Damaged
from rbptrack.ranks import RankHistogram, RankTable
from rbptrack.sources.cache import fetched, forget
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.database import from_database, whole_runs
from rbptrack.tracking.filters import run_is_in, tags_like
from rbptrack.tracking.frame import LoggedRun, Unusable, WholeRun, newest, passing, row
from rbptrack.tracking.record import HISTOGRAM, RANKS, TOKENS, Record, read_token_texts
from rbptrack.tracking.schema import CURVES, Kind, Tag, tag_is
from rbptrack.tracking.uri import DATABASES, scheme

T = TypeVar("T")

_PAGE = 200  # runs in one answer: a busy server takes 10 ms for each, and after 10 s it would seem to be away
_NAMED = 200  # run ids in one question
_FEW = 100  # measurements whose fingerprints are asked for one by one, before all are read


class Reader:
    """Reads one experiment.

    Every method raises StoreAway where the store does not answer, and BadInput where it refuses.

    Args:
        connection: to the store.

    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._locations: dict[str, str] = {}  # of the artifacts of each run that was asked for

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without what only this one holds open."""
        return {"connection": self.connection, "_locations": self._locations}

    def find(self, fingerprint: str) -> str | None:
        """The run id of the newest finished measurement with this fingerprint, if there is one."""
        if not self.connection.exists:
            return None
        found = self.measurements(fingerprint, status="FINISHED")
        return next((str(usable["run_id"]) for usable in map(_usable, found) if usable), None)

    def measurements(self, fingerprint: str, *, status: str, limit: int | None = None) -> list[LoggedRun]:
        """Find the measurements with this fingerprint and status, newest first."""
        # Only measurements have a fingerprint; to ask for their kind too would make the search read all of them.
        return self.search(f"{tag_is(Tag.FINGERPRINT, fingerprint)} and attributes.status = '{status}'", limit=limit)

    def search(self, wanted: str, *, limit: int | None = None, analyses: bool = False) -> list[LoggedRun]:
        """Find the runs of the experiment that pass a filter in MLflow's search syntax, newest first.

        Args:
            wanted: the filter.
            limit: how many runs at most.
            analyses: whether runs in the experiment of its analyses are found, too.

        """
        client, token = self.connection.open(), None
        experiments = self.connection.experiment_ids if analyses else [self.connection.experiment_id]
        runs: list[LoggedRun] = []
        with self.connection.explained():
            while True:
                page = client.search_runs(
                    experiments,
                    filter_string=wanted,
                    run_view_type=ViewType.ACTIVE_ONLY,
                    max_results=limit or _PAGE,
                    page_token=token,
                )
                runs += map(LoggedRun.of, page)
                token = page.token
                if not token or limit:
                    return runs

    def run(self, run_id: str) -> LoggedRun:
        """Read one run's params, metrics and tags."""
        client = self.connection.open()
        with self.connection.explained():
            return LoggedRun.of(client.get_run(run_id))

    def knows(self, run_id: str) -> bool:
        """Whether there is a run of this id in the experiment."""
        return bool(self.search(f"attributes.run_id = '{run_id}'", limit=1))

    def runs(self, chosen: FilterConfig, *, run_ids: Sequence[str] = ()) -> Runs:
        """Read finished measurements as a table: those of run_ids, or all that pass the filters.

        Raises:
            BadInput: no measurement fits the filters; the message lists what the store has.

        """
        if not self.connection.exists:
            raise BadInput(f"there is no tracking store at {self.connection.database}: measure something first")
        rows = list(filter(None, self._finished(chosen, run_ids)))
        if run_ids:
            wanted = set(run_ids)
            kept = [r for r in rows if r["run_id"] in wanted]
        else:
            kept = passing(newest(rows), chosen, self._sweep_runs(chosen.sweep))
        frame = pd.DataFrame(kept)
        if frame.empty:
            frame = pd.DataFrame(columns=list(COLUMNS))
        frame = frame.sort_values(["family", "non_embedding_params", "dataset"]) if len(frame) else frame
        return Runs(
            frame,
            histogram=self.histogram,
            ranks=self.ranks,
            pieces=self.rank_pieces,
            token_texts=self.token_texts,
        )

    def _finished(self, chosen: FilterConfig, run_ids: Sequence[str]) -> list[dict[str, Any] | None]:
        """Finished measurements as rows: at least those of run_ids, or those that may pass the filters."""
        experiment_id = self.connection.experiment_id
        if scheme(self.connection.uri) in DATABASES:
            with suppress(SQLAlchemyError):  # tables that differ from those that are known: ask MLflow
                return from_database(self.connection.uri, experiment_id, self._row, chosen=chosen, run_ids=run_ids)
        return list(map(self._row, self._searched(chosen, run_ids)))

    def _row(self, run: LoggedRun) -> dict[str, Any] | None:
        """The row of a run, of which its artifacts' address is kept; None, and said, where it holds no measurement."""
        if run.artifacts:  # else each artifact costs a question of where its run keeps it
            self._locations[run.run_id] = self._located(run.artifacts)
        return _usable(run)

    def _searched(self, chosen: FilterConfig, run_ids: Sequence[str]) -> list[LoggedRun]:
        """Finished measurements by MLflow's search: at least those of run_ids, or those that may pass the filters."""
        finished = f"{tag_is(Tag.KIND, Kind.MEASUREMENT)} and attributes.status = 'FINISHED'"
        if run_ids:
            parts = [run_ids[at : at + _NAMED] for at in range(0, len(run_ids), _NAMED)]
            return [run for part in parts for run in self.search(f"{finished} and {run_is_in(part)}")]
        if narrowed := tags_like(chosen):
            first = self.search(finished, limit=_PAGE)
            if len(first) < _PAGE:
                return first
            some = self.search(f"{finished} and {narrowed}", limit=_FEW + 1)
            if 0 < len(some) <= _FEW:
                return self._with_newer(some)
        return self.search(finished)

    def _with_newer(self, found: list[LoggedRun]) -> list[LoggedRun]:
        """Some measurements and all others of the same fingerprints, of which one may be newer."""
        fingerprints = dict.fromkeys(run.tags.get(Tag.FINGERPRINT, "") for run in found)
        same = [run for each in fingerprints if each for run in self.measurements(each, status="FINISHED")]
        return list({run.run_id: run for run in (*found, *same)}.values())

    def sweep_run(self, sweep: str) -> str | None:
        """The run id of a sweep's own run, if there is one of that name."""
        runs = self.search(tag_is(Tag.KIND, Kind.SWEEP))
        return next((r.run_id for r in runs if r.tags.get(Tag.SWEEP) == sweep), None)

    def _sweep_runs(self, sweeps: Sequence[str]) -> dict[str, set[str]]:
        """The run ids that each sweep covers, including measurements that it found there."""
        covered: dict[str, set[str]] = {}
        if sweeps:
            for run in self.search(tag_is(Tag.KIND, Kind.SWEEP)):
                name = run.tags.get(Tag.SWEEP, "")
                if any(fnmatchcase(name, pattern) for pattern in sweeps):
                    covered[name] = self._cells(run.run_id)
        return covered

    def _cells(self, run_id: str) -> set[str]:
        """The run ids in a sweep's table of cells; a sweep that was killed left none."""
        try:
            cells = pd.read_csv(self.artifact(run_id, "cells.csv"), dtype=str)
            return set(cells["run_id"].dropna())
        except (RbptrackError, ValueError, KeyError) as error:
            complain(f"the table of cells of sweep run {run_id} is left out: {first_line(error)}")
            return set()

    def records(self, run_ids: Sequence[str]) -> dict[str, Record]:
        """Those of some hundreds of finished measurements that can be read at once, from a database, by run id."""
        self.connection.open()
        if scheme(self.connection.uri) in DATABASES:
            with suppress(SQLAlchemyError):  # tables that differ from those that are known: ask MLflow
                found = whole_runs(self.connection.uri, run_ids, CURVES)
                return {whole.run.run_id: whole.record() for whole in found}
        return {}

    def record(self, run_id: str) -> Record:
        """Read a finished measurement as it was recorded, without what belongs to this store or to the process."""
        if known := self.records([run_id]).get(run_id):
            return known
        client = self.connection.open()
        with self.connection.explained():
            run = client.get_run(run_id)
            steps = {name: client.get_metric_history(run_id, name) for name in CURVES if name in run.data.metrics}
        return WholeRun.of(run, {name: {m.step: m.value for m in each} for name, each in steps.items()}).record()

    def came_without_ranks(self, run_id: str) -> bool:
        """Whether a measurement was imported without ranks, so that none can be missing."""
        return bool(row(self.run(run_id))["without_ranks"])

    def histogram(self, run_id: str) -> RankHistogram:
        """Read the rank histogram of a measurement."""
        return self._read(run_id, HISTOGRAM, RankHistogram.read)

    def rank_pieces(self, run_id: str) -> Iterator[RankTable]:
        """Read the rank table of a measurement in pieces of whole documents."""
        return RankTable.read_pieces(self.artifact(run_id, RANKS))

    def ranks(self, run_id: str) -> RankTable:
        """Read the rank table of a measurement."""
        return self._read(run_id, RANKS, RankTable.read)

    def _read(self, run_id: str, name: str, read: Callable[[Path], T]) -> T:
        """Read an artifact; a copy in the cache that is damaged, or was removed a moment ago, is fetched again."""
        path = self.artifact(run_id, name)
        try:
            return read(path)
        except (Damaged, FileNotFoundError):
            if not forget(path):
                raise
            return read(self.artifact(run_id, name))

    def token_texts(self, run_id: str) -> dict[int, str]:
        """The texts of a measurement's tokens by id; empty where they were not kept."""
        with suppress(RbptrackError, OSError, ValueError):
            return read_token_texts(self.artifact(run_id, TOKENS))
        return {}

    def artifact_names(self, run_id: str) -> list[str]:
        """Paths of a run's artifacts, those in folders included."""
        here = Path(self.artifact_uri(run_id))
        if here.is_absolute() and here.is_dir():  # MLflow's own way asks the database several times for each folder
            return sorted(path.relative_to(here).as_posix() for path in here.rglob("*") if path.is_file())
        client, names, folders = self.connection.open(), list[str](), [""]
        with self.connection.explained():
            while folders:
                for entry in client.list_artifacts(run_id, folders.pop() or None):
                    (folders if entry.is_dir else names).append(entry.path)
        return names

    def artifact(self, run_id: str, path: str) -> Path:
        """An artifact as a file: a copy in the cache, or the file itself where the store is local."""
        here = Path(self.artifact_uri(run_id), path)
        if here.is_absolute() and here.exists():
            return here  # MLflow's own way asks the database several times for each file
        if here.is_absolute() and Path(self.artifact_uri(run_id)).is_dir():
            raise MissingArtifact(f"run {run_id} lacks its artifact {path}")
        try:
            return fetched(
                f"{self.connection.shown} {run_id} {path}", lambda place: self._download(run_id, path, place)
            )
        except OSError:  # the cache cannot be written
            place = Path(self._uncached.name, run_id)
            if not (place / path).exists():
                place.mkdir(exist_ok=True)
                self._download(run_id, path, place)
            return place / path

    def _download(self, run_id: str, path: str, place: Path) -> Path:
        """Download an artifact into a folder."""
        try:
            return Path(
                mlflow.artifacts.download_artifacts(
                    run_id=run_id, artifact_path=path, tracking_uri=self.connection.uri, dst_path=str(place)
                )
            )
        except (MlflowException, OSError) as error:
            if Path(self.artifact_uri(run_id)).is_absolute() or path not in self.artifact_names(run_id):
                raise MissingArtifact(f"run {run_id} lacks its artifact {path}") from error
            with self.connection.explained():
                raise

    @cached_property
    def _uncached(self) -> TemporaryDirectory[str]:
        """Holds what was fetched and could not be cached, for as long as this reader lives."""
        return TemporaryDirectory()

    def artifact_uri(self, run_id: str) -> str:
        """Where the run's artifacts lie; a plain path where the store is local."""
        if run_id not in self._locations:
            try:
                uri = str(self.connection.open().get_run(run_id).info.artifact_uri)
            except MlflowException as error:
                raise RbptrackError(f"the store knows no run {run_id}: {first_line(error)}") from error
            self._locations[run_id] = self._located(uri)
        return self._locations[run_id]

    def _located(self, address: str) -> str:
        uri = self.connection.located(address)
        return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri

    def report_page(self, run_id: str) -> str:
        """Where a person finds the page of a run: the file in a local store, or the server's own page of it."""
        server = self.connection.run_page
        return f"{server}{run_id}/artifacts/report.html" if server else f"{self.artifact_uri(run_id)}/report.html"


def _usable(run: LoggedRun) -> dict[str, Any] | None:
    """The row of a run; None where it holds no measurement, which standard error is told."""
    try:
        return row(run)
    except Unusable as error:
        complain(f"run {run.run_id} ({run.name}) is left out: it holds no measurement ({error})")
        return None
