"""Measurements that wait on disk until their tracking store answers: ./mlruns/spool, one record's folder each."""

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

_STORE = f"{Tag.PREFIX}store"
_EXPERIMENT = f"{Tag.PREFIX}experiment"


def folder() -> Path:
    """Where they wait."""
    return home() / "spool"


def waiting() -> list[Path]:
    """The folders of complete records that wait, oldest first."""
    found = [path.parent for path in folder().glob(f"*/{FILE}")]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def holds(fingerprint: str) -> Record | None:
    """The record of this fingerprint, if it waits."""
    path = folder() / fingerprint
    return Record.read(path) if (path / FILE).exists() else None


def deliver_or_keep(writer: Writer, record: Record, made: Path, run_id: str) -> tuple[str, str]:
    """Log a finished measurement, or let it wait where that fails.

    Args:
        writer: of the store where it belongs.
        record: complete; its artifacts are in `made`.
        made: the record's folder, on the disk of ./mlruns.
        run_id: the run that it began; empty if none.

    Returns:
        The run's id, empty where it could not begin; and why it waits, empty where it was delivered.

    """
    record.write(made)
    try:
        return writer.deliver(record, made, run_id), ""
    except RbptrackError as error:
        record.tags |= {_STORE: writer.connection.shown, _EXPERIMENT: writer.connection.experiment}
        record.write(made)
        target = folder() / record.fingerprint
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)  # an older one of the same fingerprint: this one was forced
        made.rename(target)
        return run_id, str(error)


def deliver_all(tracking: TrackingConfig, *, tell: Callable[[str], None]) -> int:
    """Deliver what waits, each record to the store it was measured for; returns how many still wait.

    Args:
        tracking: of the call; a store with a password is the one given here, because no password is kept on disk.
        tell: shows a line per record.

    """
    left = 0
    for path in list(waiting()):
        with _alone(path) as mine:
            if not mine or not (path / FILE).exists():  # another process delivers it
                continue
            record = Record.read(path)
            try:
                connection = _connection(record, tracking)
                if run_id := Writer(connection).deliver(record, path):
                    shutil.rmtree(path)
                    tell(f"delivered {record.name} to {connection.shown} (run {run_id})")
            except RbptrackError as error:
                left += 1
                tell(f"{record.name} waits in {path}: {error}")
    return left


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """A lock on one waiting record; false where another process holds it."""
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
    uri, experiment = record.tags.pop(_STORE), record.tags.pop(_EXPERIMENT)
    given = resolve_uri(tracking)
    if without_password(given) == uri:
        uri = given
    elif "***" in uri:
        raise RbptrackError(f"it belongs to {uri}: give that address, with its password, as tracking.uri=...")
    return Connection(replace(tracking, uri=uri, experiment=experiment))


def upkeep(tracking: TrackingConfig, *, tell: Callable[[str], None]) -> int:
    """What is to be done before new work: runs of dead processes closed, waiting measurements delivered.

    Returns:
        How many still wait.

    """
    try:
        for name in repair(Connection(tracking)):
            tell(f"{name} was left running by a process that is gone: now KILLED; measured again, it continues")
    except StoreAway as error:
        tell(str(error))
        return len(waiting())
    return deliver_all(tracking, tell=tell)
