"""`verify`, `sync` and `ui`: the tracking store itself."""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
import webbrowser
from contextlib import suppress

from rbptrack.base.words import counted
from rbptrack.commands.selection import Selection
from rbptrack.console.output import complain, program, say
from rbptrack.console.progress import spinner
from rbptrack.tracking import Outbox, Store

_SECONDS_BETWEEN_QUESTIONS = 0.5


def verify(selection: Selection, *, repair: bool) -> int:
    """Print every fault of the store's measurements. Returns 1 if a fault was found, otherwise 0."""
    damaged = set()
    with spinner(f"verifying {selection.store.shown}"):
        for fault in selection.store.verify(repair=repair):
            damaged.add(fault.run_id)
            say(f"{fault.name} ({fault.run_id[:8]}): {fault.text}")
    if not damaged:
        say("no measurement is damaged")
        return 0
    if repair:
        say(f"{counted(len(damaged), 'measurement')} marked: the next sweep measures them again")
    else:
        found = counted(len(damaged), "measurement")
        say(f"{found} damaged; {program()} verify --repair marks what is to be measured again")
    return 1


def sync(selection: Selection) -> int:
    """Deliver the measurements that wait on this disk. Returns 1 if some could not be delivered."""
    store = Store(selection.uri, selection.experiment)
    outbox = Outbox(store)
    failed = 0
    delivered = 0
    for folder in outbox.deliver_waiting():
        if folder.error:
            complain(f"{folder.name} waits: {folder.error}")
            failed += 1
        else:
            say(f"{folder.name}: delivered")
            delivered += 1
    say(f"{counted(delivered, 'measurement')} delivered to {store.shown}")
    for (uri, experiment), number in outbox.waiting_elsewhere().items():
        words = ["sync", "--tracking-uri", uri, "--experiment", experiment]
        say(f"{counted(number, 'measurement')} waiting for another store: {program()} {shlex.join(words)}")
    return 1 if failed else 0


def ui(selection: Selection, *, host: str, port: int, open_page: bool) -> int:
    """Run MLflow's server on the store until it is stopped. If the store is itself a server, only print its page.

    The address of the page is printed when the server answers, and then opened in the browser if asked for.
    """
    store = selection.store
    store.save_view()  # imports and runs that were logged have none yet
    page = store.view_page()
    if store.uri.startswith(("http://", "https://")):
        _show(f"{store.shown.rstrip('/')}/{page}", open_page=open_page)
        return 0
    words = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    # The address may hold a password, and other users can read a command line.
    env = os.environ | {"MLFLOW_BACKEND_STORE_URI": store.uri}
    server = subprocess.Popen(words, env=env, start_new_session=True)  # whose processes can be stopped together
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"  # noqa: S104 - compared only
    try:
        while server.poll() is None and not _answers(f"{address}/health"):
            time.sleep(_SECONDS_BETWEEN_QUESTIONS)
        if server.returncode is None:
            _show(f"{address}/{page}", open_page=open_page)
        return server.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _answers(address: str) -> bool:
    """Whether a server answers a request with OK."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - its own server
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _show(address: str, *, open_page: bool) -> None:
    say(f"measurements: {address}")
    sys.stdout.flush()
    if open_page:
        webbrowser.open(address)
