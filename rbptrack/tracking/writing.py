"""Which processes write into a local store, so that it is known where a machine went down in the middle.

Each leaves a small file beside the database when it begins to write, and takes it away when it ends. One whose process
is dead and whose machine has booted since was cut off: what the store got after it began may lack what a disk has lost.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from rbptrack.base.files import make_folder, write_whole
from rbptrack.tracking.process import alive, marks, rebooted_since
from rbptrack.tracking.schema import Tag

FOLDER = "writing"
_begun: dict[Path, int] = {}  # the database, and the process that left a mark beside it


def begin(database: Path) -> None:
    """Leave this process's mark beside a database, once."""
    if _begun.get(database) == os.getpid():
        return
    _begun[database] = os.getpid()
    mark = database.parent / FOLDER / f"{os.getpid()}-{time.time_ns():x}.json"
    since = time.time()
    with suppress(OSError):  # a full disk, or one that cannot be written: what follows says so
        for path, tags, began in _left(database):
            if not alive(tags) and not rebooted_since(tags):  # killed, and the system has what it wrote
                since = min(since, began)
                path.unlink(missing_ok=True)
        make_folder(mark.parent)
        write_whole(mark, json.dumps({"process": marks()[Tag.PROCESS], "since": since}), durable=True)
        atexit.register(partial(_end, mark, os.getpid()))


def cut_off(database: Path) -> float | None:
    """Return since when (seconds since 1970) the store received writes that a power cut may have lost; None for
    never.
    """
    since = [began for _, tags, began in _left(database) if rebooted_since(tags)]
    return min(since) if since else None


def forget(database: Path) -> None:
    """Take away the marks of processes that were cut off: what they wrote has been verified."""
    for path, tags, _ in _left(database):
        if rebooted_since(tags):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty, or not there
        (database.parent / FOLDER).rmdir()


def _left(database: Path) -> Iterator[tuple[Path, dict[str, str], float]]:
    """Yield each mark, whose process it is of, and since when."""
    for path in sorted((database.parent / FOLDER).glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            mark = json.loads(path.read_text(encoding="utf-8"))
            yield path, {Tag.PROCESS: mark["process"], Tag.HEARTBEAT: f"{time.time():.0f}"}, float(mark["since"])


def _end(mark: Path, process: int) -> None:
    if os.getpid() == process:  # not a fork of it
        with suppress(OSError):
            mark.unlink(missing_ok=True)
            mark.parent.rmdir()  # if it was the last
