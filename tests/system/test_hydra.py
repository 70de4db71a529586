"""What Hydra does itself: its sweepers and its flags."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import rbptrack
from tests.conftest import RunProgram


def test_optuna_finds_the_lowest_cross_entropy(
    run_program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra's sweepers and launchers run as they are, in their own process; a job's value is its CE."""
    words = ["model=nano/6k", "dataset=pydocs", "dataset.documents=2", "dataset.context=choice(1,200)"]
    done = run_program(*words, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("nano-6k / pydocs") == 2, "a line for each cell"
    (results,) = (tmp_path / "mlruns/hydra").rglob("optimization_results.yaml")
    monkeypatch.chdir(tmp_path)
    lowest = rbptrack.runs()["ce"].min()
    assert yaml.safe_load(results.read_text())["best_value"] == lowest
    assert f"{lowest:.3f} with dataset.context=" in done.stdout


def test_hydras_flags_show_and_measure_nothing(run_program: RunProgram, tmp_path: Path) -> None:
    done = run_program("--cfg", "job", "model=nano/*,!nano/2m", "dataset=stdlib", "k=1,7")
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert shown["model"]["size"] == "6k"  # the first cell
    assert shown["k"]["values"] == [1, 7]
    assert run_program("--info", "defaults").returncode == 0
    for wrong in ("--cfg=jib", "hydra.run.dir=/proc/x"):
        done = run_program("model=nano/6k", wrong)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
