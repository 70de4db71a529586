"""The whole program in a subprocess, on embedded input, as a user would type it."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from scipy import stats

from tests.conftest import EMBEDDED, SWEEP, Program, Start
from tests.patience import PATIENCE, until
from tests.prepared import HOLD

Swept = tuple[Path, str]


def client(folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder / 'mlruns/mlflow.db'}")


def runs(folder: Path, kind: str) -> list[Run]:
    c = client(folder)
    experiment = c.get_experiment_by_name("rbptrack-analyses" if kind == "analysis" else "rbptrack")
    assert experiment is not None
    return list(c.search_runs([experiment.experiment_id], f"tags.`rbptrack.kind` = '{kind}'"))


def artifact(run: Run, path: str) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://")) / path


def test_what_a_sweep_prints(swept: Swept) -> None:
    _, out = swept
    assert "measuring 8 cells: 4 models x 2 datasets" in out
    assert "8 measured" in out
    assert re.search(r"nano-6k +stdlib +5\.68k", out)
    assert re.search(r"stdlib +RBP_10 +0\.\d+ \(-?\d\.\d+ to \d\.\d+\)", out)
    assert "python -m rbptrack ui" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_report_of_a_store(swept: Swept, program: Program, tmp_path: Path) -> None:
    folder, _ = swept
    page = tmp_path / "page.html"
    done = program("report", "dataset=stdlib", "analyzers=power_law,compare", f"out={page}", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "4 measurements, 2 analyzers" in done.stdout
    assert "skipped, nothing to compare" in done.stdout
    assert f"report   {page}" in done.stdout
    assert 'id="power_law"' in page.read_text()
    none = program("report", "dataset=wiki", cwd=folder)
    assert none.returncode == 2
    assert none.stderr == "error: no measurement has dataset=wiki. The store has pydocs, stdlib\n"


def test_nothing_lands_outside_mlruns(untouched: Path) -> None:
    assert [p.name for p in untouched.iterdir()] == ["mlruns"]
    assert {p.name for p in (untouched / "mlruns").iterdir()} <= {
        "artifacts",
        "hydra",
        "mlflow.db",
        "mlflow.db-shm",
        "mlflow.db-wal",
        "mlflow.db.lock",
        "partial",
    }
    assert not list((untouched / "mlruns/partial").glob("*"))


def test_the_store_reads_well_with_plain_mlflow(swept: Swept) -> None:
    folder, _ = swept
    cells = runs(folder, "measurement")
    assert len(cells) == 8
    assert {r.info.status for r in cells} == {"FINISHED"}
    run = next(r for r in cells if r.info.run_name == "nano-38k / pydocs")
    tags, params, metrics = run.data.tags, run.data.params, run.data.metrics
    assert (tags["rbptrack.family"], tags["rbptrack.size"], tags["rbptrack.model"]) == ("nano", "38k", "nano-38k")
    assert re.fullmatch(r"[0-9a-f]{64}", tags["rbptrack.fingerprint"])
    assert params["dataset.seq_len"] == "256"
    assert params["model.dtype"] == "float32"
    assert params["model.non_embedding_params"] == "38176"
    assert params["model.vocab_size"] == "4096"
    assert params["dataset.scored_tokens"] == str(int(metrics["num_tokens"]))
    assert len(params) <= 40
    assert not [name for name, text in params.items() if not text or name.startswith(("launch.", "engine.", "force"))]
    assert metrics["log10_non_embedding_params"] == pytest.approx(np.log10(38176))
    assert {
        "ce",
        "ce_se",
        "bits_per_byte",
        "tie_rate",
        "num_tokens",
        "engine/tokens_per_second",
        "engine/peak_memory_bytes",
    } <= set(metrics)
    assert metrics["ce_rank"] + metrics["ce_rest"] == pytest.approx(metrics["ce"])
    assert min(metrics["ce_rank"], metrics["ce_rest"]) > 0
    assert {f"rbp_{k}{s}" for k in (1, 3, 10, 30, 100, 300, 1000, 3000) for s in ("", "_se")} <= set(metrics)
    curve = client(folder).get_metric_history(run.info.run_id, "rbp_curve")
    assert {m.step: m.value for m in curve}[1] == metrics["rbp_1"]
    assert max(m.step for m in curve) == 4096
    dataset = run.inputs.dataset_inputs[0].dataset
    assert dataset.name == "pydocs"
    texts = json.loads(artifact(run, "tokens.json").read_text())
    assert " the" in texts.values()
    for path in ("ranks.parquet", "histogram.parquet", "config.yaml", "figures/rank_distribution.png"):
        assert artifact(run, path).stat().st_size > 0
    names = {r.info.run_name for r in runs(folder, "analysis")}
    assert any(name and name.startswith("power_law / ") for name in names)
    columns = {
        name for kind in ("measurement", "sweep", "report") for r in runs(folder, kind) for name in r.data.metrics
    }
    assert len(columns) < 80, "analyses, with hundreds of metrics, are in an experiment of their own"
    (sweep,) = runs(folder, "sweep")
    assert sweep.data.tags["rbptrack.sweep"] == tags["rbptrack.sweep"]
    assert "dataset=stdlib,pydocs" in artifact(sweep, "command.txt").read_text()


def test_metrics_are_those_of_the_ranks(swept: Swept) -> None:
    for run in runs(swept[0], "measurement"):
        frame = pq.read_table(artifact(run, "ranks.parquet")).to_pandas()
        rank = frame["greater"] + frame["ties"] + 1
        metrics = run.data.metrics
        assert metrics["num_tokens"] == len(frame)
        assert metrics["ce"] == pytest.approx(-frame["logprob"].astype(float).mean(), abs=1e-9)
        for k in (1, 10, 1000):
            assert metrics[f"rbp_{k}"] == (rank <= k).mean()
        by_document = frame.assign(hit=rank <= 10).groupby("document")["hit"].agg(["sum", "count"])
        picks = np.random.default_rng(0).integers(len(by_document), size=(4000, len(by_document)))
        draws = by_document["sum"].to_numpy()[picks].sum(1) / by_document["count"].to_numpy()[picks].sum(1)
        assert metrics["rbp_10_se"] == pytest.approx(draws.std(), rel=0.15)


def test_the_law_equals_a_least_squares_fit_of_the_logged_metrics(swept: Swept) -> None:
    folder, _ = swept
    cells = [r for r in runs(folder, "measurement") if r.data.tags["rbptrack.dataset"] == "stdlib"]
    x = np.log([float(r.data.params["model.non_embedding_params"]) for r in cells])
    every = [r for r in runs(folder, "analysis") if r.data.tags["rbptrack.analyzer"] == "power_law"]
    laws = min(every, key=lambda r: r.info.start_time)  # the sweep's own; other tests add theirs
    analysis = laws.data.metrics
    for metric, y in (
        ("ce", [r.data.metrics["ce"] for r in cells]),
        ("rbp_10", [-np.log(r.data.metrics["rbp_10"]) for r in cells]),
    ):
        ols = stats.linregress(x, np.log(y))
        assert analysis[f"alpha/nano/stdlib/{metric}"] == pytest.approx(-ols.slope, rel=1e-9)
        assert analysis[f"r2/nano/stdlib/{metric}"] == pytest.approx(ols.rvalue**2, rel=1e-9)


def test_again_measures_nothing_and_adds_new_k_from_the_ranks(swept: Swept, program: Program, tmp_path: Path) -> None:
    folder = swept[0]
    done = program(*SWEEP, "k=1,7", "analyzers=power_law,k_law", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "0 measured, 8 skipped as already measured" in done.stdout
    assert "added to 8 finished measurements from stored ranks: RBP_7" in done.stdout
    assert re.search(r"tokens +CE ± se +RBP_1 ± se +RBP_7 ± se *\n", done.stdout)
    assert re.search(r"stdlib +RBP_7 ", done.stdout)
    assert "RBP_10 " not in done.stdout.partition("k_law:")[0]
    cells = runs(folder, "measurement")
    assert len(cells) == 8
    for run in cells:
        frame = pq.read_table(artifact(run, "ranks.parquet")).to_pandas()
        assert run.data.metrics["rbp_7"] == (frame["greater"] + frame["ties"] < 7).mean()
        assert run.data.metrics["rbp_7_se"] > 0
    sweeps = runs(folder, "sweep")
    assert len(sweeps) == 2
    again = program("analyze", f"sweep={sweeps[0].data.tags['rbptrack.sweep']}", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert re.search(r"stdlib +nano +RBP_10 ", again.stdout)


def test_analyze_with_filters(swept: Swept, program: Program) -> None:
    done = program("analyze", "analyzer=power_law", "family=nano", "dataset=std*", "analyzer.ks=[5]", cwd=swept[0])
    assert done.returncode == 0, done.stderr
    assert re.search(r"stdlib +nano +RBP_5 ", done.stdout)
    assert "pydocs" not in done.stdout
    wrong = program("analyze", "dataset=wiki", cwd=swept[0])
    assert wrong.returncode == 2
    assert "no measurement has dataset=wiki. The store has pydocs, stdlib" in wrong.stderr


def test_bad_input_says_what_and_writes_nothing(program: Program, tmp_path: Path) -> None:
    """As test_typos has it in many ways."""
    done = program("modle=1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no option modle. Did you mean model=?")
    assert list(tmp_path.iterdir()) == []


def damaged(folder: Path) -> None:
    """A model whose weights are all NaN."""
    shutil.copytree(EMBEDDED / "models/6k", folder)
    weights = (folder / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    (folder / "model.safetensors").write_bytes(weights[:header] + b"\xff\x7e" * ((len(weights) - header) // 2))


def test_a_damaged_model_in_a_sweep(program: Program, with_store: Path) -> None:
    damaged(with_store / "bad")
    configs = with_store / "more/model"
    configs.mkdir(parents=True)
    (configs / "bad.yaml").write_text(f"family: bad\nsize: 6k\npath: {with_store / 'bad'}\n")
    done = program(
        "model=bad,nano/6k",
        "dataset.documents=2",
        "analyzers=[]",
        f"hydra.searchpath=[file://{with_store / 'more'}]",
        cwd=with_store,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 measured, 1 failed" in done.stdout
    assert re.search(
        r"bad-6k / pydocs: the model's logits hold a NaN or an infinity at document .+, position 1", done.stderr
    )
    assert {r.info.run_name: r.info.status for r in runs(with_store, "measurement")} == {
        "bad-6k / pydocs": "FAILED",
        "nano-6k / pydocs": "FINISHED",
    }


def test_a_password_is_written_nowhere(program: Program, tmp_path: Path) -> None:
    """In the environment's address it is taken out, and a config that names its variable is shown as it is."""
    quiet = {"MLFLOW_TRACKING_URI": "http://me:hunter2@127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    away = program("dataset.documents=2", cwd=tmp_path, **quiet)
    assert away.returncode == 1  # a store that is away is no bad input
    assert "no tracking server answers at http://127.0.0.1:9" in away.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "conf/dataset").mkdir(parents=True)
    (tmp_path / "conf/dataset/mine.yaml").write_text("name: mine\nfiles: ['${oc.env:PLACE}/a.txt']\n")
    shown = program("--cfg", "job", "--resolve", "dataset=mine", cwd=tmp_path, PLACE="hunter2")
    assert "${oc.env:PLACE}/a.txt" in shown.stdout, shown.stderr
    for done in (away, shown):
        assert "hunter2" not in done.stdout + done.stderr


def test_k_above_one_vocabulary_only_is_left_out_there(program: Program, with_store: Path) -> None:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    folder = Path(shutil.copytree(EMBEDDED / "models/6k", with_store / "wide"))
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=5000, **shape)).save_pretrained(folder)
    (with_store / "c/model").mkdir(parents=True)
    (with_store / "c/model/wide.yaml").write_text(f"family: wide\nsize: 1k\npath: {folder}\n")
    done = program(
        "model=wide,nano/6k",
        "k=1,4500",
        "dataset.documents=2",
        "analyzers=[]",
        "--config-dir",
        str(with_store / "c"),
        cwd=with_store,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "k = 4500 left out where |V| = 4096" in done.stdout
    measured = {r.info.run_name: "rbp_4500" in r.data.metrics for r in runs(with_store, "measurement")}
    assert measured == {"wide-1k / pydocs": True, "nano-6k / pydocs": False}


STOPPED = ("model=nano/38k", "dataset=stdlib", "dataset.documents=10", "engine.part_tokens=1500", "analyzers=[]")


@pytest.fixture(scope="module")
def uninterrupted(program: Program, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The rank table of a measurement that nothing stopped."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    done = program(*STOPPED, cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = runs(folder, "measurement")
    return artifact(run, "ranks.parquet").read_bytes()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_measurement_continues_where_it_was(
    stop: signal.Signals, uninterrupted: bytes, program: Program, start: Start, with_store: Path
) -> None:
    """In the same run, and to the same table, byte for byte."""
    process, kept = start(*STOPPED, cwd=with_store, **{HOLD: "3"}), "mlruns/partial/*/part-*.parquet"
    try:
        until(lambda: len(list(with_store.glob(kept))) >= 3 or process.poll() is not None, "third part")
        assert process.poll() is None, process.said
        process.send_signal(stop)
        process.wait(PATIENCE)
    finally:
        process.kill()
    said, _ = process.said
    assert process.returncode == (-stop if stop == signal.SIGKILL else 128 + stop)
    (run,) = runs(with_store, "measurement")
    assert run.info.status == ("RUNNING" if stop == signal.SIGKILL else "KILLED")
    if stop != signal.SIGKILL:
        tokens = sum(pq.read_metadata(part).num_rows for part in with_store.glob(kept))
        assert "interrupted: 0 of 1 cells measured, 1 partly, 0 not begun" in said
        assert f"nano-38k / stdlib: {tokens:,} scored tokens are saved" in said
        assert said.splitlines()[-1] == f"  python -m rbptrack {shlex.join(STOPPED)}"
    parts = {p.name: p.stat().st_mtime_ns for p in with_store.glob(kept)}
    assert len(parts) >= 3
    done = program(*STOPPED, "engine.threads=1", cwd=with_store)
    assert done.returncode == 0, done.stderr
    repaired = "nano-38k / stdlib was left running by a process that is gone: now KILLED" in done.stdout
    assert repaired == (stop == signal.SIGKILL)
    (continued,) = runs(with_store, "measurement")
    assert (continued.info.run_id, continued.info.status) == (run.info.run_id, "FINISHED")
    assert continued.data.tags["mlflow.rbptrack.resumed"] == "1"
    assert artifact(continued, "ranks.parquet").read_bytes() == uninterrupted


def test_a_store_of_a_newer_mlflow(swept: Swept, program: Program, tmp_path: Path) -> None:
    database = tmp_path / "newer.db"
    with sqlite3.connect(swept[0] / "mlruns/mlflow.db") as source, sqlite3.connect(database) as target:
        source.backup(target)
        target.execute("update alembic_version set version_num = 'ffffffffffff'")
    done = program("analyze", f"tracking.uri=sqlite:///{database}", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "written by another MLflow" in done.stderr
    assert "pip install --upgrade mlflow" in done.stderr
    assert f"mlflow db upgrade sqlite:///{database}" in done.stderr


def test_a_broken_plugin_is_named_and_the_rest_works(swept: Swept, program: Program, tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/oops.py").write_text("import not_there\n")
    uri = f"tracking.uri=sqlite:///{swept[0] / 'mlruns/mlflow.db'}"
    done = program("plugins", cwd=tmp_path)
    assert done.returncode == 1
    assert "oops.py: ModuleNotFoundError: No module named 'not_there'" in done.stderr
    done = program("analyze", "dataset=stdlib", uri, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "RBP_1" in done.stdout


def test_hydra_still_works(program: Program, tmp_path: Path) -> None:
    shown = program("model=nano/6k", "--cfg", "job", cwd=tmp_path)
    assert shown.returncode == 0
    assert "size: 6k" in shown.stdout
    assert "dtype: float32" in shown.stdout
    version = program("--version", cwd=tmp_path)
    assert re.fullmatch(r"rbptrack \d+\.\d+\.\d+\n", version.stdout)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_run_has_a_table_of_cells(swept: Swept) -> None:
    (first, *_) = sorted(runs(swept[0], "sweep"), key=lambda r: r.info.start_time)
    cells = pd.read_csv(artifact(first, "cells.csv"))
    assert len(cells) == 8
    assert set(cells["status"]) == {"measured"}
    assert set(cells["run_id"]) == {r.info.run_id for r in runs(swept[0], "measurement")}
    assert artifact(first, "power_law/figures/law_in_size.png").exists()


@pytest.mark.long  # tests/test_launch.py runs the launchers of the presets
def test_another_launcher(program: Program, with_store: Path) -> None:
    """Worker processes measure, the driver collects, and the analyzers run over all cells."""
    done = program(
        "model=nano/6k,nano/15k,nano/38k",
        "dataset.documents=5",
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "analyzers=power_law",
        cwd=with_store,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 measured" in done.stdout
    assert re.search(r"pydocs +RBP_1 ", done.stdout)
    assert len(runs(with_store, "measurement")) == 3


def test_on_a_terminal_each_phase_before_the_first_bar_has_a_name_and_foreign_libraries_are_silent(
    clean: dict[str, str], with_store: Path
) -> None:
    cells = ["model=nano/6k,nano/15k", "dataset=stdlib", "dataset.documents=4", "analyzers=power_law"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(with_store)
        environment = clean | {"COLUMNS": "100", "LINES": "40", "TERM": "xterm"}
        os.execve(sys.executable, [sys.executable, "-m", "rbptrack", "-m", *cells], environment)
    printed = b""
    with suppress(OSError):  # the terminal's other end is closed
        while part := os.read(terminal, 65536):
            printed += part
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = printed.decode()
    phases = ["reading configs", "loading plugins", "looking for models and datasets"]
    phases += ["looking for finished measurements", "reading and tokenizing stdlib", "loading nano-6k"]
    assert [text.find(phase) for phase in phases] == sorted(text.find(phase) for phase in phases)
    assert all(0 <= text.find(phase) < text.find("tokens  ") for phase in phases)
    assert not re.search("torchao|pytree|Loading weights|[Ww]arning", text)
