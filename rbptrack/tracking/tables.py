# ruff: noqa: S608 - what users give is bound; names of tables and columns are ours
"""A store's runs straight from the tables of its database: without importing MLflow, and in a tenth of its time."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

from rbptrack.base.errors import RbptrackError
from rbptrack.config.patterns import passes
from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.local import database_of, reading
from rbptrack.tracking.runs_table import DATASET_INPUT, Experiment, LoggedRun
from rbptrack.tracking.schema import CURVES, FILTERED, Kind, Tag, metric_now, tags_now
from rbptrack.tracking.uri import opened

T = TypeVar("T")
Values = dict[str, Any]
Ask = Callable[[str, Values], Iterable[Any]]

REVISIONS = ("6f8d9c3b2a1e", "1971f2d9a75b", "17e22815139b", "b7e2c1a4d9f3", "75868b020152", "dc11669786a5")
"""Of the tables as MLflow 3.15 to 3.17 make them; tests compare the answers with its client's."""

_RUNS = 500  # that are named in one question
_INDEX = "rbptrack_fingerprints"
_RUN = "select r.run_uuid, r.name, r.start_time, r.end_time, r.artifact_uri from runs r"


class Tables:
    """Reads a database of MLflow; `rbptrack.tracking.client.Client` answers the same questions for a server.

    Args:
        uri: of SQLite, which is opened for reading only, or of a database that several users share.

    """

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def are_known(self) -> bool:
        """Return whether the tables are as the known versions of MLflow make them."""
        with suppress(sqlite3.Error), self._opened() as ask:
            return {revision for (revision,) in ask("select version_num from alembic_version", {})} <= {*REVISIONS}
        return False

    def experiment(self, name: str) -> Experiment | None:
        """Return the experiment of a name, deleted or not; None if no experiment has it."""
        query = "select experiment_id, artifact_location, lifecycle_stage from experiments where name = :name"
        with self._opened() as ask:
            rows = [Experiment(str(number), place, stage) for number, place, stage in ask(query, {"name": name})]
        return rows[0] if rows else None

    def run(self, run_id: str) -> LoggedRun:
        """Return one run; raise RbptrackError if no run has this id."""
        with self._opened() as ask:
            runs = _runs(ask(f"{_RUN} where r.run_uuid = :run", {"run": run_id}))
            _fill(ask, runs)
        if not runs:
            raise RbptrackError(f"the store knows no run {run_id}")
        return runs[run_id]

    def search(
        self,
        experiments: Sequence[str],
        tags: Mapping[str, str],
        *,
        status: str = "",
        run_id: str = "",
        limit: int | None = None,
    ) -> list[LoggedRun]:
        """Return the runs of some experiments that have these tags and this status, newest first."""
        values: Values = {"status": status, "run": run_id}
        inside, more = _named("e", map(int, experiments))
        query = f"{_RUN} where r.lifecycle_stage = 'active' and r.experiment_id in {inside}"
        query += " and r.status = :status" * bool(status) + " and r.run_uuid = :run" * bool(run_id)
        for i, (tag, value) in enumerate(tags.items()):
            query += f" and r.run_uuid in (select run_uuid from tags where key = :k{i} and value = :v{i})"
            more |= {f"k{i}": tag, f"v{i}": value}
        query += " order by r.start_time desc, r.run_uuid" + (f" limit {limit}" if limit else "")
        with self._opened() as ask:
            runs = _runs(ask(query, {k: v for k, v in values.items() if v} | more))
            for some in _parts(list(runs)):
                _fill(ask, {run_id: runs[run_id] for run_id in some})
        return list(runs.values())

    def finished(
        self, experiment: str, chosen: FilterConfig, run_ids: Sequence[str], read: Callable[[LoggedRun], T]
    ) -> list[T]:
        """Yield the records of finished measurements; some hundreds at a time are in memory.

        Args:
            experiment: MLflow's id.
            chosen: measurements that pass these filters are read, and all others of the same fingerprints: one may be
                newer. All are read if none passes. The filter of sweeps is not applied here.
            run_ids: only these; all if empty.
            read: makes the answer of a run.

        """
        query = (
            f"{_RUN} join tags k on k.run_uuid = r.run_uuid"
            f" where k.key = '{Tag.KIND}' and k.value = '{Kind.MEASUREMENT}'"
            " and r.status = 'FINISHED' and r.lifecycle_stage = 'active' and r.experiment_id = :experiment"
        )
        kept = list[T]()
        with self._opened() as ask:
            runs = _runs(ask(query, {"experiment": int(experiment)}))
            wanted = runs.keys() & set(run_ids) if run_ids else _passing(ask, runs, chosen)
            for names in _parts([run_id for run_id in runs if run_id in wanted]):
                some = {run_id: runs.pop(run_id) for run_id in names}
                _fill(ask, some)
                kept += map(read, some.values())
        return kept

    def without_model(self, experiment: str) -> list[str]:
        """Return the ids of finished measurements whose metrics point to no LoggedModel."""
        query = (
            "select r.run_uuid from runs r join tags k on k.run_uuid = r.run_uuid"
            f" where k.key = '{Tag.KIND}' and k.value = '{Kind.MEASUREMENT}'"
            " and r.status = 'FINISHED' and r.lifecycle_stage = 'active' and r.experiment_id = :experiment"
            " and r.run_uuid not in (select run_id from logged_model_metrics)"
        )
        with self._opened() as ask:
            return [run_id for (run_id,) in ask(query, {"experiment": int(experiment)})]

    def with_fingerprints(self, fingerprints: Collection[str]) -> list[str]:
        """Return the ids of all runs that have one of these fingerprints, whatever became of them."""
        run_ids = list[str]()
        with self._opened() as ask:
            for some in _parts(list(fingerprints)):
                inside, values = _named("f", some)
                query = f"select run_uuid from tags where key = '{Tag.FINGERPRINT}' and value in {inside}"
                run_ids += [run_id for (run_id,) in ask(query, values)]
        return run_ids

    def whole(self, run_ids: Sequence[str]) -> list[LoggedRun]:
        """Return some hundreds of runs with their curves and datasets; runs that the store lacks are left out.

        MLflow asks for one curve of one run, for which SQLite reads that curve of every run of the store.
        """
        inside, values = _named("r", run_ids)
        steps = f"select run_uuid, key, step, value, is_nan from metrics where run_uuid in {inside}"
        inputs = (
            "select i.destination_id, d.name, d.digest, d.dataset_source, d.dataset_profile"
            " from inputs i join datasets d on d.dataset_uuid = i.source_id"
            f" where i.destination_type = 'RUN' and i.destination_id in {inside}"
        )
        with self._opened() as ask:
            runs = _runs(ask(f"{_RUN} where r.run_uuid in {inside}", values))
            _fill(ask, runs)
            for run_id, name, step, value, is_nan in ask(steps, values):
                if name in CURVES and run_id in runs:
                    runs[run_id].curves.setdefault(name, {})[step] = math.nan if is_nan else value
            for run_id, *about in ask(inputs, values):
                if run_id in runs and not runs[run_id].dataset:
                    runs[run_id].dataset = {k: str(v or "") for k, v in zip(DATASET_INPUT, about, strict=True)}
        return list(runs.values())

    def metric_faults(self, run_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by run id, the metrics whose last value and history differ; MLflow keeps each number in both."""
        inside, values = _named("r", run_ids)
        of_run = "l.run_uuid = m.run_uuid and l.key = m.key"
        same = " and ".join([of_run, *(f"l.{name} = m.{name}" for name in ("value", "step", "timestamp", "is_nan"))])
        queries = {
            "the last value of its metric {} is not in the metric's history": "select l.run_uuid, l.key from "
            f"latest_metrics l left join metrics m on {same} where l.run_uuid in {inside} and m.key is null",
            "its metric {} has a history and no last value": "select distinct m.run_uuid, m.key from "
            f"metrics m left join latest_metrics l on {of_run} where m.run_uuid in {inside} and l.key is null",
        }
        faults: dict[str, list[str]] = {}
        with self._opened() as ask:
            for text, query in queries.items():
                for run_id, key in ask(query, values):
                    faults.setdefault(run_id, []).append(text.format(key))
        return faults

    @contextmanager
    def _opened(self) -> Iterator[Ask]:
        """Yield a connection for some questions; SQLite needs no SQLAlchemy, which takes longer to import than to
        answer.
        """
        database = database_of(self._uri)
        if database is not None:
            with closing(reading(database)) as connection:
                yield connection.execute
            return
        from sqlalchemy import text

        with opened(self._uri) as shared:
            yield lambda query, values: shared.execute(text(query), values)


def index_fingerprints(uri: str) -> None:
    """Let PostgreSQL find a measurement by its fingerprint without reading those of all; MLflow has no index for it.

    Nothing where the user may not make one: then each check of a cell costs a row of every measurement.
    """
    import sqlalchemy as sa

    with suppress(sa.exc.SQLAlchemyError), opened(uri) as connection:
        if connection.execute(sa.text(f"select to_regclass('{_INDEX}')")).scalar() is None:
            # Of fingerprints only: other tags' values may be longer than an entry of an index.
            place = f"on tags (value) where key = '{Tag.FINGERPRINT}'"
            connection.execute(sa.text(f"create index if not exists {_INDEX} {place}"))
            connection.commit()


def _named(prefix: str, values: Iterable[Any]) -> tuple[str, Values]:
    """Return a list of values in a query, and what its names stand for."""
    named = {f"{prefix}{i}": value for i, value in enumerate(values)}
    return f"({', '.join(f':{name}' for name in named)})", named


def _parts(run_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (run_ids[at : at + _RUNS] for at in range(0, len(run_ids), _RUNS))


def _runs(rows: Iterable[Any]) -> dict[str, LoggedRun]:
    return {
        run_id: LoggedRun(run_id, name, started, ended=ended, artifacts=artifacts)
        for run_id, name, started, ended, artifacts in rows
    }


def _fill(ask: Ask, runs: Mapping[str, LoggedRun]) -> None:
    """Fill in the params, tags and metrics of some hundreds of runs."""
    inside, values = _named("r", runs)
    for table, kept in (("params", "params"), ("tags", "tags"), ("latest_metrics", "metrics")):
        is_nan = "is_nan" if table == "latest_metrics" else "0"
        query = f"select run_uuid, key, value, {is_nan} from {table} where run_uuid in {inside}"
        for run_id, key, value, left_out in ask(query, values):
            if run_id in runs and not left_out:  # an index that is damaged leads to rows of others
                getattr(runs[run_id], kept)[metric_now(key) if kept == "metrics" else key] = value
    for run in runs.values():
        run.tags = tags_now(run.tags)


def _passing(ask: Ask, run_ids: Iterable[str], chosen: FilterConfig) -> set[str]:
    """Return the runs that pass the filters, and those with a fingerprint of these; all where none passes."""
    patterns = {tag: getattr(chosen, name) for name, tag in FILTERED.items() if getattr(chosen, name)}
    if not patterns:
        return set(run_ids)
    tags_by_run: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    inside, values = _named("k", [*patterns, Tag.FINGERPRINT])
    for run_id, key, value in ask(f"select run_uuid, key, value from tags where key in {inside}", values):
        if run_id in tags_by_run:
            tags_by_run[run_id][key] = value
    passed = {
        run_id
        for run_id, tags in tags_by_run.items()
        if all(passes([tags.get(tag) or ""], wanted) for tag, wanted in patterns.items())
    }
    same = {tags_by_run[run_id][Tag.FINGERPRINT] for run_id in passed if Tag.FINGERPRINT in tags_by_run[run_id]}
    return passed | {i for i, tags in tags_by_run.items() if tags.get(Tag.FINGERPRINT) in same} or set(tags_by_run)
