"""Small real stores, and the program as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rbptrack.tracking import Store

SMALL = ("dataset=pydocs", "dataset.documents=20", "engine.threads=1", "sweep=first")
PATIENCE = 900.0  # seconds after which a command counts as hanging
_OF_THE_MACHINE = ("seconds", "tokens_per_second", "peak_memory_bytes", "batch_tokens", "chunk_tokens")


def ran(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """Run `python -m rbptrack WORDS` in a folder; returns what it prints."""
    command = [sys.executable, "-m", "rbptrack", *words]
    environment = os.environ | dict(env or {})
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def build(folder: Path, *models: str) -> Store:
    """A store in a new folder, with these models measured on 20 documents."""
    folder.mkdir(parents=True)
    ran(folder, f"model={','.join(models)}", *SMALL, "analyzers=[]")
    return Store(f"sqlite:///{folder}/mlflow.db")


def measured(store: Store) -> dict[str, tuple[dict[str, float], str]]:
    """The numbers of each measurement except times and memory, and the hash of its ranks."""
    found: dict[str, tuple[dict[str, float], str]] = {}
    for run in store.finished():
        numbers = {name: value for name, value in run.data.metrics.items() if name not in _OF_THE_MACHINE}
        record = json.loads(store.artifact(run.info.run_id, "record.json").read_text())
        assert run.info.run_name not in found
        found[run.info.run_name] = numbers, record["files"]["ranks.parquet"]
    return found
