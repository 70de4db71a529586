"""Finished measurements straight from the tables of a database: MLflow's own search takes ten times as long."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.filters import FILTERED
from rbptrack.tracking.frame import DATASET_INPUT, LoggedRun, WholeRun
from rbptrack.tracking.local import database_of
from rbptrack.tracking.schema import Kind, Tag

T = TypeVar("T")

_ROWS = 10_000  # of a table at a time
_RUNS = 500  # that are named in one question
_INDEX = "rbptrack_fingerprints"


def from_database(
    uri: str,
    experiment_id: str,
    each: Callable[[LoggedRun], T],
    *,
    chosen: FilterConfig | None = None,
    run_ids: Sequence[str] = (),
) -> list[T]:
    """Read finished measurements of a database; some hundreds at a time are in memory.

    Args:
        uri: of SQLite, which is opened for reading only, or of a database that several users share.
        experiment_id: MLflow's.
        each: what is kept of a run.
        chosen: what passes these filters is read, and every other measurement of the same fingerprint, of which one
            may be newer; all where nothing passes. What belongs to a sweep is not known here.
        run_ids: only these; all where there are none.

    Raises:
        SQLAlchemyError: the tables are not as MLflow 3 has them.

    """
    columns = ("run_uuid", "name", "start_time", "artifact_uri")
    runs, kind = _table("runs", *columns, "status", "lifecycle_stage", "experiment_id"), _tags()
    measurements = (
        sa.select(*(runs.c[column] for column in columns))
        .select_from(runs.join(kind, kind.c.run_uuid == runs.c.run_uuid))
        .where(
            kind.c.key == Tag.KIND,
            kind.c.value == Kind.MEASUREMENT,
            runs.c.status == "FINISHED",
            runs.c.lifecycle_stage == "active",
            runs.c.experiment_id == int(experiment_id),
        )
    )
    engine = _engine(uri)
    try:
        with engine.connect() as connection:
            found = {
                run_id: LoggedRun(run_id, name, started, artifacts=artifacts)
                for run_id, name, started, artifacts in connection.execute(measurements)
            }
            wanted = found.keys() & set(run_ids) if run_ids else _passing(connection, found, chosen or FilterConfig())
            ordered, kept = [run_id for run_id in found if run_id in wanted], list[T]()
            for at in range(0, len(ordered), _RUNS):
                some = {run_id: found[run_id] for run_id in ordered[at : at + _RUNS]}
                _read(connection, some)
                for run_id, run in some.items():
                    kept.append(each(run))
                    del found[run_id]
    finally:
        engine.dispose()
    return kept


def whole_runs(uri: str, run_ids: Sequence[str], curves: Sequence[str]) -> list[WholeRun]:
    """Read some runs of a database whole; those that it lacks are left out.

    MLflow asks for one curve of one run, for which SQLite reads that curve of every run of the store.

    Args:
        uri: of the database.
        run_ids: some hundreds.
        curves: metrics of which every step is read.

    Raises:
        SQLAlchemyError: the tables are not as MLflow 3 has them.

    """
    columns = ("run_uuid", "name", "start_time", "end_time", "artifact_uri")
    runs, steps = _table("runs", *columns), _table("metrics", "run_uuid", "key", "step", "value")
    asked = sa.select(*(runs.c[column] for column in columns)).where(runs.c.run_uuid.in_(run_ids))
    curve = sa.select(steps.c.run_uuid, steps.c.key, steps.c.step, steps.c.value, steps.c.is_nan)
    engine = _engine(uri)
    try:
        with engine.connect() as connection:
            found = {
                run_id: WholeRun(LoggedRun(run_id, name, started, artifacts=artifacts), ended)
                for run_id, name, started, ended, artifacts in connection.execute(asked)
            }
            _read(connection, {run_id: whole.run for run_id, whole in found.items()})
            for run_id, name, step, value, is_nan in connection.execute(curve.where(steps.c.run_uuid.in_(run_ids))):
                if name in curves and run_id in found:
                    found[run_id].curves.setdefault(name, {})[step] = math.nan if is_nan else value
            for run_id, *values in connection.execute(_dataset_inputs(run_ids)):
                if run_id in found and not found[run_id].dataset:
                    found[run_id].dataset = {k: str(v or "") for k, v in zip(DATASET_INPUT, values, strict=True)}
    finally:
        engine.dispose()
    return list(found.values())


def metric_faults(uri: str, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """By run id: metrics whose last value and whose history differ; MLflow keeps each number in both.

    Raises:
        SQLAlchemyError: the tables are not as MLflow 3 has them.

    """
    columns = ("run_uuid", "key", "value", "step", "timestamp")
    last, every = _table("latest_metrics", *columns).alias(), _table("metrics", *columns).alias()
    of_run = sa.and_(last.c.run_uuid == every.c.run_uuid, last.c.key == every.c.key)
    same = sa.and_(of_run, *(last.c[name] == every.c[name] for name in ("value", "step", "timestamp", "is_nan")))
    asked = {
        "the last value of its metric {} is not in the metric's history": sa.select(last.c.run_uuid, last.c.key)
        .select_from(last.outerjoin(every, same))
        .where(last.c.run_uuid.in_(run_ids), every.c.key.is_(None)),
        "its metric {} has a history and no last value": sa.select(every.c.run_uuid, every.c.key)
        .select_from(every.outerjoin(last, of_run))
        .where(every.c.run_uuid.in_(run_ids), last.c.key.is_(None))
        .distinct(),
    }
    engine, found = _engine(uri), dict[str, list[str]]()
    try:
        with engine.connect() as connection:
            for text, query in asked.items():
                for run_id, key in connection.execute(query):
                    found.setdefault(run_id, []).append(text.format(key))
    finally:
        engine.dispose()
    return found


def _dataset_inputs(run_ids: Sequence[str]) -> sa.Select[Any]:
    """Run id, and name, digest, source and profile of each dataset that MLflow shows beside some runs."""
    inputs = _table("inputs", "source_id", "destination_type", "destination_id")
    known = _table("datasets", "dataset_uuid", "name", "digest", "dataset_source", "dataset_profile")
    return (
        sa.select(
            inputs.c.destination_id, *(known.c[n] for n in ("name", "digest", "dataset_source", "dataset_profile"))
        )
        .select_from(inputs.join(known, known.c.dataset_uuid == inputs.c.source_id))
        .where(inputs.c.destination_type == "RUN", inputs.c.destination_id.in_(run_ids))
    )


def index_fingerprints(uri: str) -> None:
    """Let PostgreSQL find a measurement by its fingerprint without reading those of all; MLflow has no index for it.

    Nothing where the user may not make one: then each check of a cell costs a row of every measurement.
    """
    engine = _engine(uri)
    try:
        with suppress(SQLAlchemyError), engine.begin() as connection:
            if connection.execute(sa.text(f"select to_regclass('{_INDEX}')")).scalar() is None:
                # Of fingerprints only: other tags' values may be longer than an entry of an index.
                of = f"on tags (value) where key = '{Tag.FINGERPRINT}'"
                connection.execute(sa.text(f"create index if not exists {_INDEX} {of}"))
    finally:
        engine.dispose()


def _read(connection: sa.Connection, found: Mapping[str, LoggedRun]) -> None:
    """Fill in the params, tags and metrics of some hundreds of runs."""
    for name, known in (("params", "params"), ("tags", "tags"), ("latest_metrics", "metrics")):
        rows = _table(name, "run_uuid", "key", "value").alias()
        query = sa.select(rows.c.run_uuid, rows.c.key, rows.c.value).where(rows.c.run_uuid.in_(list(found)))
        if name == "latest_metrics":
            query = query.where(rows.c.is_nan == sa.false())
        for part in connection.execute(query).partitions(_ROWS):
            for run_id, key, value in part:
                if run_id in found:  # an index that is damaged leads to rows of others
                    getattr(found[run_id], known)[key] = value


def _passing(connection: sa.Connection, found: Iterable[str], chosen: FilterConfig) -> set[str]:
    """The runs that pass the filters, and those with a fingerprint of these; all where none passes."""
    patterns = {tag: getattr(chosen, name) for name, tag in FILTERED.items() if getattr(chosen, name)}
    if not patterns:
        return set(found)
    rows = _tags()
    of: dict[str, dict[str, str]] = {run_id: {} for run_id in found}
    asked = sa.select(rows.c.run_uuid, rows.c.key, rows.c.value).where(rows.c.key.in_([*patterns, Tag.FINGERPRINT]))
    for run_id, key, value in connection.execute(asked):
        if run_id in of:
            of[run_id][key] = value
    passed = {
        run_id
        for run_id, tags in of.items()
        if all(any(fnmatchcase(tags.get(tag) or "", p) for p in each) for tag, each in patterns.items())
    }
    same = {of[run_id][Tag.FINGERPRINT] for run_id in passed if Tag.FINGERPRINT in of[run_id]}
    return passed | {i for i, tags in of.items() if tags.get(Tag.FINGERPRINT) in same} or set(found)


def _tags() -> sa.FromClause:
    return _table("tags", "run_uuid", "key", "value").alias()


def _table(name: str, *columns: str) -> sa.TableClause:
    """One of MLflow's tables, with the columns that are read here."""
    flag = [sa.column("is_nan", sa.Boolean())] if name.endswith("metrics") else []
    return sa.table(name, *map(sa.column, columns), *flag)


def _engine(uri: str) -> sa.Engine:
    database = database_of(uri)
    if database is None:
        return sa.create_engine(uri)
    place = f"file:{quote(str(database))}?mode=ro"
    return sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True), poolclass=sa.NullPool)
