"""A local store: a SQLite database with its artifacts in a folder beside it, and what can be wrong with one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import weakref
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rbptrack.errors import BadInput
from rbptrack.names import file_name


class TemporaryFolder:
    """A temporary folder that is removed when nothing refers to it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="rbptrack-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def database_of(uri: str) -> Path | None:
    """The SQLite file of a tracking URI; None for servers and other databases."""
    return Path(unquote(uri.removeprefix("sqlite:///").split("?")[0])) if uri.startswith("sqlite:") else None


def artifact_folder(database: Path, experiment: str) -> Path:
    """The folder of an experiment's artifacts, beside the database."""
    return database.parent / "artifacts" / file_name(experiment)


def writable(database: Path) -> bool:
    """Whether a database that is there can be written, with the files that SQLite puts beside it."""
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
    """BadInput unless a local store can be written, or made if it does not exist yet."""
    folder = database.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise BadInput(f"the tracking store {database} cannot be made: {folder} is not a folder")
    target = database if database.exists() else folder
    if not os.access(target, os.W_OK) or not os.access(folder, os.W_OK):
        raise BadInput(f"the tracking store {database} is not writable: check the permissions of {target}")
    if not database.exists():
        try:  # permissions tell nothing of folders such as /proc
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise BadInput(f"the tracking store {database} cannot be made: {error.strerror} in {folder}") from error
    else:
        try:
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                connection.execute("select count(*) from sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            raise BadInput(f"the tracking store {database} is not a readable database: {error}") from error


def check_not_moved(database: Path, artifacts: str, experiment: str) -> None:
    """BadInput if a local store was moved: MLflow keeps absolute paths to the artifacts."""
    here = artifact_folder(database, experiment)
    there = Path(unquote(urlsplit(artifacts).path))
    if artifacts.startswith("file:") and here != there and here.is_dir() and not there.exists():
        raise BadInput(
            f"the tracking store {database} was moved: its runs look for artifacts under {there}, which is gone.\n"
            f"Repair: python -m rbptrack sync moved=true tracking.uri=sqlite:///{database}"
        )


def relocate(database: Path, experiment: str) -> int:
    """Point a moved store's artifact addresses at the folder beside its database; returns how many changed.

    All addresses change in one transaction, and only those under the experiment's old folder.
    """
    new = artifact_folder(database, experiment).as_uri()
    with closing(sqlite3.connect(database)) as connection, connection:
        rows = connection.execute("select artifact_location from experiments where name = ?", (experiment,)).fetchone()
        if rows is None:
            raise BadInput(f"{database} has no experiment {experiment!r}; choose one: tracking.experiment=NAME")
        old = rows[0]
        changed = 0
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            changed += connection.execute(
                f"update {table} set {column} = ? || substr({column}, ?) where {column} = ? or {column} like ? || '/%'",  # noqa: S608
                (new, len(old) + 1, old, old),
            ).rowcount
    return changed


def index_tags(database: Path) -> None:
    """Let a run be found by its tags without reading those of all runs; MLflow has no index for it.

    Without it, every cell that a sweep skips costs the time of reading a row of each measurement in the store.
    """
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create index if not exists rbptrack_tags on tags (key, value)")


def allow_concurrent_writers(database: Path) -> None:
    """Switch a new database to write-ahead logging, in which concurrent writers wait a third of the time."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("pragma journal_mode=WAL")
