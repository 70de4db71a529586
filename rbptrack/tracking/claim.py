"""One process measures each measurement: among the processes and users of a store, and after one that was killed."""

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

_CONTEST_SECONDS = 15.0
_PENDING_SECONDS = 4 * _CONTEST_SECONDS  # a claim that is pending for longer was lost on its way
_POLL_SECONDS = 2.0
_PENDING, _HELD = "pending", "held"


def claim(connection: Connection, record: Record, folder: Path, *, tell: Callable[[str], None]) -> tuple[str, bool]:
    """Begin a measurement's run, or continue the one that this folder's measurement began.

    If another process is at work on the same fingerprint, this one waits until it has ended. There is no lock that all
    stores offer for two that begin at once; so each first writes that it wants to measure (claim: pending), then looks
    for others. A process whose claim is held wins; of two pending ones, the one with the smaller run id wins. One that
    finds the measurement finished gives up its own run.

    Returns:
        The run's id, and whether the measurement is finished there already.

    """
    reader, writer = Reader(connection), Writer(connection)
    while True:
        mine = begun(folder)
        held = bool(mine) and writer.holds(mine, claim=_HELD)
        if others := _before(reader, record, mine, held=held):
            tell(f"{record.name}: {where(others[0].tags)} is measuring it; waiting until it has ended")
            while _before(reader, record, mine, held=held):
                time.sleep(_POLL_SECONDS)
        if earlier := reader.find(record.fingerprint):
            if earlier != mine:
                _give_up(reader, writer, folder)
            return earlier, True
        if held:
            return mine, False
        run_id = _begin(reader, writer, record, folder)
        if _wins(reader, record, run_id):
            if earlier := reader.find(record.fingerprint):  # in the moment before the claim
                _give_up(reader, writer, folder)
                return earlier, True
            writer.log(run_id, tags={Tag.CLAIM: _HELD})
            for run in reader.search({Tag.RECORD: record.tags[Tag.RECORD]}):
                if run.run_id != run_id:  # begun twice, because the server's first answer was lost
                    writer.withdraw(run.run_id)
            return run_id, False
        _give_up(reader, writer, folder)


def _before(reader: Reader, record: Record, mine: str, *, held: bool) -> list[LoggedRun]:
    """Return other living processes' runs that this one waits for.

    Where two hold the claim, because one was silent for so long that it looked dead, the smaller run id goes first.
    """
    others = _at_work(reader, record, but=mine)
    if not held:
        return others
    return [run for run in others if run.tags.get(Tag.CLAIM) == _HELD and run.run_id < mine]


def begun(folder: Path) -> str:
    """Return the id of the run that a folder's measurement began; empty if it began none."""
    file = folder / RUN_FILE
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def _begin(reader: Reader, writer: Writer, record: Record, folder: Path) -> str:
    before, pending = begun(folder) or _unnoted(reader, folder), record.tags | {Tag.CLAIM: _PENDING}
    if before and writer.resume(before, tags=pending):
        _note(folder, RUN_FILE, before)
        return before
    _note(folder, RECORD_FILE, record.tags[Tag.RECORD])
    run_id = writer.begin(record.name, pending, started=record.started)
    _note(folder, RUN_FILE, run_id)
    return run_id


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


def _give_up(reader: Reader, writer: Writer, folder: Path) -> None:
    if mine := begun(folder) or _unnoted(reader, folder):
        writer.withdraw(mine)
    for name in (RUN_FILE, RECORD_FILE):
        (folder / name).unlink(missing_ok=True)


def _wins(reader: Reader, record: Record, run_id: str) -> bool:
    """Return whether this run, and no other process's, is the one to measure the fingerprint."""
    deadline = time.monotonic() + _CONTEST_SECONDS
    while time.monotonic() < deadline:
        others = _at_work(reader, record, but=run_id)
        if not others:
            return True
        if any(run.tags.get(Tag.CLAIM) == _HELD or run.run_id < run_id for run in others):
            return False
        time.sleep(_POLL_SECONDS / 10)
    return True  # a process whose claim stays pending, and that does not withdraw, has died


def _at_work(reader: Reader, record: Record, *, but: str) -> list[LoggedRun]:
    """Return runs in which another living process measures this fingerprint now."""
    running = reader.measurements(record.fingerprint, status="RUNNING")
    others = [run for run in running if run.run_id != but and run.tags.get(Tag.RECORD) != record.tags[Tag.RECORD]]
    return [run for run in others if _is_fresh(run) and alive(run.tags)]


def _is_fresh(run: LoggedRun) -> bool:
    """Return whether a run's process was heard of lately: one that lives may have lost it, or wait for another's
    itself.
    """
    limit = STALE_SECONDS if run.tags.get(Tag.CLAIM) == _HELD else _PENDING_SECONDS
    return seconds_silent(run.tags) < limit


def repair(connection: Connection) -> list[str]:
    """Mark as KILLED what processes that no longer live left RUNNING; returns the names of those runs."""
    if not connection.exists:
        return []
    reader, writer, dead = Reader(connection), Writer(connection), list[str]()
    for run in reader.search(status="RUNNING", analyses=True):
        # Another program's runs in the same experiment are its own affair. A dead one may have been resumed since.
        if Tag.KIND in run.tags and not alive(run.tags) and not alive(reader.run(run.run_id).tags):
            writer.end(run.run_id, "KILLED")
            dead.append(run.name)
    return dead
