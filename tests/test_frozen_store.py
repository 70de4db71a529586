"""A store that release 0.1.0 made: whatever changes, it stays readable and comparable, and is never measured again."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import signal
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Program, Start
from tests.patience import PATIENCE, until
from tests.prepared import HOLD

FROZEN = Path(__file__).parent / "frozen"  # its README says how it was made
NUMBERS: dict[str, list[dict[str, Any]]] = json.loads((FROZEN / "numbers-0.1.0.json").read_text())
SWEEP = ("model=nano/6k,nano/15k,nano/38k,nano/115k", "dataset=stdlib,pydocs",
         "dataset.sequence=truncate", "dataset.seq_len=64", "dataset.documents=10")  # fmt: skip
OTHERS = ("model=nano-seeds/15k-seed2,nano-checkpoints/15k-step256", "dataset=pydocs", "dataset.documents=2")
BEGUN = ("model=nano/38k", "dataset=pydocs", "dataset.documents=4", "engine.part_tokens=300", "engine.batch_tokens=256")
SPOOLED = ("model=nano/6k", "dataset=pydocs", "dataset.documents=2")
FEW = "analyzers=power_law"
PARTS = "mlruns/partial/*/part-*.parquet"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store as it was frozen, to be copied."""
    folder = tmp_path_factory.mktemp("frozen")
    with tarfile.open(FROZEN / "store-0.1.0.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    dump = folder / "mlruns/mlflow.sql"
    with closing(sqlite3.connect(dump.with_suffix(".db"))) as database:
        database.executescript(dump.read_text())
    dump.unlink()
    return folder


@pytest.fixture
def store(unpacked: Path, tmp_path: Path) -> Path:
    """A copy of it, as of somebody who moved the folder."""
    return Path(shutil.copytree(unpacked, tmp_path / "moved"))


@pytest.fixture
def say(program: Program) -> Any:
    """Run a command that must succeed; returns what it printed."""

    def run(*arguments: str, cwd: Path, code: int = 0) -> str:
        done = program(*arguments, cwd=cwd)
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return str(done.stdout if code == 0 else done.stderr)

    return run


def listed(say: Any, folder: Path) -> list[dict[str, Any]]:
    """The measurements that `list` prints, each with what was frozen of it, in a fixed order."""
    rows = json.loads(say("list", "format=json", cwd=folder))
    frozen = NUMBERS["finished"][0]  # to ten digits
    return ordered(
        [{key: round(row[key], 10) if isinstance(row[key], float) else row[key] for key in frozen} for row in rows]
    )


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["model"], row["dataset"], row["num_tokens"]))


def files(folder: Path) -> dict[Path, bytes]:
    """What lies among a store's artifacts."""
    paths = (path for path in (folder / "mlruns/artifacts").rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def run_ids(folder: Path) -> dict[str, tuple[str, str]]:
    """Of each measurement's fingerprint: the run and its status; one that is there twice fails."""
    query = (
        "select value, run_uuid, status from tags join runs using (run_uuid)"
        " where key = 'rbptrack.fingerprint' and lifecycle_stage = 'active'"
    )
    with closing(sqlite3.connect(folder / "mlruns/mlflow.db")) as database:
        rows = database.execute(query).fetchall()
    runs = {fingerprint: (run, status) for fingerprint, run, status in rows if len(fingerprint) == 64}
    assert len(runs) == len(rows)
    return runs


def test_what_was_measured_is_read_as_it_was(say: Any, store: Path, unpacked: Path) -> None:
    assert listed(say, store) == ordered(NUMBERS["finished"])
    for row in NUMBERS["finished"][3::4]:  # another seed, a sweep's, an import
        shown = say("show", f"{row['model']}/{row['dataset']}", "k=10", cwd=store)
        assert row["fingerprint"][:12] in shown
        assert f"{row['rbp_10']:.4f}" in shown
        assert f"{row['ce']:.4f}" in shown
    assert files(store) == files(unpacked)


def test_answers_for_programs(say: Any, store: Path) -> None:
    """One JSON document on standard output, nothing else."""
    shown = json.loads(say("show", "nano-6k/pydocs", "k=7", "format=json", cwd=store))
    (row,) = (one for one in NUMBERS["finished"] if (one["model"], one["dataset"]) == ("nano-6k", "pydocs"))
    assert shown["metrics"]["ce"] == pytest.approx(row["ce"])
    assert 0 < shown["metrics"]["rbp_7"] < shown["metrics"]["rbp_10"]
    assert sum(shown["ranks"]["tokens"]) == shown["num_tokens"]
    parts = json.loads(say("list", "columns=ce,ce_rank,ce_rest", "format=json", cwd=store))
    split = [row for row in parts if row["ce_rank"] is not None]
    assert split, "computed from the histograms: no run of this store logged them"
    assert all(row["ce_rank"] + row["ce_rest"] == pytest.approx(row["ce"]) for row in split)
    every = json.loads(say("list", "columns=all", "format=json", cwd=store))
    assert [row["ce_rank"] for row in every] == [row["ce_rank"] for row in parts]
    table = list(csv.DictReader(io.StringIO(say("list", "columns=all", "format=csv", cwd=store))))
    assert sum(bool(row["ce_rest"]) for row in table) == len(split)
    shown_parts = shown["metrics"]["ce_rank"] + shown["metrics"]["ce_rest"]
    assert shown_parts == pytest.approx(shown["metrics"]["ce"])
    assert f"{shown['metrics']['ce_rank']:.4f}" in say("show", "nano-6k/pydocs", cwd=store)
    checked = json.loads(say("verify", "format=json", cwd=store))
    assert checked["measurements"] == len(NUMBERS["finished"])
    assert not checked["faults"]
    analysed = json.loads(say("analyze", "k_law", "format=json", cwd=store))
    assert analysed["tables"]
    assert all(rows for rows in analysed["tables"].values())
    plugins = json.loads(say("plugins", "format=json", cwd=store))
    assert {"k_law", "compare"} <= {one["name"] for one in plugins["analyzers"]}


def test_it_goes_to_another_store_and_an_old_bundle_comes_in(say: Any, store: Path, tmp_path: Path) -> None:
    say("export", "out=all.zip", cwd=store)
    for bundle, expected in (
        ("all.zip", NUMBERS["finished"]),
        ("bundle.zip", [r for r in NUMBERS["finished"] if (r["model"], r["dataset"]) == ("nano-6k", "pydocs")]),
    ):
        fresh = tmp_path / bundle.removesuffix(".zip")
        fresh.mkdir()
        say("import", str(store / bundle), cwd=fresh)
        assert listed(say, fresh) == ordered(expected)
    for again in ("all.zip", "table.csv"):
        say("import", again, cwd=store)
    assert listed(say, store) == ordered(NUMBERS["finished"])


def test_every_analyzer_reads_it(say: Any, store: Path, unpacked: Path) -> None:
    names = re.findall(r"^(\w+)  \(analyzer rbptrack\b", say("plugins", cwd=store), re.MULTILINE)
    assert "power_law" in names
    say("report", "out=page.html", "dataset=stdlib", "size=6k,38k,115k", cwd=store)
    page = (store / "page.html").read_text()
    assert not [name for name in names if name not in page]
    laws = say("analyze", "analyzer=power_law", cwd=store)
    assert re.search(r"stdlib +nano +RBP_10 +0\.23[56]", laws)  # the exponents, as they were
    assert re.search(r"essays +toy +RBP_10 +0\.11[56]", laws)
    after = files(store)
    assert all(after.get(path) == held for path, held in files(unpacked).items())


def test_other_commands_take_it(say: Any, store: Path) -> None:
    assert "delivered nano-6k / pydocs" in say("sync", cwd=store)
    assert listed(say, store) == ordered(NUMBERS["finished"] + NUMBERS["in the spool"])
    assert not (store / "mlruns/spool").exists()
    for command in ("sync", "cache", "help"):
        say(command, cwd=store)
    planned = say("plan", "-m", *SWEEP, cwd=store)
    assert len(re.findall(r"^nano.* measured$", planned, re.MULTILINE)) == 8
    assert "nano, nano-checkpoints, toy" in say("ui", "family=nosuch", cwd=store, code=2)


def test_nothing_is_measured_twice(say: Any, start: Start, store: Path, unpacked: Path) -> None:
    """The sweeps are skipped, the spool is delivered, and what was begun continues from its parts, in its run."""
    before, kept = run_ids(store), {path: path.stat().st_mtime_ns for path in store.glob(PARTS)}
    (begun,) = NUMBERS["begun"]
    assert before[begun["fingerprint"]][1] == "RUNNING"
    assert len(kept) == 4
    process = start(*BEGUN, FEW, cwd=store, **{HOLD: "5"})
    try:
        until(lambda: len(list(store.glob(PARTS))) >= 5 or process.poll() is not None, "fifth part")
        assert process.poll() is None, process.said
        assert {path: path.stat().st_mtime_ns for path in kept} == kept
        assert len({path.parent for path in store.glob(PARTS)}) == 1
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    finally:
        process.kill()
    assert "1 measured" in say(*BEGUN, FEW, cwd=store)
    for sweep, cells in ((SWEEP, 8), (OTHERS, 2), (SPOOLED, 1)):
        assert f"0 measured, {cells} skipped" in say("-m", *sweep, FEW, cwd=store)
    after = run_ids(store)
    assert after == {fingerprint: (run, "FINISHED") for fingerprint, (run, _) in before.items()}
    assert not list(store.glob("mlruns/partial/*")) + list(store.glob("mlruns/spool/*"))
    *_, last = rows = sorted(listed(say, store), key=lambda row: bool(row["fingerprint"] == begun["fingerprint"]))
    assert ordered(rows[:-1]) == ordered(NUMBERS["finished"] + NUMBERS["in the spool"])
    assert last == {k: v if isinstance(v, (str, int)) else pytest.approx(v, abs=2e-3) for k, v in begun.items()}
    held = files(store)
    assert all(held.get(path) == data for path, data in files(unpacked).items())
