"""The command `ui`, which shows the tracking store in the browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from rbptrack.cli.options import Selection, select_all, with_selection
from rbptrack.console.output import open_in_browser, print_text

_POLL_SECONDS = 0.1


@with_selection(select_all)
def ui(
    selection: Selection,
    host: Annotated[str, typer.Option(help="address at which the server listens")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port at which the server listens")] = 5000,
    open_: Annotated[bool, typer.Option("--open", help="open the page in the browser when the server answers")] = False,
) -> int:
    """Start MLflow's web page for this tracking store."""
    store = selection.store
    page = store.save_view()  # a sweep saves this view, but `import` and the Python interface do not
    if store.uri.startswith(("http://", "https://")):
        _show_address(f"{store.shown_address.rstrip('/')}/{page}", open_page=open_)
        return 0
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
    # One worker starts faster than MLflow's four. The lines about each request would hide the address of the page.
    command += ["--workers", "1", "--uvicorn-opts", "--log-level warning"]
    # The store's address may hold a password, and other users can read command lines, but not the environment.
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": store.uri}
    # MLflow starts several processes. They get a session of their own, which can be stopped as a whole.
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"  # noqa: S104 - compared only
    print_text(f"MLflow is starting at {address}. This can take a minute.")
    sys.stdout.flush()
    try:
        while server.poll() is None and not _is_answering(f"{address}/health"):
            time.sleep(_POLL_SECONDS)
        if server.returncode is None:
            _show_address(f"{address}/{page}", open_page=open_)
        return server.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _is_answering(address: str) -> bool:
    import http.client
    import urllib.request

    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - its own server
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _show_address(address: str, *, open_page: bool) -> None:
    print_text(f"measurements: {address}")
    sys.stdout.flush()
    if open_page:
        open_in_browser(address)
