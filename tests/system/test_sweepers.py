"""Hydra's own sweepers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import rbptrack
from tests.conftest import Program


def test_optuna_finds_the_lowest_cross_entropy(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's sweepers and launchers run as they are, in their own process; a job's value is its CE."""
    words = ["model=nano/6k", "dataset=pydocs", "dataset.documents=2", "dataset.context=choice(1,200)"]
    done = program(*words, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nano-6k / pydocs") == 2, "a line for each cell"
    (results,) = (tmp_path / "mlruns/hydra").rglob("optimization_results.yaml")
    monkeypatch.chdir(tmp_path)
    lowest = rbptrack.runs()["ce"].min()
    assert yaml.safe_load(results.read_text())["best_value"] == lowest
    assert f"{lowest:.3f} with dataset.context=" in done.stdout
