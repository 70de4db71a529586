"""Tasks done one after the other, in whatever process; a failure never stops the next."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.process import leave_out_what_is_loaded, raise_if_stopped
from rbptrack.base.secrets import redact
from rbptrack.console.progress import CellState
from rbptrack.sweep import cell
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import CellFailed, Outcome, announce
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.tasks import Task
from rbptrack.tracking.store import Store

_LOG_FORMAT = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"


class Listener(Protocol):
    """Whom a job tells what becomes of its tasks."""

    def knows_end_of(self, task: Task) -> bool:
        """Return whether it is known how a task ended, so that it need not be done."""

    def at_work(self, task: Task, state: CellState) -> None:
        """Report a task's progress."""

    def ended(self, task: Task, outcome: Outcome, *, whole: bool) -> None:
        """Report how a task ended; `whole`: its cell ended with it. A task may be one shard of a cell."""


def work(tasks: Iterable[Task], listener: Listener, resolve: Callable[[Task], Resolved], *, total: int) -> None:
    """Do tasks whose end is unknown."""
    store = None  # which all share
    for task in tasks:
        if not store:
            store = Store(task.config.tracking)
            leave_out_what_is_loaded()  # what libraries leave behind is found soon: memory stays flat
        if not listener.knows_end_of(task):
            _measure(task, listener, resolve, store, label(task.number, total))


def label(number: int, total: int) -> str:
    """Return the text before the line of a cell: `[ 3/14]`; nothing for a single cell."""
    return f"[{number + 1:>{len(str(total))}}/{total}]" if total > 1 else ""


def _measure(task: Task, listener: Listener, resolve: Callable[[Task], Resolved], store: Store, label: str) -> None:
    config = task.config
    whole = task.shard.count == 1
    outcome = replace(Outcome.of(config, "failed"), title=task.title)
    try:
        resolved = resolve(task)
        tell = partial(listener.at_work, task)
        delivery = Delivery.of(config, resolved, store, progress_label=label, tell=tell)
        if ended := cell.run(resolved, delivery, task.shard):
            outcome = ended
            whole = True
        else:
            outcome.status = "measured"  # this shard; the cell is delivered with its last one
    except RbptrackError as error:
        raise_if_stopped()
        outcome.message = str(error)
        outcome.bad_input = isinstance(error, BadInput)
    except CellFailed as failure:
        outcome.run_id = failure.run_id
        outcome.message = _in_a_line(failure.cause)
    except Exception as error:
        raise_if_stopped()
        outcome.message = _in_a_line(error)
    outcome.message = redact(outcome.message)
    outcome.waits = redact(outcome.waits)
    if label or outcome.run_id or outcome.status != "failed":  # why a single cell did not begin, the sweep itself says
        announce(outcome, label)
    listener.ended(task, outcome, whole=whole)


def _in_a_line(error: Exception) -> str:
    """Return an error for people; a bug's with its type, and where to see the traceback."""
    if os.environ.get("HYDRA_FULL_ERROR"):
        traceback.print_exception(error)
    if isinstance(error, RbptrackError):
        return str(error)
    return f"{type(error).__name__}: {error} (HYDRA_FULL_ERROR=1 shows where)"


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Let what libraries log go into a file, which is made when the first of them has something to say."""
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()
