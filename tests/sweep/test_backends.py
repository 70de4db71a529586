"""Tests of backends: how cells are grouped into jobs, how jobs run side by side, and the script for SLURM."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rbptrack import sweep
from rbptrack.base.errors import BadInput
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.gpus import Gpus, run_on_gpus
from rbptrack.sweep.grouping import group_into_jobs
from rbptrack.sweep.jobs import read_job, run_job, write_job
from rbptrack.sweep.slurm import Slurm, submit_and_wait
from rbptrack.tracking import Outbox, Store
from tests.sweep.conftest import Configs


def sizes_and_datasets(jobs: list[list[Cell]]) -> list[list[str]]:
    """Name the cells of each job, such as `6k pydocs`."""
    return [[f"{cell.config.model.size} {cell.config.dataset.name}" for cell in job] for job in jobs]


@pytest.fixture
def cells_and_seconds(configs: Configs) -> list[tuple[Cell, float]]:
    """Pairs of a cell and its expected seconds: three models on two datasets. The numbers are invented."""
    seconds = {"6k": 10.0, "15k": 100.0, "38k": 1000.0}
    cells = [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k,nano/38k", "dataset=pydocs,stdlib")]
    return [(cell, seconds[cell.config.model.size]) for cell in cells]


def test_group_into_jobs_makes_a_job_per_fast_model_and_per_dataset_of_a_slow_one(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    assert sizes_and_datasets(group_into_jobs(cells_and_seconds)) == [
        ["38k pydocs"],
        ["38k stdlib"],
        ["15k pydocs", "15k stdlib"],
        ["6k pydocs", "6k stdlib"],
    ]


def test_group_into_jobs_puts_all_fast_models_into_one_job_if_one_runs_at_a_time(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    *jobs_of_slow_model, fast_job = sizes_and_datasets(group_into_jobs(cells_and_seconds, num_parallel=1))
    assert jobs_of_slow_model == [["38k pydocs"], ["38k stdlib"]]
    assert sorted(fast_job) == ["15k pydocs", "15k stdlib", "6k pydocs", "6k stdlib"]


def test_group_into_jobs_uses_all_gpus_for_one_fast_model_on_several_datasets(configs: Configs) -> None:
    cells = [sweep.resolve(config) for config in configs("model=nano/6k", "dataset.seq_len=64,65,66,67")]
    jobs = group_into_jobs([(cell, 100.0) for cell in cells], num_parallel=4)
    assert [len(job) for job in jobs] == [1, 1, 1, 1]


def test_group_into_jobs_starts_one_process_for_seconds_of_work(cells_and_seconds: list[tuple[Cell, float]]) -> None:
    assert len(group_into_jobs([(cell, 0.5) for cell, _ in cells_and_seconds], num_parallel=1)) == 1


def test_group_into_jobs_gives_a_cell_of_unknown_time_a_job_of_its_own(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    assert len(group_into_jobs([(cell, math.nan) for cell, _ in cells_and_seconds])) == 6


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), num_parallel=st.integers(0, 7), max_jobs=st.integers(1, 7))
def test_group_into_jobs_keeps_each_cell_once_in_at_most_so_many_jobs(
    cells_and_seconds: list[tuple[Cell, float]], data: st.DataObject, num_parallel: int, max_jobs: int
) -> None:
    times = st.floats(0, 1e6) | st.sampled_from([0.0, math.nan])
    timed = [(cell, data.draw(times)) for cell, _ in cells_and_seconds]
    jobs = group_into_jobs(timed, num_parallel=num_parallel, max_jobs=max_jobs)
    assert len(jobs) <= max_jobs
    assert all(jobs)
    assert sorted(cell.fingerprint for job in jobs for cell in job) == sorted(cell.fingerprint for cell, _ in timed)


def test_slurm_writes_at_most_as_many_jobs_as_an_array_can_have(
    store: Store, configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_command(tmp_path / "scontrol", "echo 'MaxArraySize            = 2'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cells = [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k,nano/38k")]
    Slurm(store, tmp_path / "jobs", show=True).run(dict(enumerate(cells)), lambda *_: None)
    assert sorted(len(read_job(path)) for path in (tmp_path / "jobs").glob("*.json")) == [1, 2]
    assert "--array=0-1\n" in (tmp_path / "jobs" / "job.sh").read_text()


def test_files_of_jobs_can_be_read_by_their_owner_only(store: Store, configs: Configs, tmp_path: Path) -> None:
    cells = [sweep.resolve(config) for config in configs("model=nano/6k")]
    Slurm(store, tmp_path / "jobs", show=True).run(dict(enumerate(cells)), lambda *_: None)
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "jobs").iterdir()} == {
        "0.json": 0o600,
        "job.sh": 0o600,
    }
    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700


def test_options_of_sbatch_are_quoted_and_may_have_no_value(store: Store, configs: Configs, tmp_path: Path) -> None:
    options = {"exclusive": "", "overcommit": "true", "comment": "it's a 'test' # 1", "mem": "4G"}
    cells = [sweep.resolve(config) for config in configs("model=nano/6k")]
    Slurm(store, tmp_path / "jobs", options, show=True).run(dict(enumerate(cells)), lambda *_: None)
    lines = (tmp_path / "jobs" / "job.sh").read_text().splitlines()
    read = [shlex.split(line.removeprefix("#SBATCH ")) for line in lines if line.startswith("#SBATCH")]
    assert read[-4:] == [["--exclusive"], ["--overcommit"], ["--comment=it's a 'test' # 1"], ["--mem=4G"]]


def test_slurm_with_show_prints_a_script_of_one_array_with_sbatch_options(
    store: Store, configs: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder"
    cells = [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k")]
    backend = Slurm(store, folder, {"partition": "gpu", "gres": "gpu:1"}, show=True)
    backend.run(dict(enumerate(cells)), lambda *_: None)
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-1" in script
    assert "#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1" in script
    assert subprocess.run(["bash", "-n", str(folder / "job.sh")], check=False).returncode == 0


def test_slurm_writes_a_job_file_for_each_model_with_the_largest_first(
    store: Store, configs: Configs, tmp_path: Path
) -> None:
    smaller, larger = (sweep.resolve(config) for config in configs("model=nano/6k,nano/15k"))
    Slurm(store, tmp_path / "jobs", show=True).run({0: smaller, 1: larger}, lambda *_: None)
    assert read_job(tmp_path / "jobs" / "0.json") == [larger]
    assert read_job(tmp_path / "jobs" / "1.json") == [smaller]


def test_run_job_measures_its_cells_and_leaves_their_folders(store: Store, configs: Configs, tmp_path: Path) -> None:
    cells = [sweep.resolve(config) for config in configs("dataset=pydocs,stdlib")]
    write_job(tmp_path / "0.json", cells)
    assert run_job(tmp_path / "0.json") == 0
    assert all((cell.folder / "record.json").exists() for cell in cells)
    assert not list(store.measurements.search(""))
    assert len(Outbox(store).deliver_waiting()) == 2


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


def write_slurm_script(store: Store, folder: Path, cells: list[Cell]) -> None:
    """Let the backend write its script without submitting it."""
    Slurm(store, folder, show=True).run(dict(enumerate(cells)), lambda *_: None)


@pytest.mark.parametrize(("folder", "number"), [("first", 2), ("second", 1)])
def test_slurm_refuses_a_folder_or_a_cell_of_an_array_that_still_runs(
    folder: str, number: int, store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("17_[0-1] gpu rbptrack PENDING")
    with pytest.raises(BadInput, match="scancel 17"):
        write_slurm_script(store, tmp_path / "launch" / folder, three_cells[number:])


def test_slurm_accepts_other_cells_in_another_folder_while_an_array_runs(
    store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("17_[0-1] gpu rbptrack PENDING")
    write_slurm_script(store, tmp_path / "launch" / "second", three_cells[2:])
    assert (tmp_path / "launch" / "second" / "job.sh").exists()


def test_slurm_accepts_the_same_cells_after_the_array_has_ended(
    store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    queue.write_text("")
    write_slurm_script(store, tmp_path / "launch" / "first", three_cells[:2])
    assert (tmp_path / "launch" / "first" / "job.sh").exists()


@pytest.mark.parametrize(("reason", "accepts"), [("Invalid job id specified", True), ("Unable to contact", False)])
def test_slurm_takes_an_array_as_ended_only_if_squeue_says_so(
    reason: str, accepts: bool, store: Store, three_cells: list[Cell], queue: Path, tmp_path: Path
) -> None:
    write_command(tmp_path / "squeue", f"echo slurm_load_jobs error: {reason} >&2; exit 1")
    with nullcontext() if accepts else pytest.raises(BadInput):
        write_slurm_script(store, tmp_path / "launch" / "first", three_cells[:2])
    assert (tmp_path / "launch" / "first" / "job.sh").exists() == accepts


def python_command(code: str) -> list[str]:
    """Return a command that runs Python code. The variable `gpu` holds the GPU that the process may use."""
    return [sys.executable, "-c", f"import os, time; gpu = os.environ['CUDA_VISIBLE_DEVICES']\n{code}"]


def test_run_on_gpus_runs_one_job_at_a_time_on_each_gpu(tmp_path: Path) -> None:
    """Each of the first two jobs waits until the other has begun, so both must run at the same time."""
    wait_for_the_other = f"""
print(gpu, flush=True)
open({str(tmp_path)!r} + f"/{{gpu}}.begun", "w").close()
deadline = time.monotonic() + 300
while not all(os.path.exists({str(tmp_path)!r} + f"/{{number}}.begun") for number in (3, 7)):
    assert time.monotonic() < deadline, "the other job did not begin"
    time.sleep(0.01)
"""
    commands = [
        python_command(wait_for_the_other),
        python_command(wait_for_the_other),
        python_command("print(gpu)"),
    ]
    run_on_gpus(commands, ["3", "7"], tmp_path, lambda: None)
    gpus = [(tmp_path / f"{number}.log").read_text().strip() for number in range(3)]
    assert gpus[:2] == ["3", "7"]
    assert gpus[2] in ("3", "7")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0,", ["0"]),
        ("2, 3,-1,4", ["2", "3"]),  # CUDA ignores all names after an invalid one
        ("GPU-89f,MIG-GPU-89f/1/0", ["GPU-89f", "MIG-GPU-89f/1/0"]),
    ],
)
def test_gpus_are_those_that_cuda_would_use(
    visible: str, expected: list[str], store: Store, configs: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("rbptrack.sweep.gpus.run_on_gpus", lambda commands, gpus, *_: used.extend(gpus))
    Gpus(store, tmp_path / "jobs").run({0: sweep.resolve(*configs())}, lambda *_: None)
    assert used == expected


def test_gpus_refuses_a_machine_without_a_gpu(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    with pytest.raises(BadInput):
        Gpus(store, tmp_path / "jobs").run({}, lambda *_: None)


def test_run_on_gpus_ends_its_jobs_at_an_interrupt(tmp_path: Path) -> None:
    log = tmp_path / "0.log"

    def interrupt_after_the_first_line() -> None:
        if log.read_text():
            raise KeyboardInterrupt

    commands = [python_command("print(os.getpid(), flush=True); time.sleep(600)")]
    with pytest.raises(KeyboardInterrupt):
        run_on_gpus(commands, ["0"], tmp_path, interrupt_after_the_first_line)
    process_id = int(log.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)  # signal 0 only asks whether the process exists
