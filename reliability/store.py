"""Small real stores, and the program as others start it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rbptrack.tracking import Store

SMALL = ("dataset=pydocs", "dataset.documents=20", "analyzers=[]", "engine.threads=1", "sweep=first")


def started(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `python -m rbptrack WORDS` in a folder, in a process group of its own."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"} | dict(env or {})
    return subprocess.Popen(
        [sys.executable, "-m", "rbptrack", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ran(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code and output of the program."""
    process = started(folder, *words, env=env)
    said, _ = process.communicate(timeout=600)
    return process.returncode, said


def build(folder: Path, *models: str) -> Store:
    """A store in a new folder, with these models measured on 20 documents."""
    folder.mkdir(parents=True)
    code, said = ran(folder, f"model={','.join(models)}", *SMALL)
    assert code == 0, said
    return Store(f"sqlite:///{folder}/mlflow.db")


def numbers(store: Store) -> dict[str, dict[str, float]]:
    """Every measured number of a store but times and memory, by measurement."""
    machine = ("seconds", "tokens_per_second", "peak_memory_bytes", "batch_tokens", "chunk_tokens")
    found: dict[str, dict[str, float]] = {}
    for run in store.finished():
        metrics = {name: value for name, value in run.data.metrics.items() if name not in machine}
        assert run.info.run_name not in found
        found[run.info.run_name] = metrics
    return found
