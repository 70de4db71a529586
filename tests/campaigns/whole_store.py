"""What is wrong with a store after faults, compared with that of an undisturbed sweep; read with plain SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

# What a clock or the machine's load determines; every other number must be the undisturbed sweep's.
_OF_THE_MACHINE = (
    "engine/",
    "system/",
    "progress/",
)


class Cell(NamedTuple):
    """One finished measurement."""

    ranks: bytes  # of ranks.parquet
    histogram: bytes
    metrics: dict[tuple[str, int], list[float]]  # by name and step, every value that was logged


def cells(folder: Path) -> dict[str, list[Cell]]:
    """The finished measurements of the store in a working folder, by run name."""
    found: dict[str, list[Cell]] = {}
    with closing(_database(folder)) as database:
        for run, name, artifacts in _runs(database, "measurement", "FINISHED"):
            metrics: dict[tuple[str, int], list[float]] = {}
            for key, step, value in database.execute("select key, step, value from metrics where run_uuid = ?", (run,)):
                if not key.startswith(_OF_THE_MACHINE):
                    metrics.setdefault((key, step), []).append(value)
            place = Path(unquote(urlsplit(artifacts).path))
            tables = [
                p.read_bytes() if (p := place / n).exists() else b"" for n in ("ranks.parquet", "histogram.parquet")
            ]
            found.setdefault(name, []).append(Cell(tables[0], tables[1], metrics))
    return found


def faults(folder: Path, undisturbed: dict[str, list[Cell]], *, temporary: Path, sweeps: int) -> list[str]:
    """Everything that differs from what a working folder should hold after a sweep that came to its end.

    Args:
        folder: the working folder.
        undisturbed: cells of a sweep that nothing disturbed.
        temporary: what was TMPDIR.
        sweeps: how many sweeps came to their end; the store must have as many finished, or more.

    """
    found = [*_differences(cells(folder), undisturbed), *_droppings(folder / "mlruns"), *_temporary(temporary)]
    with closing(_database(folder)) as database:
        found += [f"database: {line}" for (line,) in database.execute("pragma integrity_check") if line != "ok"]
        found += [f"database: foreign key {row}" for row in database.execute("pragma foreign_key_check")]
        statuses = database.execute("select status, name from runs where lifecycle_stage = 'active'").fetchall()
        found += [
            f"left RUNNING: {name}" for status, name in statuses if status not in ("FINISHED", "KILLED", "FAILED")
        ]
        found += [f"FAILED: {name}" for status, name in statuses if status == "FAILED"]
        finished = len(list(_runs(database, "sweep", "FINISHED")))
        found += [f"{finished} finished sweeps of {sweeps}"] if finished < sweeps else []
    return found


def abandoned(folder: Path) -> int:
    """How many runs of measurements were begun, killed, and not continued."""
    with closing(_database(folder)) as database:
        return len(list(_runs(database, "measurement", "KILLED")))


def _differences(after: dict[str, list[Cell]], undisturbed: dict[str, list[Cell]]) -> Iterator[str]:
    for name in sorted(after.keys() | undisturbed.keys()):
        mine, wanted = after.get(name, []), undisturbed.get(name, [])
        if len(mine) != len(wanted):
            yield f"{name}: {len(mine)} finished runs, not {len(wanted)}"
            continue
        for a, b in zip(mine, wanted, strict=True):
            if a.ranks != b.ranks:
                yield f"{name}: ranks.parquet differs"
            if a.histogram != b.histogram:
                yield f"{name}: histogram.parquet differs"
            wrong = sorted({key for key, step in a.metrics.keys() | b.metrics.keys() if _wrong(a, b, (key, step))})
            if wrong:
                yield f"{name}: metrics differ or are doubled: {', '.join(wrong)}"


def _wrong(a: Cell, b: Cell, key: tuple[str, int]) -> bool:
    return a.metrics.get(key) != b.metrics.get(key)


_ROOMS = {"artifacts", "hydra", "mlflow.db", "mlflow.db-shm", "mlflow.db-wal", "mlflow.db.lock", "partial", "spool",
          "writing"}  # fmt: skip


def _droppings(runs: Path) -> Iterator[str]:
    """Files and folders in ./mlruns that only an interrupted program leaves."""
    yield from (f"left behind: mlruns/{path.name}" for path in runs.iterdir() if path.name not in _ROOMS)
    for room in ("partial", "spool"):
        for path in (runs / room).glob("*"):
            yield f"left behind: {room}/<fingerprint>{path.suffix}"
    for room in ("artifacts", "hydra"):
        for path in (runs / room).rglob("*"):
            if path.suffix == ".tmp" or path.name.startswith("tmp"):
                yield f"left behind: {path.relative_to(runs)}"


def _temporary(folder: Path) -> Iterator[str]:
    mine = [path for path in folder.glob("*") if not path.name.startswith("torchinductor_")]  # torch's own cache
    left = Counter(map(_kind, mine))
    yield from (f"left behind in TMPDIR: {kind} ({count})" for kind, count in sorted(left.items()))


def _kind(path: Path) -> str:
    """A temporary name without what is random in it, and what lies there."""
    inside = ", ".join(sorted(p.name for p in path.iterdir())[:4]) if path.is_dir() else "file"
    return f"{path.name[:3]}*: {inside or 'empty'}"


def _database(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{folder / 'mlruns/mlflow.db'}?mode=ro", uri=True)


def _runs(database: sqlite3.Connection, kind: str, status: str) -> Iterator[tuple[str, str, str]]:
    asked: Any = (kind, status)
    yield from database.execute(
        "select r.run_uuid, r.name, r.artifact_uri from runs r join tags t on t.run_uuid = r.run_uuid"
        " where t.key = 'rbptrack.kind' and t.value = ? and r.status = ? and r.lifecycle_stage = 'active'",
        asked,
    )
