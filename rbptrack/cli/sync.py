"""The command `sync`, which delivers measurements to the tracking store."""

from __future__ import annotations

import shlex

from rbptrack.base.formatting import counted, short_path
from rbptrack.cli.options import Experiment, TrackingUri
from rbptrack.console.output import print_problem, print_text, program_name


def sync(tracking_uri: TrackingUri = "", experiment: Experiment = "") -> int:
    """Deliver measurements that wait on this disk to the tracking store."""
    from rbptrack.tracking import Outbox, Store

    store = Store(tracking_uri, experiment)
    outbox = Outbox(store)
    num_failed = 0
    num_delivered = 0
    for delivery in outbox.deliver_waiting():
        if delivery.error:
            print_problem(delivery.line())
            num_failed += 1
        else:
            print_text(delivery.line())
            num_delivered += 1
    for folder in outbox.folders_without_address():
        print_problem(
            f"{short_path(folder)} holds a finished measurement, but its file store.json, which names the store, is "
            "missing or damaged. Run the command that measured it again: it delivers the measurement"
        )
        num_failed += 1
    print_text(f"{counted(num_delivered, 'measurement')} delivered to {store.shown_address}")
    for (other_uri, other_experiment), number in outbox.count_waiting_elsewhere().items():
        words = shlex.join(["sync", "--tracking-uri", other_uri, "--experiment", other_experiment])
        print_text(f"{counted(number, 'measurement')} waiting for another store: {program_name()} {words}")
    return 1 if num_failed else 0
