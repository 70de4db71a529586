"""Reading goes on past whatever else is in the store: rows of other writers, strange names, no right to write."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from mlflow import MlflowClient

import rbptrack
from rbptrack.base.errors import BadInput
from rbptrack.commands import analyze, export, import_, list_, report
from rbptrack.tracking.writer import Writer
from tests.patience import PATIENCE

FAMILIES = ("nano (v2)", "C++", "a/b")
NAMES = {"{x}": "2", "../up": "3"}


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A store of three families of four sizes on a dataset named {x}, with the law CE = 9 S^-0.06."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / "mlruns").mkdir()
    shutil.copy(empty_store, folder / "mlruns/mlflow.db")
    rows = ["family,size,model,dataset,non_embedding_params,ce,rbp_1"]
    for family in FAMILIES:
        for s in (1e6, 1e7, 1e8, 1e9):
            numbers = f"{s:.0f},{9 * s**-0.06},{np.exp(-4 * s**-0.07)}"
            rows.append(f'"{family}",{s:.0e},"{family}-{s:.0e}",{{x}},{numbers}')
    (folder / "t.csv").write_text("\n".join(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert import_.main(["t.csv"]) == 0
    return folder


@pytest.fixture
def here(imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that store, in which the artifacts of new runs lie."""
    shutil.copytree(imported / "mlruns", tmp_path / "mlruns")
    with closing(sqlite3.connect(tmp_path / "mlruns/mlflow.db")) as database:
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            database.execute(f"update {table} set {column} = replace({column}, '{imported}', '{tmp_path}')")
        database.commit()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_strange_names_keep_their_laws(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table, in MLflow's metrics, and in files of a report."""
    assert analyze.main(["analyzer=power_law"]) == 0
    assert report.main(["analyzers=power_law,k_law,compare", "out=r.html"]) == 0, capsys.readouterr()
    client = MlflowClient(f"sqlite:///{here}/mlruns/mlflow.db")
    metrics = {
        name: value
        for run in client.search_runs(["1", "2"], "tags.`rbptrack.analyzer` = 'power_law'")
        for name, value in run.data.metrics.items()
    }
    for family in ("nano :28v2:29", "C:2b:2b", "a:2fb"):
        assert metrics[f"alpha/{family}/:7bx:7d/ce"] == pytest.approx(0.06, abs=1e-6)
    page = Path("r.html").read_text()
    assert all(family in page for family in FAMILIES)


def test_links_of_a_page_that_lies_elsewhere_lead_to_its_tables(here: Path) -> None:
    (here / "a b").mkdir()
    assert report.main(["analyzers=power_law", "out=a b/r%1.html"]) == 0
    links = re.findall(r'href="([^"]+\.csv)"', Path("a b/r%1.html").read_text())
    assert len(links) > 2
    assert all(Path("a b", unquote(link)).is_file() for link in links)


def run_of(client: MlflowClient) -> str:
    """A finished run that says that it is a measurement, of a lawful row."""
    run = client.create_run("1", run_name="poisoned")
    tags = {"kind": "measurement", "family": "p", "size": "1m", "model": "p-1m", "dataset": "w"}
    for tag, value in tags.items():
        client.set_tag(run.info.run_id, f"rbptrack.{tag}", value)
    return str(run.info.run_id)


def tag(name: str, value: str) -> Callable[[MlflowClient, str], None]:
    return lambda client, run_id: client.set_tag(run_id, f"rbptrack.{name}", value)


def param(name: str, value: str) -> Callable[[MlflowClient, str], None]:
    return lambda client, run_id: client.log_param(run_id, name, value)


def metric(name: str, value: float) -> Callable[[MlflowClient, str], None]:
    return lambda client, run_id: client.log_metric(run_id, name, value)


def several(*parts: Callable[[MlflowClient, str], None]) -> Callable[[MlflowClient, str], None]:
    return lambda client, run_id: [part(client, run_id) for part in parts] and None


POISONS = [
    (param("model.vocab_size", "many"), "the param model.vocab_size must be a whole number; got 'many'"),
    (param("model.vocab_size", "-5"), "vocab_size: must be a whole number above 0; got -5"),
    (param("model.non_embedding_params", "9" * 400), "non_embedding_params: must be finite; got 999"),
    (param("model.non_embedding_params", "inf"), "the param model.non_embedding_params must be a whole number"),
    (param("model.training_tokens", "x"), "the param model.training_tokens must be a number; got 'x'"),
    (param("dataset.seq_len", "51.5"), "the param dataset.seq_len must be a whole number; got '51.5'"),
    (metric("ce", -1.0), "ce: must not be negative; got -1.0"),
    (metric("ce", float("inf")), "ce: must be finite; got"),
    (metric("num_tokens", 0.0), "num_tokens: must be a whole number above 0; got 0.0"),
    (metric("num_tokens", 1.5), "num_tokens: must be a whole number above 0; got 1.5"),
    (metric("tie_rate", 2.0), "tie_rate: must be between 0 and 1; got 2.0"),
    (several(metric("rbp_1", 0.5), metric("rbp_10", 0.4)), "rbp_10: RBP_k must not fall with k, but rbp_1 is 0.5"),
    (several(metric("rbp_99", 0.5), param("model.vocab_size", "50")), "rbp_99: k must be at most vocab_size = 50"),
    (tag("family", ""), "family: must not be empty"),
    (tag("model", "p\x1b[2J"), "model: must not hold control characters"),
    (tag("dataset", "w" * 300), "dataset: must have at most 200 characters"),
]


def test_runs_that_hold_no_measurement_are_named_and_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = MlflowClient(f"sqlite:///{here}/mlruns/mlflow.db")
    ids = []
    for poison, _ in POISONS:
        ids.append(run_of(client))
        poison(client, ids[-1])
        client.set_terminated(ids[-1])
    with closing(sqlite3.connect(here / "mlruns/mlflow.db")) as database:  # as no MLflow writes it
        database.execute("update runs set start_time = null, end_time = null where run_uuid = ?", (ids[-1],))
        database.execute("delete from tags where run_uuid = ? and key = 'rbptrack.model'", (ids[-2],))
        database.commit()
    capsys.readouterr()
    assert len(rbptrack.runs()) == 12
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(POISONS)
    for run_id, (_, words) in list(zip(ids, POISONS, strict=True))[:-2]:
        (line,) = [line for line in said if run_id in line]
        assert f"run {run_id} (poisoned) is left out: it holds no measurement (" in line
        assert words in line
    commands = (
        (analyze, ["analyzer=power_law"]),
        (report, ["analyzers=power_law"]),
        (export, ["out=b.zip"]),
        (list_, []),
    )
    for command, words_of in commands:
        assert command.main(words_of) == 0
        assert ids[0] in capsys.readouterr().err or command is list_


def unprivileged() -> list[str]:
    """Words before a command that make the superuser feel permissions, too."""
    if os.geteuid() != 0:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed: apt-get install util-linux")
    return ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"]


def test_a_store_that_cannot_be_written_is_read(here: Path) -> None:
    """Analysed, reported and exported; what the write-ahead log holds is read too, and the store stays as it is."""
    work = here / "work"
    work.mkdir()
    store = here / "mlruns"
    holder = sqlite3.connect(store / "mlflow.db")
    holder.execute("pragma journal_mode=WAL")
    holder.execute("update runs set name = 'from the log' where name like 'C++%'")
    holder.commit()  # and not closed: the log stays
    assert (store / "mlflow.db-wal").stat().st_size
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*")}
    for path in [store, *store.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    code = f"""
import os; os.chdir({str(work)!r})
from rbptrack.commands import analyze, export, list_, report
uri = "tracking.uri=sqlite:///{store}/mlflow.db"
codes = [analyze.main(["analyzer=power_law", uri]), report.main(["analyzers=power_law", uri])]
print("exit codes", *codes, export.main(["out=b.zip", uri]), list_.main([uri]))
from rbptrack.commands import import_
try: import_.main(["../t.csv", uri])
except Exception as error: print(type(error).__name__, error)
"""
    (here / "t.csv").write_text("model,dataset,non_embedding_params,ce\na-1,w,7,2\n")
    try:
        command = [*unprivileged(), sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        after = {p: p.stat().st_mtime_ns for p in store.rglob("*")}  # before the holder of the database writes its log
    finally:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o755)
        holder.close()
    said = " ".join(done.stdout.split())
    assert "not logged: the tracking store sqlite:///" in said, done.stderr
    assert "exit codes 0 0 0 0" in said, done.stdout + done.stderr
    assert "BadInput the tracking store" in said
    assert sorted(p.name for p in work.iterdir()) == ["b.zip", "rbptrack-report-tables", "rbptrack-report.html"]
    assert all(before[path] == time for path, time in after.items() if path.is_file() and "-" not in path.name)


def test_an_analysis_that_the_store_does_not_take_is_a_failure(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Writer.log

    def refuse(self: Writer, run_id: str, **given: Any) -> None:
        if any(name.startswith("alpha/") for name in given.get("metrics") or {}):
            raise BadInput("the tracking store refuses these metrics")
        real(self, run_id, **given)

    monkeypatch.setattr(Writer, "log", refuse)
    assert report.main(["analyzers=power_law,compare", "out=r.html"]) == 1
    assert "analyzer power_law could not be logged: the tracking store refuses" in capsys.readouterr().err
    assert "<b>power_law</b>: could not be logged" in Path("r.html").read_text()
