"""All measurements of an import into a store, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rbptrack.base.errors import RbptrackError, StoreAway
from rbptrack.tracking.claim import repair
from rbptrack.tracking.params import MeasurementParams
from rbptrack.tracking.record import RANKS, Record
from rbptrack.tracking.schema import Metric, Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.writer import Writer

_PATIENCE_SECONDS = 90.0  # for a store that goes away midway
_PAUSE_SECONDS = 3.0

Source = Iterator[AbstractContextManager[tuple[Record, Path]]]
"""Each measurement with the folder of its artifacts, which lie there while its context lasts."""


@dataclass
class Imported:
    """What came of an import."""

    imported: int = 0
    skipped: int = 0  # in the store before
    without_ranks: int = 0  # how many of the new ones came without ranks
    without_size: list[str] = field(default_factory=list)  # names


def deliver(store: Store, source: Source, *, tell: Callable[[str], None]) -> Imported:
    """Write measurements that were checked into a store that lacks them.

    Where the store refuses or the user interrupts, everything written is taken back. Where it does not answer, it is
    asked again for a while.

    Raises:
        RbptrackError: the store could not take everything; the message lists the delivered ones.

    """
    _patiently(lambda: repair(store), tell)  # an import that was killed left its last run RUNNING
    reader = store.reader
    writer = store.writer
    done = Imported()
    made: list[Record] = []
    try:
        for opened in source:
            with opened as (record, folder):
                if _patiently(lambda: reader.find(record.fingerprint), tell):
                    done.skipped += 1
                    continue
                made.append(record)
                _patiently(lambda: writer.deliver(record, folder), tell)
                done.imported += 1
                done.without_ranks += not (folder / RANKS).exists()
                if Metric.NON_EMBEDDING_PARAMS not in record.metrics:
                    done.without_size.append(MeasurementParams.read(record.params).repo or record.tags[Tag.MODEL])
    except BaseException as error:
        left = _taken_back(writer, made)
        if not isinstance(error, (RbptrackError, OSError)):
            raise
        if not left:
            raise type(error)(f"{error}. Nothing was imported") from error
        raise RbptrackError(
            f"{error}. {done.imported} of the measurements are imported, and others may be incomplete: "
            "the same command completes them"
        ) from error
    return done


def _patiently(call: Callable[[], object], tell: Callable[[str], None]) -> object:
    """Return the call's result; a store that does not answer is asked again for a while."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    has_said_it = False
    while True:
        try:
            return call()
        except StoreAway as error:
            if time.monotonic() > deadline:
                raise
            if not has_said_it:
                tell(f"{error}; waiting up to {_PATIENCE_SECONDS:.0f} s for it")
                has_said_it = True
            time.sleep(_PAUSE_SECONDS)


def _taken_back(writer: Writer, made: list[Record]) -> int:
    """Delete the runs of these records; returns how many could not be."""
    left = 0
    for record in made:
        try:
            left += not writer.take_back(record)
        except RbptrackError:
            left += 1
    if not left:
        with suppress(RbptrackError):
            writer.take_back_models()
    return left
