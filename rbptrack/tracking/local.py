"""A local store: a SQLite database with its artifacts in a folder beside it, and what can be wrong with one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

from filelock import FileLock

from rbptrack.base.errors import BadInput
from rbptrack.base.files import kind_of, make_folder
from rbptrack.base.names import file_name
from rbptrack.base.words import counted

_TABLES = {
    *("alembic_version", "experiments", "experiment_tags", "runs", "params", "tags", "metrics", "latest_metrics"),
    *("inputs", "datasets"),
}


def database_of(uri: str) -> Path | None:
    """Return the SQLite file of a tracking URI; None for servers and other databases."""
    return Path(unquote(uri.removeprefix("sqlite:///").split("?")[0])) if uri.startswith("sqlite:") else None


def artifact_folder(database: Path, experiment: str) -> Path:
    """Return the folder of an experiment's artifacts, beside the database."""
    return database.parent / "artifacts" / file_name(experiment)


def is_made(database: Path) -> bool:
    """Return whether a store exists; an empty file is none."""
    return database.exists() and database.stat().st_size > 0


def reading(database: Path, *, untouched: bool = False) -> sqlite3.Connection:
    """Return a connection that cannot write; `untouched`: nothing is made beside the database either, not for a
    moment.
    """
    options = "mode=ro&immutable=1" if untouched else "mode=ro"
    return sqlite3.connect(f"file:{quote(str(database))}?{options}", uri=True)


def writable(database: Path) -> bool:
    """Return whether a database that is there can be written, with the files that SQLite puts beside it."""
    return os.access(database, os.W_OK) and os.access(database.parent, os.W_OK)


def copied(database: Path, folder: Path) -> Path:
    """Copy a database into a folder, with what its write-ahead log holds; returns the copy."""
    target = folder / database.name
    shutil.copyfile(database, target)
    log = database.with_name(f"{database.name}-wal")
    if log.exists():
        shutil.copyfile(log, folder / log.name)
    return target


def check_writable(database: Path) -> None:
    """Raise BadInput unless a local store can be written, or made if nothing stands at its place yet."""
    folder = database.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise BadInput(f"the tracking store {database} cannot be made: {folder} is {kind_of(folder)}, not a folder")
    if os.path.lexists(database):
        check_ours(database)
    target = database if database.exists() else folder
    if not os.access(target, os.W_OK) or not os.access(folder, os.W_OK):
        raise BadInput(f"the tracking store {database} is not writable: check the permissions of {target}")
    if not database.exists():
        try:  # permissions tell nothing of folders such as /proc
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise BadInput(f"the tracking store {database} cannot be made: {error.strerror} in {folder}") from error


def check_ours(database: Path) -> None:
    """Raise BadInput unless what stands at a local store's place is a database of MLflow, with all that one needs.

    Anything else would be taken for a store without measurements, and replaced or filled with tables.
    """
    if not database.is_file():
        raise BadInput(f"{database} is {kind_of(database)}, no tracking store: give another tracking.uri")
    if not database.stat().st_size:
        raise BadInput(f"{database} is an empty file, no tracking store: remove it, or restore it from a copy")
    try:
        with closing(reading(database)) as connection:
            tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):  # another program is at work in it: measurements wait until it has ended
            return
        raise BadInput(f"the tracking store {database} is not a readable database: {error}") from error
    check_tables(str(database), tables)


def check_tables(shown: str, tables: Collection[str]) -> None:
    """Raise BadInput where a database that holds tables lacks some of a store; MLflow would make them anew, empty."""
    lacking = sorted(_TABLES - set(tables))
    if not lacking:
        return
    if set(lacking) == _TABLES:
        raise BadInput(f"{shown} is no tracking store: it holds no table of MLflow's. Give another tracking.uri")
    raise BadInput(
        f"the tracking store {shown} is damaged: it lacks {counted(len(lacking), 'table')} of MLflow "
        f"({', '.join(lacking)}). Restore it from a copy"
    )


@cache
def commit_durably() -> None:
    """Let every commit of this process into a SQLite file wait for the disk, as SQLite does unless built otherwise."""
    from sqlalchemy import Engine, event  # here, because Tab completion reads databases and cannot wait

    @event.listens_for(Engine, "connect")
    def _wait(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("pragma synchronous=FULL")


def index_tags(database: Path) -> None:
    """Let a run be found by its tags without reading those of all runs; MLflow has no index for it.

    Without it, every cell that a sweep skips costs the time of reading a row of each measurement in the store.
    """
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create index if not exists rbptrack_tags on tags (key, value)")


def tag_values(database: Path, tag: str) -> set[str]:
    """Return the values of a measurement's tag (`family`) in a store, for Tab completion, which cannot wait."""
    query = "select distinct value from tags where key = ? and value != ''"
    return {value for (value,) in _at_once(database, query, f"rbptrack.{tag}")}


def measured(database: Path) -> set[str]:
    """Return `nano-6k/stdlib`, for every measurement in a store, for Tab completion."""
    query = (
        "select m.value || '/' || d.value from tags m join tags d on d.run_uuid = m.run_uuid and d.key = ? "
        "where m.key = 'rbptrack.model'"
    )
    return {name for (name,) in _at_once(database, query, "rbptrack.dataset")}


def metrics(database: Path) -> list[str]:
    """Return the metrics `ce` and `rbp_<k>` in a store, for Tab completion."""
    query = "select distinct key from latest_metrics where key = ? or key glob 'rbp_[0-9]*'"
    names = {name for (name,) in _at_once(database, query, "ce")}
    return sorted(names, key=lambda name: (len(name), name))


def _at_once(database: Path, query: str, value: str) -> list[tuple[str]]:
    if not database.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=0.2)) as connection:
            return connection.execute(query, (value,)).fetchall()
    except sqlite3.Error:
        return []


@contextmanager
def alone(database: Path) -> Iterator[None]:
    """Hold a store's lock: several processes that make or relocate it at once would break it."""
    make_folder(database.parent)
    with FileLock(database.with_name(f"{database.name}.lock")):
        yield
