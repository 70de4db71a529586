"""`verify`, `sync` and `ui`: the tracking store itself."""

from __future__ import annotations

import os
import shlex
import sys

from rbptrack.base.words import counted
from rbptrack.commands.selection import Selection
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.tracking import Store


def verify(selection: Selection, *, repair: bool) -> int:
    """Print every fault of the store's measurements; returns 1 where there is one."""
    damaged = set()
    with spinner(f"verifying {selection.store.shown}"):
        for fault in selection.store.verify(repair=repair):
            damaged.add(fault.run_id)
            say(f"{fault.name} ({fault.run_id[:8]}): {fault.text}")
    if not damaged:
        say("every measurement is as it was sealed")
        return 0
    if repair:
        say(f"{counted(len(damaged), 'measurement')} marked: the next sweep measures them again")
    else:
        found = counted(len(damaged), "measurement")
        say(f"{found} damaged; {program()} verify --repair marks what is to be measured again")
    return 1


def sync(selection: Selection) -> int:
    """Deliver what waits; returns 1 where something still does."""
    store = Store(selection.uri, selection.experiment)
    failed = 0
    delivered = 0
    for folder in store.deliver_waiting():
        if folder.error:
            complain(f"{folder.name} waits: {folder.error}")
            failed += 1
        else:
            say(f"{folder.name}: delivered")
            delivered += 1
    say(f"{counted(delivered, 'measurement')} delivered to {store.shown}")
    for (uri, experiment), number in store.waiting_elsewhere().items():
        words = ["sync", "--tracking-uri", uri, "--experiment", experiment]
        say(f"{counted(number, 'measurement')} waiting for another store: {program()} {shlex.join(words)}")
    return 1 if failed else 0


def ui(selection: Selection, *, host: str, port: int) -> int:
    """Become MLflow's server on the store; of a store that a server has already, print the page."""
    store = selection.store
    store.save_view()  # imports and runs that were logged have none yet
    page = store.view_page()
    if store.uri.startswith(("http://", "https://")):
        say(f"{store.shown.rstrip('/')}/{page}")
    else:
        say(f"measurements: http://{host}:{port}/{page}")
        sys.stdout.flush()
        words = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store.uri]
        os.execv(sys.executable, [*words, "--host", host, "--port", str(port)])  # noqa: S606 - no shell
    return 0
