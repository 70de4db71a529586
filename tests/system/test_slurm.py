"""Tests of launch=slurm on a cluster of two nodes, which runs on this machine. Needs root, slurm-wlm and munge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.tracking import Store
from tests.system.slurm_cluster import PATIENCE, needs_slurm, output_of, wait_until

pytestmark = needs_slurm


def command_by_slurm(*words: str) -> list[str]:
    """Return the command that measures the cells of these words by SLURM, with one GPU for each task."""
    options = ["launch=slurm", "launch.options.gres=gpu:1", "launch.options.time=10", "analyzers=[]"]
    return [sys.executable, "-m", "rbptrack", "measure", *words, *options]


# Makes a process save every block at once. After each block, the process waits until the file `continue_file` exists.
SITECUSTOMIZE = """
import pathlib, sys, time
import rbptrack.engine
measuring = sys.modules["rbptrack.engine.collector"]
measuring.BLOCK_SECONDS = 0.0
save = measuring.Blocks.write

def save_and_wait(*arguments, **options):
    save(*arguments, **options)
    while not pathlib.Path({continue_file!r}).exists():
        time.sleep(0.05)

measuring.Blocks.write = save_and_wait
"""


def write_sitecustomize(folder: Path, continue_file: Path) -> None:
    """Create a folder for PYTHONPATH. Python processes with it run `SITECUSTOMIZE` when they start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE.format(continue_file=str(continue_file)))


def test_launch_slurm_runs_one_task_for_each_model_and_delivers_all_cells(
    cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command_by_slurm("model=nano/6k,nano/15k", "dataset=pydocs,stdlib", "dataset.documents=3", "sweep=mine")
    process = subprocess.run(
        words, cwd=tmp_path, env=cluster, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert len(list((tmp_path / "mlruns/launch/mine").glob("*.json"))) == 2
    monkeypatch.chdir(tmp_path)
    frame = Store().runs().frame
    assert len(frame) == 4
    assert set(frame["sweep"]) == {"mine"}
    assert not list((tmp_path / "mlruns/cells").glob("*/"))


def test_launch_show_prints_script_and_starts_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    words = [*command_by_slurm("model=nano/6k", "dataset=pydocs"), "launch.show=true"]
    process = subprocess.run(
        words, cwd=tmp_path, env=cluster, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == 0, process.stderr
    assert "#SBATCH --gres=gpu:1" in process.stdout
    assert not output_of(cluster, "squeue", "--noheader")


def test_requeued_task_finishes_and_next_command_measures_cell_of_cancelled_task(
    cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command runs without SLURM. It continues from the blocks that the cancelled task saved."""
    words = ["model=nano/15k,nano/38k", "dataset=stdlib", "dataset.documents=100", "sweep=mine"]
    continue_file = tmp_path / "continue"  # both tasks wait for it after their first block, until they are interrupted
    write_sitecustomize(tmp_path / "start", continue_file)
    environment = cluster | {"PYTHONPATH": str(tmp_path / "start")}
    with (tmp_path / "out.log").open("wb") as log:
        sweep = subprocess.Popen(command_by_slurm(*words), cwd=tmp_path, env=environment, stdout=log, stderr=log)
    cells = tmp_path / "mlruns/cells"
    wait_until(lambda: len({path.parent for path in cells.glob("*/blocks/*.parquet")}) == 2)
    array = output_of(cluster, "squeue", "--noheader", "--format=%F").split()[0]
    output_of(cluster, "scontrol", "requeue", f"{array}_1")
    output_of(cluster, "scancel", f"{array}_0")

    def states() -> list[str]:
        return output_of(cluster, "squeue", "--noheader", "--format=%K %T", "--array").splitlines()

    wait_until(lambda: states() == ["1 PENDING"])
    continue_file.touch()
    # Otherwise, SLURM delays a requeued task by two minutes.
    output_of(cluster, "scontrol", "update", f"JobId={array}_1", "StartTime=now")
    assert sweep.wait(PATIENCE) == 1, (tmp_path / "out.log").read_text()
    monkeypatch.chdir(tmp_path)
    runs = Store().runs()
    assert runs.frame["model"].tolist() == ["nano-15k"]
    (blocks,) = cells.glob("*/blocks")
    assert list(blocks.glob("*.parquet")), "the cancelled task saved its first block"
    program = [sys.executable, "-m", "rbptrack", "measure", *words, "analyzers=[]"]
    process = subprocess.run(program, cwd=tmp_path, env=cluster, capture_output=True, timeout=PATIENCE, check=False)
    assert process.returncode == 0, process.stderr
    frame = Store().runs().frame
    assert frame["model"].tolist() == ["nano-15k", "nano-38k"]
    assert frame["num_tokens"].nunique() == 1
