"""`python -m rbptrack sync`: bring the tracking store in order; no model, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from rbptrack.commands.runner import OptionsCommand
from rbptrack.commands.usage import STORE_OPTIONS, Help
from rbptrack.config.schema import TrackingConfig
from rbptrack.console import say
from rbptrack.errors import BadInput
from rbptrack.tracking import Connection, outbox, relocate

HELP = Help(
    "sync [moved=true]",
    """Delivers the measurements that wait in mlruns/spool because their tracking store was away, each once, and closes
    the runs that a killed process left RUNNING. Every sweep does the same when it starts.""",
    {
        "moved=true": "repair a local store whose folder was moved or renamed, so that its runs find their artifacts",
        **STORE_OPTIONS,
    },
)


@dataclass
class SyncConfig:
    """Options of the command."""

    moved: bool = False
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def _sync(config: SyncConfig) -> int:
    """Deliver and repair; returns 1 if something still waits."""
    connection = Connection(config.tracking)
    if config.moved:
        if connection.database is None or not connection.exists:
            raise BadInput(f"moved=true repairs a local database; {connection.shown} is none")
        changed = relocate(connection.database, connection.experiment)
        say(f"{changed} artifact addresses now lie under {connection.database.parent}")
    before = len(outbox.waiting())
    left = outbox.repair_and_deliver(config.tracking, tell=say)
    say(f"{before - left} delivered, {left} waiting" if before else "nothing waits")
    return 1 if left else 0


main = OptionsCommand("sync", SyncConfig, HELP, _sync)
