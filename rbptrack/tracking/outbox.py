"""The outbox: finished measurements in ./mlruns/spool, each a record's folder, until their tracking store has them.

Every measurement goes through it: it is complete on disk before a store hears of it, and what a killed process or a
store that is away leaves there, the next command delivers, once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rbptrack.base.addresses import without_stars
from rbptrack.base.errors import BadInput, RbptrackError, StoreAway
from rbptrack.base.files import sync, sync_tree
from rbptrack.base.words import short_path
from rbptrack.config.paths import home, partial
from rbptrack.config.schema import FilterConfig, TrackingConfig
from rbptrack.engine.at_work import discard, locked
from rbptrack.tracking import writing
from rbptrack.tracking.claim import begin, begun, give_up, keep_one, repair
from rbptrack.tracking.connection import Connection
from rbptrack.tracking.live import Heartbeat
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import FILE, RUN_FILE, Record
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.verify import verify
from rbptrack.tracking.writer import Writer

Tell = Callable[[str], None]


def folder() -> Path:
    """Return the folder of the outbox."""
    return home() / "spool"


def waiting() -> list[Path]:
    """Return the folders of the complete records that wait, for any store, oldest first."""
    records = []
    for path in folder().glob(f"*/*/{FILE}"):
        with suppress(FileNotFoundError):  # another process has delivered it in this moment
            records.append((path.stat().st_mtime, path.parent))
    return [path for _, path in sorted(records)]


def find(connection: Connection, fingerprint: str) -> Record | None:
    """Return the record of this fingerprint that waits for a store; None if none waits."""
    for path in sorted(folder().glob(f"*/{fingerprint}.*/{FILE}"), reverse=True):
        with suppress(FileNotFoundError):  # another process has delivered it in this moment
            record = Record.read(path.parent)
            place = without_stars(record.tags[Tag.STORE]), record.tags[Tag.EXPERIMENT]
            if place == (_address(connection), connection.experiment):
                return record
    return None


def _address(connection: Connection) -> str:
    """Return a store's address as it is kept; of one below ./mlruns the relative path, which its copy has too."""
    database = connection.database
    if database is not None and database.is_relative_to(home()):
        return f"sqlite:///{database.relative_to(home().parent)}"
    return connection.shown


def _folder_of(connection: Connection) -> Path:
    name = f"{_address(connection)}\n{connection.experiment}"
    return folder() / hashlib.sha256(name.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Sent:
    """What became of a measurement."""

    run_id: str  # of its run; empty where none could begin
    waits: str  # why it waits in the outbox; empty where it was delivered


def send(connection: Connection, record: Record, measured: Path, run_id: str, *, made_from: Path, tell: Tell) -> Sent:
    """Put a finished measurement into the outbox, and deliver it.

    Args:
        connection: to the store where it belongs.
        record: complete; its artifacts are in `measured`.
        measured: the record's folder, on the disk of ./mlruns.
        run_id: the run that it began; empty if none.
        made_from: the folder of the unfinished measurement; removed when the outbox has what it gave.
        tell: shows a line.

    """
    record.tags |= {Tag.STORE: _address(connection), Tag.EXPERIMENT: connection.experiment}
    record.tags |= {Tag.ARTIFACTS: connection.new_artifacts} if connection.new_artifacts else {}
    if run_id:
        (measured / RUN_FILE).write_text(run_id, encoding="utf-8")
    record.write(measured)
    sync_tree(measured)
    path = _folder_of(connection) / f"{record.fingerprint}.{record.tags[Tag.RECORD]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        measured.rename(path)
        sync(path.parents[:4])  # its name, and those above it up to ./mlruns, which may be new and another's
        discard(made_from)
        try:
            run_id, _ = _deliver(connection, Record.read(path), path, tell=tell)
        except RbptrackError as error:
            return Sent(begun(path), str(error))
        except (KeyboardInterrupt, SystemExit):
            tell(f"interrupted: {record.name} is measured, complete, and kept in {path}; the next command uploads it")
            raise
    _tidy()
    return Sent(run_id, "")


def _deliver(connection: Connection, record: Record, path: Path, *, tell: Tell) -> tuple[str, bool]:
    """Deliver a record whose lock the caller holds; returns the run's id, and whether it was finished there already."""
    for tag in (Tag.STORE, Tag.EXPERIMENT, Tag.ARTIFACTS):
        record.tags.pop(tag, None)
    earlier = None if Tag.FORCED in record.tags else Reader(connection).find(record.fingerprint)
    if earlier:
        run_id = earlier
        give_up(connection, path)
    else:
        run_id = begin(connection, record, path)
        writer = Writer(connection)
        with Heartbeat(writer, run_id):
            run_id = writer.deliver(record, path, run_id)
    run_id = keep_one(connection, record, run_id, tell=tell)
    (path / FILE).unlink()  # first: a folder without it is no record
    shutil.rmtree(path, ignore_errors=True)
    return run_id, bool(earlier)


@dataclass
class Delivered:
    """What a delivery did."""

    runs: dict[str, str] = field(default_factory=dict)  # fingerprint -> run ID of the delivered measurement
    waits: dict[str, list[Path]] = field(default_factory=dict)  # reason -> folders of those that wait, for any store
    away: str = ""  # why the store of the call could not be reached; empty where it was

    @property
    def left(self) -> int:
        """How many measurements still wait."""
        return sum(map(len, self.waits.values()))


def repair_and_deliver(tracking: TrackingConfig, *, tell: Tell) -> Delivered:
    """Bring a store up to date before new work: close the runs of dead processes, deliver what waits, tidy up.

    Args:
        tracking: of the call; a store with a password is the one given here, because no password is kept on disk.
        tell: shows a line per run that was closed, per record that was delivered, and per reason why others wait.

    """
    done = Delivered()
    connection = Connection(tracking)
    try:
        for name in repair(connection):
            tell(f"{name} was left running by a process that is gone: now KILLED; the same command resumes it")
        _verify_what_was_cut_off(connection, tell)
    except StoreAway as error:
        done.away = str(error)
        tell(done.away)
    connections: dict[tuple[str, str], Connection] = {}
    for path in waiting():
        with locked(path) as is_free:
            if is_free and (path / FILE).exists():  # else another process delivers it
                _deliver_waiting(path, tracking, connections, done, tell)
    for why, paths in done.waits.items():
        who = f"{_name(paths[0])} waits" if len(paths) == 1 else f"{len(paths):,} measurements wait"
        tell(f"{who} in {os.path.commonpath(paths)}: {why}")
    if not done.away:
        _discard_finished(connection)
    _tidy()
    return done


def _verify_what_was_cut_off(connection: Connection, tell: Tell) -> None:
    """Read what a store got while this machine went down, before it counts as measured; damaged measurements do not."""
    database = connection.database
    since = writing.cut_off(database) if database is not None and connection.exists else None
    if database is None or since is None:
        return
    tell(f"this machine went down while {short_path(str(database))} was written: checking everything written since")
    with suppress(BadInput):  # it holds no measurement yet
        done = verify(Reader(connection), FilterConfig(), read_data=True, since=since)
        writer = Writer(connection)
        for fault in done.faults:
            tell(f"{fault.name} (run {fault.run_id}): {fault.text}; it does not count as measured")
        for run_id, why in done.damaged.items():
            writer.set_aside(run_id, Tag.DAMAGED, why)
    writing.forget(database)


def _deliver_waiting(
    path: Path, tracking: TrackingConfig, connections: dict[tuple[str, str], Connection], done: Delivered, tell: Tell
) -> None:
    try:
        record = Record.read(path)
        address = (record.tags[Tag.STORE], record.tags[Tag.EXPERIMENT])
        connection = connections[address] = connections.get(address) or _connection(*address, record, tracking)
        run_id, there = _deliver(connection, record, path, tell=tell)
        done.runs[record.fingerprint] = run_id
        if there:
            tell(f"{record.name} is already finished in {connection.shown} (run {run_id}): not uploaded again")
        else:
            tell(f"delivered {record.name} to {connection.shown} (run {run_id})")
    except RbptrackError as error:
        done.waits.setdefault(str(error), []).append(path)
    except (KeyError, TypeError, ValueError) as error:
        done.waits.setdefault(f"{FILE} is damaged: {error}", []).append(path)


def _name(path: Path) -> str:
    """Return a record's name for people; if it cannot be read, the beginning of its fingerprint."""
    try:
        return Record.read(path).name
    except (KeyError, TypeError, ValueError, RbptrackError):
        return path.name[:12]


def _connection(address: str, experiment: str, record: Record, tracking: TrackingConfig) -> Connection:
    artifacts = record.tags.get(Tag.ARTIFACTS) or record.params.get("tracking.artifacts", "")  # the latter: 0.1
    return Connection(replace(tracking, uri=without_stars(address), experiment=experiment, artifacts=artifacts))


def _discard_finished(connection: Connection) -> None:
    """Remove parts of measurements that are finished in the store: their process died before it could."""
    if not connection.exists:
        return
    reader = Reader(connection)
    for parts in (path for path in partial().glob("*") if path.is_dir()):
        with locked(parts) as is_free, suppress(RbptrackError):
            began = begun(parts)
            if is_free and reader.find(parts.name) and (not began or reader.knows(began)):
                discard(parts)


def _tidy() -> None:
    """Remove what dead processes left here: folders without a record, locks of nothing, empty folders."""
    for path in [*folder().glob("*/*"), *partial().glob("*.lock")]:
        if path.suffix == ".lock":
            if not path.with_suffix("").exists():
                with locked(path.with_suffix("")):
                    pass
        elif not (path / FILE).exists():
            with locked(path) as is_free:
                if is_free and not (path / FILE).exists():
                    shutil.rmtree(path, ignore_errors=True)
    for place in (*folder().glob("*"), folder(), partial()):
        with suppress(OSError):  # not there, or not empty
            place.rmdir()
