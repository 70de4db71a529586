"""One process measures each measurement: among the processes and users of a store, and after one that was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rbptrack.tracking.connection import Connection
from rbptrack.tracking.frame import LoggedRun
from rbptrack.tracking.process import alive, where
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.writer import Writer

_CONTEST_SECONDS = 15.0
_POLL_SECONDS = 2.0
_RUN_FILE = "run_id"
_PENDING, _HELD = "pending", "held"


def claim(connection: Connection, record: Record, folder: Path, *, tell: Callable[[str], None]) -> tuple[str, bool]:
    """Begin a measurement's run, or continue the one that this folder's unfinished measurement began.

    If another process is at work on the same fingerprint, this one waits until it has ended. There is no lock that all
    stores offer for two that begin at once; so each first writes that it wants to measure (claim: pending), then looks
    for others. A process whose claim is held wins; of two pending ones, the one with the smaller run id wins.

    Args:
        connection: to the store.
        record: of the measurement; its tags become the run's.
        folder: of the unfinished measurement; remembers the run.
        tell: shows a line while another process's measurement is waited for.

    Returns:
        The run's id, and whether another process has finished it already.

    """
    reader, writer = Reader(connection), Writer(connection)
    while True:
        others = _at_work(reader, record.fingerprint)
        if others:
            tell(f"{record.name}: {where(others[0].tags)} is measuring it; waiting until it has ended")
            while _at_work(reader, record.fingerprint):
                time.sleep(_POLL_SECONDS)
            if found := reader.find(record.fingerprint):
                return found, True
        run_id = _begin(writer, record, folder)
        if _wins(reader, record.fingerprint, run_id):
            writer.log(run_id, tags={Tag.CLAIM: _HELD})
            return run_id, False
        writer.withdraw(run_id)
        (folder / _RUN_FILE).unlink(missing_ok=True)


def _begin(writer: Writer, record: Record, folder: Path) -> str:
    """The id of the folder's run, resumed, or of a new one."""
    file = folder / _RUN_FILE
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and writer.resume(before):
        return before
    run_id = writer.begin(record.name, record.tags | {Tag.CLAIM: _PENDING}, started=record.started)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(run_id, encoding="utf-8")
    return run_id


def _wins(reader: Reader, fingerprint: str, run_id: str) -> bool:
    """Whether this run, and no other process's, is the one to measure the fingerprint."""
    deadline = time.monotonic() + _CONTEST_SECONDS
    while time.monotonic() < deadline:
        others = [run for run in _at_work(reader, fingerprint) if run.run_id != run_id]
        if not others:
            return True
        if any(run.tags.get(Tag.CLAIM) == _HELD or run.run_id < run_id for run in others):
            return False
        time.sleep(_POLL_SECONDS / 10)
    return True  # a process whose claim stays pending, and that does not withdraw, has died


def _at_work(reader: Reader, fingerprint: str) -> list[LoggedRun]:
    """Runs in which a living process measures this fingerprint now."""
    return [run for run in reader.measurements(fingerprint, status="RUNNING") if alive(run.tags)]


def repair(connection: Connection) -> list[str]:
    """Mark as KILLED what processes that no longer live left RUNNING; returns the names of those runs."""
    if not connection.exists:
        return []
    running = Reader(connection).search("attributes.status = 'RUNNING'")
    # Another program's runs in the same experiment are its own affair.
    dead = [run for run in running if Tag.KIND in run.tags and not alive(run.tags)]
    writer = Writer(connection)
    for run in dead:
        writer.end(run.run_id, "KILLED")
    return [run.name for run in dead]
