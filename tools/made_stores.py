"""Stores of many made measurements, on SQLite and on PostgreSQL.

The rows of real measurements, of the seven embedded models, are copied under other names; their artifacts are shared. A
family is ten sizes on five datasets, whose numbers are those of the models in the order of their sizes, so that a law
holds as it does in real stores. A store that is there already is not made again.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.config.schema import TrackingConfig
from rbptrack.tracking.store import Store

SIZES, DATASETS = 10, 5  # of each family
FAMILY = SIZES * DATASETS
TABLES = ("runs", "params", "tags", "latest_metrics", "metrics")
DATABASE = "mlruns/mlflow.db"
_AT_ONCE = 500  # measurements

Rows = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""


def seed(folder: Path) -> Path:
    """Return the folder of a store with the real measurements from which the others are copied."""
    if not (folder / DATABASE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["-m", "model=nano/*", "dataset=pydocs", "dataset.documents=20", "analyzers=[]"]
        subprocess.run([sys.executable, "-m", "rbptrack", *words], cwd=folder, check=True)
    return folder


def on_sqlite(seed: Path, folder: Path, n: int) -> Path:
    """Return the folder of a SQLite store of n measurements."""
    if not folder.exists():
        began, unfinished = time.monotonic(), folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(seed, unfinished)
        with closing(sqlite3.connect(unfinished / DATABASE)) as store:
            store.execute("pragma synchronous=off")
            for table in reversed(TABLES):
                store.execute(f"delete from {table}")
            (experiment,) = store.execute("select experiment_id from experiments where name='rbptrack'").fetchone()
            columns, parts = copies(seed, n, experiment)
            for rows in parts:
                for table in TABLES:
                    marks = ",".join("?" * len(columns[table]))
                    store.executemany(f"insert into {table} values ({marks})", rows[table])
                store.commit()
        unfinished.rename(folder)
        Store(TrackingConfig(uri=f"sqlite:///{folder / DATABASE}")).open()  # a copy is made its own once
        print(f"{n:,} measurements on SQLite written in {time.monotonic() - began:.0f} s", flush=True)
    return folder


@contextmanager
def postgres(folder: Path) -> Iterator[Any]:
    """Yield a database server of this machine, for as long as the block lasts; its databases stay in the folder."""
    from tests import server

    place = server.Server(0, server.free_port())
    folder.mkdir(parents=True, exist_ok=True)
    with server._postgres(folder, place.database_port):
        yield place
        server._sql(place, "checkpoint")


def on_postgres(seed: Path, server: Any, n: int, *, artifacts: Path) -> str:
    """Return the address of a database of n measurements."""
    import psycopg

    name, unfinished, began = f"made_{n}", f"unfinished_{n}", time.monotonic()
    with psycopg.connect(server.database(name="postgres"), autocommit=True) as admin:
        if admin.execute("select 1 from pg_database where datname = %s", (name,)).fetchone():
            return str(server.database(name=name))
        admin.execute(f"drop database if exists {unfinished}")  # type: ignore[call-overload]
        admin.execute(f"create database {unfinished}")  # type: ignore[call-overload]
    uri = server.database(name=unfinished)
    Store(TrackingConfig(uri=uri, artifacts=str(artifacts))).open()
    with psycopg.connect(uri) as store:
        store.execute("set session_replication_role = replica")  # no foreign key is looked up: all are made here
        experiment = store.execute("select experiment_id from experiments where name='rbptrack'").fetchone()
        assert experiment
        columns, parts = copies(seed, n, experiment[0])
        flags = {table: columns[table].index("is_nan") for table in TABLES if "is_nan" in columns[table]}
        for rows in parts:
            for table in TABLES:
                named, flag = ",".join(f'"{c}"' for c in columns[table]), flags.get(table)
                with store.cursor().copy(f"copy {table} ({named}) from stdin") as copy:
                    for row in rows[table]:
                        copy.write_row(row if flag is None else (*row[:flag], bool(row[flag]), *row[flag + 1 :]))
            store.commit()
        store.execute("analyze")
    with psycopg.connect(server.database(name="postgres"), autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (unfinished,))
        admin.execute(f"alter database {unfinished} rename to {name}")  # type: ignore[call-overload]
    print(f"{n:,} measurements on PostgreSQL written in {time.monotonic() - began:.0f} s", flush=True)
    return str(server.database(name=name))


def copies(seed: Path, n: int, experiment: int) -> tuple[dict[str, list[str]], Iterator[Rows]]:
    """Yield the columns of each table, and the rows of n measurements, some hundreds of measurements at a time."""
    with closing(sqlite3.connect(seed / DATABASE)) as database:
        by_size = (
            "select run_uuid from params where key='model.non_embedding_params' and run_uuid in "
            "(select run_uuid from tags where key='rbptrack.kind' and value='measurement') order by cast(value as integer)"
        )
        real = [run for (run,) in database.execute(by_size)]

        def rows(table: str, run: str) -> tuple[list[str], list[tuple[Any, ...]]]:
            cursor = database.execute(f"select * from {table} where run_uuid = ?", (run,))
            return [c[0] for c in cursor.description], cursor.fetchall()

        models = [{t: rows(t, run) for t in TABLES} for run in real]

    def made() -> Iterator[Rows]:
        for begin in range(0, n, _AT_ONCE):
            part: Rows = {t: [] for t in TABLES}
            for i in range(begin, min(n, begin + _AT_ONCE)):
                for table, new in _measurement(models[i % SIZES * len(models) // SIZES], i, experiment):
                    part[table].append(new)
            yield part

    return {t: columns for t, (columns, _) in models[0].items()}, made()


def _measurement(
    tables: dict[str, tuple[list[str], list[tuple[Any, ...]]]], i: int, experiment: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the rows of measurement i, each with its table, from those of a real one."""
    size, dataset, family = i % SIZES, i // SIZES % DATASETS, i // FAMILY
    s = 1e6 * 3.0**size
    values = {
        "rbptrack.family": f"f{family:05d}",
        "rbptrack.size": f"{size}m",
        "rbptrack.model": f"f{family:05d}-{size}m",
        "rbptrack.dataset": f"d{dataset}",
        "rbptrack.fingerprint": f"{i:032x}",
        "rbptrack.record": f"record-{i}",
        "mlflow.runName": f"f{family:05d}-{size}m / d{dataset}",
        "model.non_embedding_params": str(int(s)),
        "dataset.texts_hash": f"texts of d{dataset}",
        "model.name": f"f{family:05d}",
    }
    for table, (columns, rows) in tables.items():
        place = {c: j for j, c in enumerate(columns)}
        for row in rows:
            new = list(row)
            new[place["run_uuid"]] = f"{i:032x}"
            if table == "runs":
                new[place["name"]], new[place["experiment_id"]] = values["mlflow.runName"], experiment
                new[place["start_time"]] += i
            elif row[place["key"]] in values:
                new[place["value"]] = values[row[place["key"]]]
            elif table.endswith("metrics") and row[place["key"]].endswith("non_embedding_params"):
                new[place["value"]] = s if row[place["key"]][0] == "n" else float(np.log10(s))
            yield table, tuple(new)
