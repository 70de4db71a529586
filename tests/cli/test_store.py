"""`verify` and `ui`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import pytest

from rbptrack.tracking import Store
from tests.conftest import RunCommand
from tests.system.servers import free_port


def test_an_untouched_store_verifies(on_store: RunCommand) -> None:
    code, _, err = on_store("verify")
    assert (code, err) == (0, "")


def test_a_damaged_file_is_found_and_marked(
    store: Path, on_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store whose artifacts lie in this folder: MLflow keeps absolute addresses."""
    uri = f"--tracking-uri sqlite:///{tmp_path}/mlflow.db"
    bundle = tmp_path / "b.zip"
    assert on_store(f"export {bundle} --dataset code --model nano-6k")[0] == 0
    monkeypatch.chdir(tmp_path)
    assert on_store(f"import {bundle} {uri}")[0] == 0
    (ranks,) = tmp_path.rglob("ranks.parquet")
    content = bytearray(ranks.read_bytes())
    content[len(content) // 2] ^= 4
    ranks.write_bytes(content)
    code, out, _ = on_store(f"verify {uri}")
    assert code == 1
    assert "ranks.parquet" in out
    assert on_store(f"verify --repair {uri}")[0] == 1


def test_a_sweep_does_not_repair_reports_and_lost_runs(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("model,dataset,ce,rbp_10\nmine-1m,wiki,3.4,0.7\n")
    assert run_command("import results.csv")[0] == 0
    store = Store("sqlite:///mlflow.db")
    sweep = store.save("sweep", "s", sweep="first", files={"report.html": "<p>"}, covers=["0" * 32])
    code, out, _ = run_command("verify --repair")
    assert code == 1
    assert "next sweep" not in out
    store.artifact(sweep, "report.html").write_text("<p>altered")
    code, out, _ = run_command("verify")
    assert (code, "next sweep" in out) == (1, False)
    code, out, _ = run_command("verify --repair")
    assert (code, "next sweep" in out) == (1, False)
    assert run_command("verify")[0] == 0  # the marked sweep is not read any more


SERVER = """
import json, os, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        started = {"words": sys.argv, "uri": os.environ["MLFLOW_BACKEND_STORE_URI"]}
        pathlib.Path(os.environ["STARTED"]).write_text(json.dumps(started))
        raise SystemExit  # the server ends after one answer

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).handle_request()
"""


def test_ui_starts_mlflows_server_and_opens_the_page_when_it_answers(
    on_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of MLflow runs a server that answers once. The store's address is not on its command line."""
    (tmp_path / "mlflow.py").write_text(SERVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    port = free_port()
    _, out, _ = on_store(f"ui --open --port {port}")
    assert f"http://127.0.0.1:{port}/#/experiments/" in out
    (address,) = opened
    assert address in out
    assert "workflowType=machine_learning" in address
    started = json.loads((tmp_path / "started").read_text())
    assert started["uri"].startswith("sqlite:///")
    assert not any("sqlite" in word for word in started["words"])


def test_a_server_that_cannot_start_ends_ui(
    on_store: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out, _ = on_store(f"ui --port {free_port()}")
    assert code == 3
    assert "/experiments/" not in out  # the address of the page
