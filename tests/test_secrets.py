"""Planted secrets are searched for in everything that is written and shown: none is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from rbptrack.base.errors import BadInput
from rbptrack.commands import export, import_, measure, report
from tests.conftest import Program
from tests.patience import PATIENCE, until_they_end
from tests.server import OTHERS_WARN, QUOTED, Server, databases, free_port, postgres_binaries

pytestmark = [
    pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql"),
]

PLANTED = {
    "HF_TOKEN": "hf_canaryhf1",
    "AWS_ACCESS_KEY_ID": "AKIACANARYAWS2",
    "AWS_SECRET_ACCESS_KEY": "canary/aws+3",
    "AWS_SESSION_TOKEN": "canaryaws4==",
    "MLFLOW_TRACKING_PASSWORD": "canarypassword6",
    "MLFLOW_TRACKING_TOKEN": "canarytoken7",
}
SECRET = re.compile("hunter2|canary", re.IGNORECASE)
CELL = ("dataset=pydocs", "dataset.documents=3")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with databases() as started:
        yield started


def secrets_in(text: str) -> list[str]:
    """The secrets in a text, with what stands around them."""
    return [text[max(0, m.start() - 60) : m.end() + 20] for m in SECRET.finditer(text)]


@pytest.fixture
def planted(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A working folder with secrets in the environment; what it holds at the end, and the database, hold none."""
    monkeypatch.chdir(tmp_path)
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PGPASSWORD", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.database())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    yield server.database()
    (tmp_path / "conf/protocol/team.yaml").unlink(missing_ok=True)
    leaks = {path: secrets_in(path.read_bytes().decode("latin-1")) for path in tmp_path.rglob("*") if path.is_file()}
    assert not {path: leak for path, leak in leaks.items() if leak}
    client = MlflowClient(server.database())
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    assert runs
    assert not secrets_in(repr([(r.info, r.data.params, r.data.tags, r.inputs) for r in runs]))


def in_query(server: Server) -> str:
    return f"postgresql://127.0.0.1:{server.database_port}/direct?user=tester&password={QUOTED}"


def test_a_report_an_export_and_mlflows_pages(
    server: Server, planted: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of imported measurements, with errors on the way; and the words of all processes that `ui` starts."""
    rows = [f"a-{i},w,{10**i},{9 * 10 ** (-0.06 * i)}" for i in range(4, 9)]
    (tmp_path / "t.csv").write_text("\n".join(["model,dataset,non_embedding_params,ce", *rows]))
    place = f"tracking.artifacts={tmp_path / 'shared'}"
    assert import_.main(["t.csv", place]) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", in_query(server))
    assert report.main(["analyzers=power_law", "out=r.html"]) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", planted)
    assert export.main(["out=b.zip"]) == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", planted.replace("/direct", "/nope"))
    with pytest.raises(BadInput, match="database"):
        import_.main(["t.csv"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", planted)
    with pytest.raises(BadInput, match=r"model.revision holds a secret"):
        measure.main(["model=nano/6k", *CELL, f"model.revision={PLANTED['HF_TOKEN']}"])
    (tmp_path / "leak.csv").write_text(f"model,dataset,non_embedding_params,ce\n{PLANTED['HF_TOKEN']},w,10,1.5\n")
    with pytest.raises(BadInput, match="the run's name holds a secret"):
        import_.main(["leak.csv", place])
    (tmp_path / "leak.csv").unlink()
    said = pages()
    shown = capfd.readouterr()
    assert not secrets_in(said + shown.out + shown.err)


def test_a_sweep_and_an_address_in_a_file(server: Server, planted: str, program: Program, tmp_path: Path) -> None:
    file = tmp_path / "conf/protocol/team.yaml"
    place = [f"tracking.artifacts={tmp_path / 'shared'}", "tracking.experiment=sweeps"]
    file.parent.mkdir(parents=True)
    file.write_text(f"# @package _global_\ntracking:\n  uri: {in_query(server)}\n")

    def run(*words: str, code: int = 0) -> str:
        done = program(*words, cwd=tmp_path, MLFLOW_TRACKING_URI=planted, **PLANTED)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    said = run("-m", "model=nano/6k,nano/15k", *CELL, *place, "analyzers=compare")
    refused = run("model=nano/38k", *CELL, *place, "protocol=team", code=2)
    refused += run("model=nano/38k", *CELL, f"++tracking.uri='{planted}'", code=2)
    assert refused.count("tracking.uri holds a password") == 2
    assert not secrets_in(said + refused)
    names = {path.name for path in tmp_path.rglob("*")}
    assert {"config.yaml", "command.txt", "cells.csv"} <= names


def pages() -> str:
    """Start `ui`, look at the words of every process that it starts, and end it; returns what it printed."""
    command = [sys.executable, "-m", "rbptrack", "ui", f"port={free_port()}"]
    said = words = ""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **pipes, env=os.environ | OTHERS_WARN) as process:
        try:
            assert process.stdout
            while "compare" not in said and process.poll() is None:
                said += process.stdout.readline()
            below = psutil.Process(process.pid).children(recursive=True)
            for one in [psutil.Process(process.pid), *below]:
                with suppress(psutil.Error):  # it has just ended
                    words += " ".join([*one.cmdline(), ""])
            assert len(below) >= 1
        finally:
            process.terminate()
        said += process.communicate(timeout=PATIENCE)[0]
    assert not secrets_in(words)
    assert "mlflow" in words
    until_they_end(below)
    return said
