"""A local store that was copied or moved: MLflow keeps the absolute address of each artifact."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rbptrack.base.errors import BadInput
from rbptrack.console.output import program
from rbptrack.tracking.local import artifact_folder, reading

_ADDRESSES = {"experiments": "artifact_location", "runs": "artifact_uri", "logged_models": "artifact_location"}
"""The tables that hold addresses of artifacts, and their columns; MLflow before 3 has no models among them."""


def stood_in(database: Path, artifacts: str, experiment: str, *, surely: bool = False) -> Path | None:
    """Return the folder in which a store stood when its artifact addresses were written; None if it stands there still.

    `surely`: it is known to have moved, so that the artifacts need not have come along.
    """
    there = _path(artifacts)
    beside = artifact_folder(database, experiment)
    if there is None or there.resolve() == beside.resolve():
        return None
    for folder in there.parents:
        if folder.resolve() == database.parent.resolve():
            return None
        if _holds(folder / database.name, artifacts):  # it was copied, and the original is there
            return folder
    usual = there.parts[-2:] == ("artifacts", beside.name)
    return there.parents[1] if usual and (surely or beside.is_dir()) else None  # else tracking.artifacts=... said where


def _path(address: str) -> Path | None:
    if not address.startswith(("file:", "/")):
        return None
    return Path(unquote(urlsplit(address).path) if address.startswith("file:") else address)


def _holds(database: Path, artifacts: str) -> bool:
    """Return whether another store's database has this artifact address; nothing is changed there, not even for a
    moment.
    """
    if not database.is_file():
        return False
    try:
        with closing(reading(database, untouched=True)) as connection:
            query = "select 1 from experiments where artifact_location = ?"
            return connection.execute(query, (artifacts,)).fetchone() is not None
    except sqlite3.Error:
        return False


def check_files(database: Path, old: Path, tables: Path) -> None:
    """Raise BadInput if a copied store lacks artifacts that are still where it was copied from.

    `tables` is the database that is read: itself, or its copy where it cannot be written.
    """
    with closing(reading(tables)) as connection:
        addresses = [row[0] for row in connection.execute("select artifact_uri from runs where artifact_uri != ''")]
    lacking = 0
    for there in filter(None, map(_path, addresses)):
        if there.is_relative_to(old) and there.exists():
            lacking += not (database.parent / there.relative_to(old)).exists()
    if lacking:
        source = shlex.quote(str(old / "artifacts"))
        target = shlex.quote(str(database.parent))
        raise BadInput(
            f"the tracking store {database} was copied from {old} without the artifacts of {lacking} runs.\n"
            f"Repair: cp -an {source} {target}/, or go on without them: "
            f"{program()} sync moved=true tracking.uri=sqlite:///{database}"
        )


def relocate(database: Path, old: Path) -> int:
    """Return point the artifact addresses that lie under a store's old folder at its present one; returns how many.

    All of them change in one transaction, and no others.
    """
    changed = 0
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        connection.execute("begin immediate")
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        for before, after in ((old.as_uri(), database.parent.as_uri()), (str(old), str(database.parent))):
            for table, column in _ADDRESSES.items():
                query = (
                    f"update {table} set {column} = ? || substr({column}, ?) where substr({column}, 1, ?) = ? || '/'"  # noqa: S608
                )
                values = (after, len(before) + 1, len(before) + 1, before)
                changed += connection.execute(query, values).rowcount if table in tables else 0
    return changed


def repair(database: Path, experiment: str) -> int:
    """Relocate a store that was moved, with its artifacts or without; returns how many paths changed."""
    with closing(reading(database)) as connection:
        query = "select artifact_location from experiments where name = ?"
        row = connection.execute(query, (experiment,)).fetchone()
    if row is None:
        raise BadInput(f"{database} has no experiment {experiment!r}; choose one: tracking.experiment=NAME")
    old = stood_in(database, row[0], experiment, surely=True)
    return relocate(database, old) if old else 0


def located(address: str, database: Path, old: Path) -> str:
    """Return the address of an artifact in a copied store that cannot be written and so keeps its addresses."""
    there = _path(address)
    if there is None or not there.is_relative_to(old):
        return address
    return (database.parent / there.relative_to(old)).as_uri()
