"""The command `sync`, which delivers measurements to the tracking store."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from rbptrack.base.formatting import counted
from rbptrack.cli.options import Experiment, OutputFormat, TrackingUri
from rbptrack.console.output import print_json, print_problem, print_text, program_name


def sync(tracking_uri: TrackingUri = "", experiment: Experiment = "", format_: OutputFormat = "text") -> int:
    """Deliver measurements that wait on this disk to the tracking store."""
    from rbptrack.tracking import Outbox, Store

    store = Store(tracking_uri, experiment)
    outbox = Outbox(store)
    deliveries = [*outbox.deliver_waiting(), *outbox.without_address()]
    elsewhere = outbox.count_waiting_elsewhere()
    failed = [delivery for delivery in deliveries if delivery.error]
    if format_ == "json":
        places = [{"uri": uri, "experiment": name, "measurements": number} for (uri, name), number in elsewhere.items()]
        print_json({"deliveries": [asdict(delivery) for delivery in deliveries], "waiting_elsewhere": places})
        return 1 if failed else 0
    for delivery in deliveries:
        (print_problem if delivery.error else print_text)(delivery.line())
    print_text(f"{counted(len(deliveries) - len(failed), 'measurement')} delivered to {store.shown_address}")
    for (other_uri, other_experiment), number in elsewhere.items():
        words = shlex.join(["sync", "--tracking-uri", other_uri, "--experiment", other_experiment])
        print_text(f"{counted(number, 'measurement')} waiting for another store: {program_name()} {words}")
    return 1 if failed else 0
