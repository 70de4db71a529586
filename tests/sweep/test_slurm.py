"""Tests of the script and the job files for SLURM, with shell scripts in place of its commands."""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from rbptrack import sweep
from rbptrack.base.errors import BadInput
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.jobs import read_job
from rbptrack.sweep.slurm import Slurm, submit_and_wait
from rbptrack.tracking import Store
from tests.sweep.conftest import Configs


def write_command(path: Path, line: str) -> None:
    """Write an executable shell script of one line."""
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


@pytest.fixture
def three_cells(configs: Configs) -> list[Cell]:
    return [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k,nano/38k")]


@pytest.fixture
def queue(three_cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that holds the output of squeue. An array of the first two cells is submitted from `launch/first`.

    The commands sbatch and squeue are shell scripts. The array has the number 17.
    """
    queue = tmp_path / "queue"
    write_command(tmp_path / "sbatch", "echo 17; sleep 0.1")
    write_command(tmp_path / "squeue", f"cat {queue}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "launch" / "first").mkdir(parents=True)
    fingerprints = [cell.fingerprint for cell in three_cells[:2]]
    submit_and_wait(tmp_path / "launch" / "first" / "job.sh", fingerprints, lambda: None)
    return queue


def write_script(store: Store, folder: Path, cells: list[Cell], **options: str) -> Path:
    """Let the backend write its script without submitting it. Returns the path of the script."""
    Slurm(store, folder, options, show=True).run(dict(enumerate(cells)), lambda *_: None)
    return folder / "job.sh"


def test_slurm_writes_at_most_as_many_jobs_as_an_array_can_have(
    store: Store, three_cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_command(tmp_path / "scontrol", "echo 'MaxArraySize            = 2'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = write_script(store, tmp_path / "jobs", three_cells)
    assert sorted(len(read_job(path)) for path in (tmp_path / "jobs").glob("*.json")) == [1, 2]
    assert "--array=0-1\n" in script.read_text()


def test_files_of_jobs_can_be_read_by_their_owner_only(store: Store, three_cells: list[Cell], tmp_path: Path) -> None:
    write_script(store, tmp_path / "jobs", three_cells[:1])
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "jobs").iterdir()} == {
        "0.json": 0o600,
        "job.sh": 0o600,
    }
    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700


def test_options_of_sbatch_are_quoted_and_may_have_no_value(
    store: Store, three_cells: list[Cell], tmp_path: Path
) -> None:
    options = {"exclusive": "", "overcommit": "true", "comment": "it's a 'test' # 1", "mem": "4G"}
    lines = write_script(store, tmp_path / "jobs", three_cells[:1], **options).read_text().splitlines()
    read = [shlex.split(line.removeprefix("#SBATCH ")) for line in lines if line.startswith("#SBATCH")]
    assert read[-4:] == [["--exclusive"], ["--overcommit"], ["--comment=it's a 'test' # 1"], ["--mem=4G"]]


def test_slurm_with_show_prints_a_script_of_one_array_with_sbatch_options(
    store: Store, three_cells: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = write_script(store, tmp_path / "a folder", three_cells[:2], partition="gpu", gres="gpu:1")
    printed = capsys.readouterr().out
    assert "#SBATCH --array=0-1" in printed
    assert "#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1" in printed
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_slurm_writes_a_job_file_for_each_model_with_the_largest_first(
    store: Store, three_cells: list[Cell], tmp_path: Path
) -> None:
    write_script(store, tmp_path / "jobs", three_cells[:2])
    assert read_job(tmp_path / "jobs" / "0.json") == [three_cells[1]]
    assert read_job(tmp_path / "jobs" / "1.json") == [three_cells[0]]


@pytest.mark.parametrize(("folder", "number"), [("first", 2), ("second", 1)])
def test_slurm_refuses_a_folder_or_a_cell_of_an_array_that_still_runs(
    folder: str, number: int, store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("17_[0-1] gpu rbptrack PENDING")
    with pytest.raises(BadInput, match="scancel 17"):
        write_script(store, tmp_path / "launch" / folder, three_cells[number:])


def test_slurm_accepts_other_cells_in_another_folder_while_an_array_runs(
    store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("17_[0-1] gpu rbptrack PENDING")
    write_script(store, tmp_path / "launch" / "second", three_cells[2:])
    assert (tmp_path / "launch" / "second" / "job.sh").exists()


def test_slurm_accepts_the_same_cells_after_the_array_has_ended(
    store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("")
    write_script(store, tmp_path / "launch" / "first", three_cells[:2])
    assert (tmp_path / "launch" / "first" / "job.sh").exists()


@pytest.mark.parametrize(("reason", "accepts"), [("Invalid job id specified", True), ("Unable to contact", False)])
def test_slurm_takes_an_array_as_ended_only_if_squeue_says_so(
    reason: str, accepts: bool, store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    write_command(tmp_path / "squeue", f"echo slurm_load_jobs error: {reason} >&2; exit 1")
    with nullcontext() if accepts else pytest.raises(BadInput):
        write_script(store, tmp_path / "launch" / "first", three_cells[:2])
    assert (tmp_path / "launch" / "first" / "job.sh").exists() == accepts
