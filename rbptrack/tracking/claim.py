"""One measurement, one measurer: among processes and users of the same store, and after one that was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mlflow.entities import Run

from rbptrack.tracking.process import alive, where
from rbptrack.tracking.record import Record
from rbptrack.tracking.store import Store

_CLAIM = "rbptrack.claim"
_CONTEST_SECONDS = 15.0
_POLL_SECONDS = 2.0
_RUN_FILE = "run_id"


def claim(store: Store, record: Record, folder: Path, *, tell: Callable[[str], None]) -> tuple[str, bool]:
    """Begin a measurement's run, or continue the one that this folder's unfinished measurement began.

    Whoever finds another at work on the same fingerprint waits until that one has ended. For two that begin at once
    there is no lock that all stores offer; so each first says that it wants to (claim: pending), then looks. One that
    was there before wins (claim: held); of two that are both pending, the one with the smaller run id.

    Args:
        store: where.
        record: of the measurement; its tags become the run's.
        folder: of the unfinished measurement; remembers the run.
        tell: shows a line while another's measurement is waited for.

    Returns:
        The run's id, and whether it is finished already, by another.

    """
    while True:
        others = rivals(store, record.fingerprint, "")
        if others:
            tell(f"{record.name}: being measured by {where(others[0].data.tags)}; waiting for it")
            while rivals(store, record.fingerprint, ""):
                time.sleep(_POLL_SECONDS)
            if found := store.find(record.fingerprint):
                return found, True
        mine = _begin(store, record, folder)
        if _contest(store, record, mine):
            store.log(mine, tags={_CLAIM: "held"})
            return mine, False
        store.withdraw(mine)
        (folder / _RUN_FILE).unlink(missing_ok=True)


def _begin(store: Store, record: Record, folder: Path) -> str:
    file = folder / _RUN_FILE
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    if before and store.resume(before):
        return before
    run_id = store.begin(record.name, record.tags | {_CLAIM: "pending"}, started=record.started)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(run_id, encoding="utf-8")
    return run_id


def _contest(store: Store, record: Record, mine: str) -> bool:
    deadline = time.monotonic() + _CONTEST_SECONDS
    while time.monotonic() < deadline:
        others = rivals(store, record.fingerprint, mine)
        if not others:
            return True
        if any(r.data.tags.get(_CLAIM) == "held" or r.info.run_id < mine for r in others):
            return False
        time.sleep(_POLL_SECONDS / 10)
    return True  # a pending one that neither goes on nor withdraws has died


def rivals(store: Store, fingerprint: str, mine: str) -> list[Run]:
    """Runs other than mine in which a living process measures this fingerprint now."""
    running = store.measurements(fingerprint, status="RUNNING")
    return [r for r in running if r.info.run_id != mine and alive(r.data.tags)]


def repair(store: Store) -> list[str]:
    """Mark as KILLED what processes that no longer live left RUNNING; returns the names of those runs."""
    dead = [r for r in store.search("attributes.status = 'RUNNING'") if not alive(r.data.tags)] if store.exists else []
    for run in dead:
        if run.data.tags.get("rbptrack.kind"):  # another program's runs in the same experiment are its own affair
            store.end(run.info.run_id, "KILLED")
    return [str(run.info.run_name) for run in dead if run.data.tags.get("rbptrack.kind")]
