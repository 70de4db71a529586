"""One measurement, one measurer: among processes and users of the same store, and after one that was killed."""

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


def claim(connection: Connection, record: Record, folder: Path, *, tell: Callable[[str], None]) -> tuple[str, bool]:
    """Begin a measurement's run, or continue the one that this folder's unfinished measurement began.

    Whoever finds another at work on the same fingerprint waits until that one has ended. For two that begin at once
    there is no lock that all stores offer; so each first says that it wants to (claim: pending), then looks. One that
    was there before wins (claim: held); of two that are both pending, the one with the smaller run id.

    Args:
        connection: to the store.
        record: of the measurement; its tags become the run's.
        folder: of the unfinished measurement; remembers the run.
        tell: shows a line while another's measurement is waited for.

    Returns:
        The run's id, and whether it is finished already, by another.

    """
    reader, writer = Reader(connection), Writer(connection)
    while True:
        others = rivals(reader, record.fingerprint, "")
        if others:
            tell(f"{record.name}: being measured by {where(others[0].tags)}; waiting for it")
            while rivals(reader, record.fingerprint, ""):
                time.sleep(_POLL_SECONDS)
            if found := reader.find(record.fingerprint):
                return found, True
        mine = _begin(writer, record, folder)
        if _contest(reader, record, mine):
            writer.log(mine, tags={Tag.CLAIM: "held"})
            return mine, False
        writer.withdraw(mine)
        (folder / _RUN_FILE).unlink(missing_ok=True)


def _begin(writer: Writer, record: Record, folder: Path) -> str:
    file = folder / _RUN_FILE
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and writer.resume(before):
        return before
    run_id = writer.begin(record.name, record.tags | {Tag.CLAIM: "pending"}, started=record.started)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(run_id, encoding="utf-8")
    return run_id


def _contest(reader: Reader, record: Record, mine: str) -> bool:
    deadline = time.monotonic() + _CONTEST_SECONDS
    while time.monotonic() < deadline:
        others = rivals(reader, record.fingerprint, mine)
        if not others:
            return True
        if any(r.tags.get(Tag.CLAIM) == "held" or r.run_id < mine for r in others):
            return False
        time.sleep(_POLL_SECONDS / 10)
    return True  # a pending one that neither goes on nor withdraws has died


def rivals(reader: Reader, fingerprint: str, mine: str) -> list[LoggedRun]:
    """Runs other than mine in which a living process measures this fingerprint now."""
    running = reader.measurements(fingerprint, status="RUNNING")
    return [r for r in running if r.run_id != mine and alive(r.tags)]


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
