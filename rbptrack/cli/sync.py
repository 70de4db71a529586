"""The command `sync`, which delivers measurements to the tracking store."""

from __future__ import annotations

import shlex

from rbptrack.base.formatting import counted
from rbptrack.cli.options import Experiment, TrackingUri
from rbptrack.console.output import complain, program, say


def sync(tracking_uri: TrackingUri = "", experiment: Experiment = "") -> int:
    """Deliver measurements that wait on this disk to the tracking store."""
    from rbptrack.tracking import Outbox, Store

    store = Store(tracking_uri, experiment)
    outbox = Outbox(store)
    failed = 0
    delivered = 0
    for folder in outbox.deliver_waiting():
        if folder.error:
            complain(f"{folder.name} was not sent to the tracking store and stays on this disk: {folder.error}")
            failed += 1
        else:
            say(f"{folder.name}: delivered")
            delivered += 1
    say(f"{counted(delivered, 'measurement')} delivered to {store.shown}")
    for (uri, its_experiment), number in outbox.waiting_elsewhere().items():
        arguments = ["sync", "--tracking-uri", uri, "--experiment", its_experiment]
        say(f"{counted(number, 'measurement')} waiting for another store: {program()} {shlex.join(arguments)}")
    return 1 if failed else 0
