"""Builds small stores by running the program as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rbptrack.tracking import Store

SMALL_SWEEP = ("dataset=pydocs", "dataset.documents=20", "engine.threads=1", "sweep=first")
PATIENCE = 900.0  # seconds after which a command counts as hanging
_DEPEND_ON_MACHINE = ("seconds", "tokens_per_second", "peak_memory_bytes", "batch_tokens", "chunk_tokens")


def run_rbptrack(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Run `python -m rbptrack WORDS` in a folder, and assert that it succeeds. Returns what it prints to stdout."""
    command = [sys.executable, "-m", "rbptrack", *words]
    environment = os.environ | dict(env or {})
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def build_store(folder: Path, *models: str) -> Store:
    """Measure models on 20 documents in a new folder, and return the store."""
    folder.mkdir(parents=True)
    run_rbptrack(folder, f"model={','.join(models)}", *SMALL_SWEEP, "analyzers=[]")
    return Store(f"sqlite:///{folder}/mlflow.db")


def metrics_and_hashes(store: Store) -> dict[str, tuple[dict[str, float], str]]:
    """Return the metrics of each measurement, without times and memory, and the hash of its ranks, by run name."""
    by_name: dict[str, tuple[dict[str, float], str]] = {}
    for run in store.finished_runs():
        metrics = {name: value for name, value in run.data.metrics.items() if name not in _DEPEND_ON_MACHINE}
        record = json.loads(store.artifact(run.info.run_id, "record.json").read_text())
        assert run.info.run_name not in by_name
        by_name[run.info.run_name] = metrics, record["files"]["ranks.parquet"]
    return by_name
