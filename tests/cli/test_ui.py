"""Tests of the command `ui`, which starts MLflow's server on the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import RunCommand
from tests.system.servers import free_port

# A server in place of MLflow's. It writes its arguments and the store's address to the file STARTED, and ends after
# one answer.
SERVER = """
import json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        started = {"arguments": sys.argv, "uri": os.environ["MLFLOW_BACKEND_STORE_URI"]}
        pathlib.Path(os.environ["STARTED"]).write_text(json.dumps(started))
        raise SystemExit

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).handle_request()
"""


def test_ui_opens_the_page_when_the_server_answers(
    run_in_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened_addresses: list[str]
) -> None:
    """The address of the store may hold a password. It is passed in the environment, not on the command line."""
    (tmp_path / "mlflow.py").write_text(SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    port = free_port()
    _, out, _ = run_in_store(f"ui --open --port {port}")
    assert f"http://127.0.0.1:{port}/#/experiments/" in out
    (address,) = opened_addresses
    assert address in out
    assert "workflowType=machine_learning" in address
    started = json.loads((tmp_path / "started").read_text())
    assert started["uri"].startswith("sqlite:///")
    assert not any("sqlite" in argument for argument in started["arguments"])


def test_ui_exits_with_the_code_of_a_server_that_cannot_start(
    run_in_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out, _ = run_in_store(f"ui --port {free_port()}")
    assert code == 3
    assert "/experiments/" not in out  # the address of the page
