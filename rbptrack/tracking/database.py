"""Finished measurements straight from the tables of a database: MLflow's own search takes ten times as long."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import quote

import sqlalchemy as sa

from rbptrack.config.schema import FilterConfig
from rbptrack.tracking.frame import LoggedRun
from rbptrack.tracking.local import database_of
from rbptrack.tracking.schema import Kind, Tag

_ROWS = 10_000  # of a table at a time
_RUNS = 500  # that are named in one question
_FILTERED = {"family": Tag.FAMILY, "size": Tag.SIZE, "dataset": Tag.DATASET}


def from_database(
    uri: str, experiment_id: str, *, chosen: FilterConfig | None = None, run_ids: Sequence[str] = ()
) -> list[LoggedRun]:
    """Read finished measurements of a database.

    Args:
        uri: of SQLite, which is opened for reading only, or of a database that several users share.
        experiment_id: MLflow's.
        chosen: what passes these filters is read, and every other measurement of the same fingerprint, of which one
            may be newer; all where nothing passes. What belongs to a sweep is not known here.
        run_ids: only these; all where there are none.

    Raises:
        SQLAlchemyError: the tables are not as MLflow 3 has them.

    """
    runs, kind = _table("runs", "run_uuid", "name", "start_time", "status", "lifecycle_stage", "experiment_id"), _tags()
    measurements = (
        sa.select(runs.c.run_uuid, runs.c.name, runs.c.start_time)
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
            found = {i: LoggedRun(i, name, started) for i, name, started in connection.execute(measurements)}
            wanted = found.keys() & set(run_ids) if run_ids else _passing(connection, found, chosen or FilterConfig())
            every, found = len(found), {run_id: run for run_id, run in found.items() if run_id in wanted}
            if 2 * len(found) > every:
                _read(connection, found, measurements.subquery())
            else:
                for at in range(0, len(found), _RUNS):
                    _read(connection, found, sorted(found)[at : at + _RUNS])
    finally:
        engine.dispose()
    return list(found.values())


def curves(uri: str, run_id: str, names: Iterable[str]) -> dict[str, dict[int, float]]:
    """The values of some metrics of a run by their step, those of each name.

    MLflow asks for one name of one run, for which SQLite reads that name's values of every run of the store.

    Raises:
        SQLAlchemyError: the tables are not as MLflow 3 has them.

    """
    rows, wanted = _table("metrics", "run_uuid", "key", "step", "value"), set(names)
    found: dict[str, dict[int, float]] = {name: {} for name in wanted}
    engine = _engine(uri)
    try:
        with engine.connect() as connection:
            asked = sa.select(rows.c.key, rows.c.step, rows.c.value, rows.c.is_nan).where(rows.c.run_uuid == run_id)
            for name, step, value, is_nan in connection.execute(asked):
                if name in wanted:
                    found[name][step] = math.nan if is_nan else value
    finally:
        engine.dispose()
    return found


def _read(connection: sa.Connection, found: dict[str, LoggedRun], some: Sequence[str] | sa.Subquery) -> None:
    """Fill in the params, tags and metrics of some of the runs."""
    for name, known in (("params", "params"), ("tags", "tags"), ("latest_metrics", "metrics")):
        rows = _table(name, "run_uuid", "key", "value").alias()
        query = sa.select(rows.c.run_uuid, rows.c.key, rows.c.value)
        if isinstance(some, sa.Subquery):
            query = query.select_from(some.join(rows, rows.c.run_uuid == some.c.run_uuid))
        else:
            query = query.where(rows.c.run_uuid.in_(some))
        if name == "latest_metrics":
            query = query.where(rows.c.is_nan == sa.false())
        for part in connection.execute(query).partitions(_ROWS):
            for run_id, key, value in part:
                if run_id in found:  # one that ended in between is not there yet
                    getattr(found[run_id], known)[key] = value


def _passing(connection: sa.Connection, found: Iterable[str], chosen: FilterConfig) -> set[str]:
    """The runs that pass the filters, and those with a fingerprint of these; all where none passes."""
    patterns = {tag: getattr(chosen, name) for name, tag in _FILTERED.items() if getattr(chosen, name)}
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
