"""`python -m rbptrack ui`: MLflow's own server on the store, and a link that opens the measurements' charts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.commands.declared.start import UI, UiConfig
from rbptrack.console.output import say
from rbptrack.tracking.outbox import repair_and_deliver
from rbptrack.tracking.schema import Kind, Tag
from rbptrack.tracking.store import Store
from rbptrack.tracking.uri import run_page
from rbptrack.tracking.view import PAGE, by_id, chosen_runs, knows_view, link, search_filter, shown, spread

_START_SECONDS = 180.0  # it takes some ten, and minutes on a machine under load
_LOOK_SECONDS = 0.5  # between two looks whether the server has ended
_REFUSED_PORTS = (5060, 5061)  # browsers refuse these between 5000 and 6000: they belong to telephony (SIP)


def _ui(config: UiConfig) -> int:
    store = Store(config.tracking, create=False)
    if not store.exists:
        raise BadInput(f"no tracking store at {store.database}: measure something first")
    wanted = search_filter(config.filter)
    remote = store.uri.rstrip("/") if store.uri.startswith(("http://", "https://")) else ""
    if not remote:
        say("starting MLflow ...")
    store.open()
    if store.read_only:
        say(f"the tracking store {store.shown} cannot be written: changes in this copy are lost")
    else:
        repair_and_deliver(config.tracking, tell=say)
    runs = chosen_runs(store.reader.search(), config.filter)
    if not runs:
        store.reader.runs(config.filter)  # raises, with the nearest names
    if len(runs) > PAGE:
        say(f"the charts show {PAGE} of {len(runs):,} runs (MLflow's limit), of every size; narrow them: size=6k,15k")
    if len(runs) > PAGE or not wanted:
        runs = spread(runs, PAGE)
        wanted = by_id(runs)
    view = ""
    if knows_view(_mlflow_version(remote)):
        view = store.writer.save_view(shown(runs, wanted, config.filter))
    pages = {"compare": link(store.experiment_id, view, wanted)}
    if newest := next((run for run in runs if run.tags.get(Tag.KIND) in (Kind.SWEEP, Kind.REPORT)), None):
        pages["report"] = run_page(store.experiment_id).replace("{}", f"{newest.run_id}/artifacts/report.html")
    if remote:
        _say_pages(remote, pages, browser=config.browser)
        return 0
    return _serve(store, config, _free_port(config.host, config.port), pages)


def _say_pages(server: str, pages: Mapping[str, str], *, browser: bool) -> None:
    for name, address in pages.items():
        say(f"{name:<8} {server}/{address}")
    if browser and has_display():
        webbrowser.open(f"{server}/{pages['compare']}")


def has_display() -> bool:
    """Return whether a browser that is opened here is seen: not over SSH, in CI, or where no screen is."""
    if {"CI", "SSH_CONNECTION", "SSH_TTY"} & os.environ.keys():
        return False
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _mlflow_version(remote: str) -> str:
    """Return the version of the MLflow whose pages will be opened: a remote server's, else the one installed here."""
    if not remote:
        return version("mlflow")
    try:
        with urllib.request.urlopen(f"{remote}/version", timeout=5) as answer:  # noqa: S310 - the user's own address
            return str(answer.read(100).decode("ascii", "replace")).strip()
    except OSError:
        return ""


def _serve(store: Store, config: UiConfig, port: int, pages: Mapping[str, str]) -> int:
    server = f"http://{config.host}:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", config.host, "--port", str(port), "--workers", "1"]
    # Without MLflow's seven workers for jobs that nothing here asks for: they take a third of a core while idle.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"} | os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    environment["MLFLOW_BACKEND_STORE_URI"] = store.uri  # every user of the machine sees a command's words
    # MLflow's log is long and of no interest until it fails: it is read from a file then.
    log = store.tables.with_name("ui.log") if store.tables else None
    with log.open("w") if log else open(os.devnull, "w") as out:  # noqa: PTH123
        process = subprocess.Popen(  # noqa: S603
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stopped either way, the server goes too
    try:
        _wait(process, server)
        _say_pages(server, pages, browser=config.browser)
        say("Ctrl-C stops the server.")
        return wait_for_end(process)
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(process)


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process, once it has ended; KeyboardInterrupt within a second of Ctrl-C.

    `process.wait()` sleeps until the process ends, and a signal that comes just before it falls asleep is not seen
    before it wakes: 3 of 100,000 that were sent within 2 ms of the wait's beginning.
    """
    while (code := process.poll()) is None:
        time.sleep(_LOOK_SECONDS)
    return code


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and its workers: they share a process group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            return


def _wait(process: subprocess.Popen[bytes], server: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RbptrackError(f"MLflow's server ended at once with code {process.returncode}; see mlruns/ui.log")
        try:
            with urllib.request.urlopen(f"{server}/health", timeout=2):  # noqa: S310 - our own http address
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RbptrackError(f"MLflow's server did not answer within {_START_SECONDS:.0f} s; see mlruns/ui.log")


def _free_port(host: str, wanted: int) -> int:
    for port in (p for p in range(wanted, wanted + 100) if p not in _REFUSED_PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise BadInput(f"no free port from {wanted} to {wanted + 99} on {host}; give another: port=...")


main = UI.running(_ui)
