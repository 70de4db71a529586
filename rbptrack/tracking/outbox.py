"""The outbox: measurements that wait in ./mlruns/spool, a record's folder each, until their tracking store answers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from rbptrack.config.paths import home
from rbptrack.config.schema import TrackingConfig
from rbptrack.errors import RbptrackError, StoreAway
from rbptrack.tracking import Connection, Writer, repair, resolve_uri, without_password
from rbptrack.tracking.record import FILE, Record
from rbptrack.tracking.schema import Tag


def folder() -> Path:
    """The folder of the outbox."""
    return home() / "spool"


def waiting() -> list[Path]:
    """The folders of the complete records that wait, oldest first."""
    found = [path.parent for path in folder().glob(f"*/{FILE}")]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def find(fingerprint: str) -> Record | None:
    """The waiting record of this fingerprint, if there is one."""
    path = folder() / fingerprint
    return Record.read(path) if (path / FILE).exists() else None


def deliver_or_keep(writer: Writer, record: Record, measured: Path, run_id: str) -> tuple[str, str]:
    """Log a finished measurement; where that fails, keep it in the outbox.

    Args:
        writer: of the store where it belongs.
        record: complete; its artifacts are in `measured`.
        measured: the record's folder, on the disk of ./mlruns.
        run_id: the run that it began; empty if none.

    Returns:
        The run's id, empty where it could not begin; and why the measurement waits, empty where it was delivered.

    """
    record.write(measured)
    try:
        return writer.deliver(record, measured, run_id), ""
    except RbptrackError as error:
        record.tags |= {Tag.STORE: writer.connection.shown, Tag.EXPERIMENT: writer.connection.experiment}
        record.write(measured)
        target = folder() / record.fingerprint
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)  # an older one of the same fingerprint: this one was forced
        measured.rename(target)
        return run_id, str(error)


def deliver_all(tracking: TrackingConfig, *, tell: Callable[[str], None]) -> int:
    """Deliver what waits, each record to the store that it was measured for; returns how many still wait.

    Args:
        tracking: of the call; a store with a password is the one given here, because no password is kept on disk.
        tell: shows a line per record.

    """
    left = 0
    for path in waiting():
        with _locked(path) as mine:
            if not mine or not (path / FILE).exists():  # another process delivers it
                continue
            record = Record.read(path)
            try:
                connection = _connection(record, tracking)
                run_id = Writer(connection).deliver(record, path)
                shutil.rmtree(path)
                tell(f"delivered {record.name} to {connection.shown} (run {run_id})")
            except RbptrackError as error:
                left += 1
                tell(f"{record.name} waits in {path}: {error}")
    return left


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Lock one waiting record; False where another process holds the lock."""
    file = path.with_name(f"{path.name}.lock")
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        file.unlink(missing_ok=True)
        lock.release()


def _connection(record: Record, tracking: TrackingConfig) -> Connection:
    """The connection to the store that a record was measured for; takes that store's tags off the record."""
    uri, experiment = record.tags.pop(Tag.STORE), record.tags.pop(Tag.EXPERIMENT)
    given = resolve_uri(tracking)
    if without_password(given) == uri:
        uri = given
    elif "***" in uri:
        raise RbptrackError(f"it belongs to {uri}: give that address, with its password, as tracking.uri=...")
    return Connection(replace(tracking, uri=uri, experiment=experiment))


def repair_and_deliver(tracking: TrackingConfig, *, tell: Callable[[str], None]) -> int:
    """Bring a store up to date before new work: close the runs of dead processes, and deliver what waits.

    Args:
        tracking: of the call.
        tell: shows a line per run that was closed and per record.

    Returns:
        How many measurements still wait.

    """
    try:
        for name in repair(Connection(tracking)):
            tell(f"{name} was left running by a process that is gone: now KILLED; measured again, it continues")
    except StoreAway as error:
        tell(str(error))
        return len(waiting())
    return deliver_all(tracking, tell=tell)
