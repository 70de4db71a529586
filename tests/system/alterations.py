"""Lists alterations of a run in a store. Each one damages a metric, a param, a tag, a curve, a file or the record.

An alteration has a name, which tests print, and a function without arguments. The run is altered when the function is
called, not when the alteration is listed.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rbptrack.measurement.document import names_of
from rbptrack.measurement.parts import Label

Alteration = Callable[[], None]
IGNORED = ("rbptrack.kind", "rbptrack.writer", *(f"rbptrack.{label}" for label in names_of(Label)))
"""Tags that `verify` does not check, because they are labels, or no part of the record."""


def alterations_of(
    database: sqlite3.Connection, run_id: str, artifacts: Path, other: Path
) -> Iterator[tuple[str, Alteration]]:
    """Yield the name of each alteration of a run, and a function that makes it.

    Args:
        database: MLflow's database.
        run_id: the ID of the run to alter.
        artifacts: the folder of the run's files.
        other: the folder of another run's files, which replace the files of this run in some alterations.

    """
    yield from _alter_metrics(database, run_id)
    yield from _alter_texts(database, run_id, "param", "")
    yield from _alter_texts(database, run_id, "tag", "rbptrack.")
    yield from _alter_curve(database, run_id)
    yield from _add_values(database, run_id)
    for path in sorted(artifacts.iterdir()):
        if path.suffix == ".png":  # rbptrack never reads pictures
            continue
        yield from _alter_file(path, other / path.name)
    yield from _alter_record(artifacts / "record.json")


def _alter_metrics(database: sqlite3.Connection, run_id: str) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that change the last bit of a metric or delete it, for each metric.

    They alter the table `latest_metrics`. rbptrack reads all metrics from this table, except the curve of RBP_k.
    """
    rows = database.execute("select key, value from latest_metrics where run_uuid = ?", (run_id,))
    for name, value in rows.fetchall():
        if name != "rbp_curve":
            update = "update latest_metrics set value = ? where key = ? and run_uuid = ?"
            delete = "delete from latest_metrics where key = ? and run_uuid = ?"
            yield f"metric {name} by one bit", partial(_sql, database, update, _flip_last_bit(value), name, run_id)
            yield f"metric {name} deleted", partial(_sql, database, delete, name, run_id)


def _alter_texts(database: sqlite3.Connection, run_id: str, kind: str, prefix: str) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that lengthen or delete a param or tag, for each one whose name begins with a prefix.

    Args:
        database: MLflow's database.
        run_id: the ID of the run to alter.
        kind: `param` or `tag`.
        prefix: the prefix. It is empty for all names.

    """
    rows = database.execute(f"select key from {kind}s where run_uuid = ?", (run_id,))
    for (name,) in rows.fetchall():
        if name.startswith(prefix) and name not in IGNORED:
            lengthen = f"update {kind}s set value = value || '1' where key = ? and run_uuid = ?"
            delete = f"delete from {kind}s where key = ? and run_uuid = ?"
            yield f"{kind} {name} longer", partial(_sql, database, lengthen, name, run_id)
            yield f"{kind} {name} deleted", partial(_sql, database, delete, name, run_id)


def _alter_curve(database: sqlite3.Connection, run_id: str) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that change, move or delete a point of the curve of RBP_k, for each point.

    A point is a step of the metric `rbp_curve`. The step is k, and the value RBP_k.
    """
    rows = database.execute("select step, value from metrics where key = 'rbp_curve' and run_uuid = ?", (run_id,))
    condition = "key = 'rbp_curve' and step = ? and run_uuid = ?"
    for step, value in rows.fetchall():
        update = f"update metrics set value = ? where {condition}"
        move = f"update metrics set step = 9999 where {condition}"
        delete = f"delete from metrics where {condition}"
        yield f"curve at {step} by one bit", partial(_sql, database, update, _flip_last_bit(value), step, run_id)
        yield f"curve at {step} moved", partial(_sql, database, move, step, run_id)
        yield f"curve at {step} deleted", partial(_sql, database, delete, step, run_id)


def _add_values(database: sqlite3.Connection, run_id: str) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that add a param or a metric that the measurement did not log."""
    param = "insert into params (key, value, run_uuid) values ('gguf', '7', ?)"
    metric = (
        "insert into latest_metrics select 'rbp_7', value, timestamp, step, is_nan, run_uuid from latest_metrics "
        "where key = 'ce' and run_uuid = ?"
    )
    yield "param added", partial(_sql, database, param, run_id)
    yield "metric added", partial(_sql, database, metric, run_id)


def _alter_file(path: Path, other: Path) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that delete, empty, cut or lengthen a file, or replace it by another run's file.

    The last one is left out if the other run has no such file, or one with the same content.

    Args:
        path: the file to alter.
        other: the file with the same name of another run.

    """
    content = path.read_bytes()
    yield f"{path.name} deleted", path.unlink
    yield f"{path.name} empty", partial(_write, path, b"")
    yield f"{path.name} cut", partial(_write, path, content[:-1])
    yield f"{path.name} longer", partial(_write, path, content + b" ")
    if other.exists() and other.read_bytes() != content:
        yield f"{path.name} of another run", partial(_write, path, other.read_bytes())


def _alter_record(path: Path) -> Iterator[tuple[str, Alteration]]:
    """Yield functions that change one value of the record, for each part of it. The record remains valid JSON."""
    for section, name in (
        ("measurement", "ce"),
        ("measurement", "dtype"),
        ("measurement", "family"),
        ("files", "ranks.parquet"),
    ):
        record = json.loads(path.read_text())
        value = record[section][name]
        record[section][name] = value + 1e-12 if isinstance(value, float) else value + "0"
        text = json.dumps(record, indent=1, sort_keys=True)
        yield f"record with another {name}", partial(_write, path, text.encode())


def _sql(database: sqlite3.Connection, statement: str, *values: object) -> None:
    """Execute a statement, and assert that it changes the database."""
    changed_rows = database.execute(statement, values).rowcount
    assert changed_rows > 0, statement
    database.commit()


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _flip_last_bit(value: float) -> float:
    """Flip the last bit of a value. The result is the next larger or the next smaller number."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    flipped: float = struct.unpack("<d", struct.pack("<q", bits ^ 1))[0]
    return flipped
