"""`python -m rbptrack sync`: bring the tracking store in order; no model, no torch."""

from __future__ import annotations

from rbptrack.base.words import counted
from rbptrack.commands.declared.housekeeping import SYNC, SyncConfig
from rbptrack.console.output import say
from rbptrack.tracking import outbox
from rbptrack.tracking.store import Store


def _sync(config: SyncConfig) -> int:
    """Deliver and repair; returns 1 if something still waits, or the store is away."""
    store = Store(config.tracking)
    if config.moved:
        say(f"{store.repair_moved()} paths updated: artifacts lie beside the database {store.database}")
    done = outbox.repair_and_deliver(config.tracking, tell=say)
    if done.runs or done.left:
        say(f"{len(done.runs)} delivered, {done.left} waiting")
    elif done.away:
        say("nothing waits to be delivered to it")
    else:
        say("nothing waits")
    if not done.away and store.exists and not store.read_only and (run_ids := store.reader.without_model()):
        store.writer.link_models(run_ids)
        say(f"{counted(len(run_ids), 'measurement')} linked to their models (Models tab)")
    return 1 if done.left or done.away else 0


main = SYNC.running(_sync)
