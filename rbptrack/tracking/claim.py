"""Who measures what: a sweep waits for a run that another process is at work on; what ended twice counts once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rbptrack.base.files import make_folder, write_whole
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.process import STALE_SECONDS, alive, seconds_silent, where
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import RECORD_FILE, RUN_FILE, Record
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.writer import Writer

_POLL_SECONDS = 2.0


def find_after_others(reader: Reader, fingerprint: str, folder: Path, *, tell: Callable[[str], None]) -> str | None:
    """Wait while another living process measures this fingerprint; returns the finished run's id, None where none is.

    Two processes that begin in the same moment do not see each other: both measure, and `keep_one` keeps one run.

    Args:
        reader: of the store.
        fingerprint: of the measurement.
        folder: of the unfinished measurement; the run that it began is its own.
        tell: shows a line where another process is waited for.

    """
    if others := _at_work(reader, fingerprint, folder):
        tell(f"{others[0].name}: waiting for {where(others[0].tags)}, which is already measuring it")
        while _at_work(reader, fingerprint, folder):
            time.sleep(_POLL_SECONDS)
    return reader.find(fingerprint)


def _at_work(reader: Reader, fingerprint: str, folder: Path) -> list[LoggedRun]:
    """Return runs in which another living process, heard of lately, measures a fingerprint now."""
    if not reader.connection.exists:
        return []
    own = begun(folder)
    running = reader.measurements(fingerprint, status="RUNNING")
    return [r for r in running if r.run_id != own and seconds_silent(r.tags) < STALE_SECONDS and alive(r.tags)]


def begin(connection: Connection, record: Record, folder: Path) -> str:
    """Begin a measurement's run, or continue the one that this folder's measurement began; returns its id."""
    reader = Reader(connection)
    writer = Writer(connection)
    earlier = begun(folder) or _unnoted(reader, folder)
    if earlier and (writer.holds(earlier) or writer.resume(earlier, tags=record.tags)):
        _note(folder, RUN_FILE, earlier)
        return earlier
    _note(folder, RECORD_FILE, record.tags[Tag.RECORD])
    run_id = writer.begin(record.name, record.tags, started=record.started)
    _note(folder, RUN_FILE, run_id)
    for run in reader.search({Tag.RECORD: record.tags[Tag.RECORD]}):
        if run.run_id != run_id:  # begun twice, because the server's first answer was lost
            writer.withdraw(run.run_id)
    return run_id


def begun(folder: Path) -> str:
    """Return the id of the run that a folder's measurement began; empty if it began none."""
    file = folder / RUN_FILE
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def _unnoted(reader: Reader, folder: Path) -> str:
    """Return the id of a run that the folder's measurement began in a process that was killed before it could note
    it.
    """
    file = folder / RECORD_FILE
    if not file.exists():
        return ""
    runs = reader.search({Tag.RECORD: file.read_text(encoding="utf-8").strip()}, limit=1)
    return runs[0].run_id if runs else ""


def _note(folder: Path, name: str, text: str) -> None:
    make_folder(folder)
    write_whole(folder / name, text)


def give_up(connection: Connection, folder: Path) -> None:
    """Delete the unfinished run that this folder's measurement began: another run has finished it."""
    if run_id := begun(folder) or _unnoted(Reader(connection), folder):
        Writer(connection).withdraw(run_id)


def keep_one(connection: Connection, record: Record, run_id: str, *, tell: Callable[[str], None]) -> str:
    """Keep the run with the smallest ID of those that finished the same measurement; returns that ID.

    The others are marked as its duplicates and no longer count as measured. The last to finish sees them all, so
    that every process keeps the same one. Measurements that were made again by force replace older ones instead.

    Args:
        connection: to the store.
        record: the measurement.
        run_id: of the run that this process has finished.
        tell: shows a line per duplicate.

    """
    if Tag.FORCED in record.tags:
        return run_id
    runs = Reader(connection).finished_with_ranks(record.fingerprint)
    ids = sorted(run.run_id for run in runs if Tag.FORCED not in run.tags)
    for duplicate in ids[1:]:
        tell(f"{record.name} was measured twice: run {ids[0]} is read, run {duplicate} is marked as its duplicate")
        Writer(connection).set_aside(duplicate, Tag.DUPLICATE, ids[0], status="KILLED")
    return ids[0] if ids else run_id


def repair(connection: Connection) -> list[str]:
    """Mark as KILLED what processes that no longer live left RUNNING; returns the names of those runs."""
    if not connection.exists:
        return []
    reader = Reader(connection)
    writer = Writer(connection)
    dead: list[str] = []
    for run in reader.search(status="RUNNING", analyses=True):
        # Another program's runs in the same experiment are its own affair. A dead one may have been resumed since.
        if Tag.KIND in run.tags and not alive(run.tags) and not alive(reader.run(run.run_id).tags):
            writer.end(run.run_id, "KILLED")
            dead.append(run.name)
    return dead
