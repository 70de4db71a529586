"""The command `ui`, which shows the tracking store in the browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from rbptrack.base.errors import BadInput
from rbptrack.cli.options import Selection, select_all, with_selection
from rbptrack.console.output import print_text


@with_selection(select_all)
def ui(
    selection: Selection,
    host: Annotated[str, typer.Option(help="address at which the server listens")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port at which the server listens")] = 5000,
) -> int:
    """Start MLflow's web page for this tracking store, and print the address of the measurements on it."""
    store = selection.open_store()
    connection = store.connection
    if connection.is_server and not connection.page_address:
        raise BadInput(f"the page of {store.shown_address} is in its Databricks workspace: open it there")
    view = store.save_view()  # a sweep saves this view, but `import` and the Python interface do not
    shown_host = f"[{host}]" if ":" in host else host  # an IPv6 address
    print_text(f"measurements: {connection.page_address or f'http://{shown_host}:{port}'}/{view}")
    if not connection.is_server:
        print_text("MLflow is starting there. This can take a minute. Ctrl-C stops it.")
        sys.stdout.flush()
        command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", str(port)]
        # One worker starts faster than MLflow's four. The lines about each request would hide the address of the page.
        command += ["--workers", "1", "--uvicorn-opts", "--log-level warning"]
        # The store's address may hold a password, and other users can read command lines, but not the environment.
        os.execve(sys.executable, command, os.environ | {"MLFLOW_BACKEND_STORE_URI": store.uri})  # noqa: S606
    return 0
