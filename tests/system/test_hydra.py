"""Tests of Hydra's sweepers and of Hydra's own flags."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import rbptrack
from tests.conftest import RunProgram


def test_optuna_minimises_cross_entropy(
    run_program: RunProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Optuna tries two values of `dataset.context`. Its best value is the lowest CE of the store."""
    words = ["model=nano/6k", "dataset=pydocs", "dataset.documents=2", "dataset.context=choice(1,200)"]
    process = run_program(*words, "hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweeper.n_jobs=1")
    assert process.returncode == 0, process.stderr
    assert process.stdout.count("nano-6k / pydocs") == 2, "one line is printed for each cell"
    (results,) = (tmp_path / "mlruns/hydra").rglob("optimization_results.yaml")
    monkeypatch.chdir(tmp_path)
    lowest = rbptrack.runs()["ce"].min()
    assert yaml.safe_load(results.read_text())["best_value"] == lowest


def test_joblib_gives_labels_of_the_command_line_to_existing_measurements(
    run_program: RunProgram, tmp_path: Path
) -> None:
    words = ["-m", "hydra/launcher=joblib", "model=nano/6k,nano/15k", "dataset=pydocs", "dataset.documents=2"]
    assert run_program(*words).returncode == 0
    assert run_program(*words, "model.family=mine").returncode == 0
    frame = rbptrack.runs(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db").frame
    assert set(frame["name"]) == {"mine-6k/pydocs", "mine-15k/pydocs"}


def test_killed_process_of_joblib_is_reported_in_one_line(run_program: RunProgram, tmp_path: Path) -> None:
    """One of two cells kills its process. The other cell may be measured or not."""
    (tmp_path / "model").mkdir()
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif any('popen_loky' in word for word in sys.orig_argv):\n    os.kill(os.getpid(), 9)\n"
    )
    words = ["-m", "hydra/launcher=joblib", "model=nano/6k,nano/15k", "dataset=pydocs", "dataset.documents=2"]
    process = run_program(*words, env={"PYTHONPATH": str(tmp_path)})
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1, process.stderr


def test_flag_cfg_prints_configuration_of_first_cell_and_measures_nothing(
    run_program: RunProgram, tmp_path: Path
) -> None:
    process = run_program("--cfg", "job", "model=nano/*,!nano/2m", "dataset=stdlib", "k=1,7")
    assert process.returncode == 0, process.stderr
    config = yaml.safe_load(process.stdout)
    assert config["model"]["size"] == "6k"
    assert config["k"]["values"] == [1, 7]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--cfg=jib", "hydra.run.dir=/proc/x"])
def test_wrong_hydra_option_is_refused_in_one_line(option: str, run_program: RunProgram, tmp_path: Path) -> None:
    process = run_program("model=nano/6k", option)
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
