"""Which cells become one job, and the script of SLURM."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Launch, LaunchConfig
from rbptrack.sweep.launch import (
    Jobs,
    _all_gpus,
    _refuse_while_an_array_runs,
    group_into_jobs,
    job_command,
    run_jobs,
    run_on_gpus,
    write_slurm_script,
)


def words(model: str, dataset: str, *others: str) -> list[str]:
    return [f"model={model}", f"dataset={dataset}", *others]


def test_a_job_has_all_datasets_of_a_small_model_and_one_of_a_large_one() -> None:
    cells = [
        (words("p/70m", "wiki", "k=1,10"), 70_000_000),
        (words("p/70m", "code", "k=1,10"), 70_000_000),
        (words("p/12b", "wiki", "k=1,10"), 12_000_000_000),
        (words("p/12b", "code", "k=1,10"), 12_000_000_000),
        (words("p/1b", "wiki", "dataset.seq_len=64"), 900_000_000),
        (words("p/1b", "wiki", "dataset.seq_len=128"), 900_000_000),
    ]
    assert group_into_jobs(cells) == [
        ["model=p/12b", "k=1,10", "dataset=wiki"],
        ["model=p/12b", "k=1,10", "dataset=code"],
        ["model=p/1b", "dataset.seq_len=64", "dataset=wiki"],
        ["model=p/1b", "dataset.seq_len=128", "dataset=wiki"],
        ["model=p/70m", "k=1,10", "dataset=wiki,code"],
    ]


def test_the_script_is_one_array_with_sbatchs_own_options(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    commands = [job_command(["model=a", "dataset.where.lang='x y'"]), job_command(["model=b"])]
    script = write_slurm_script(Jobs(commands, folder, ()), {"partition": "gpu", "gres": "gpu:1"})
    assert "#SBATCH --array=0-1" in script
    assert "#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1" in script
    assert subprocess.run(["bash", "-n", str(folder / "job.sh")], check=False).returncode == 0
    lines = (folder / "jobs.txt").read_text().splitlines()
    assert [shlex.split(line) for line in lines] == commands


def test_what_an_array_is_at_work_on_is_not_submitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (("sbatch", "echo 17; sleep 0.1"), ("squeue", f"cat {tmp_path}/queue")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = tmp_path / "launch/first"
    folder.mkdir(parents=True)
    run_jobs(Jobs([], folder, ("a", "b")), LaunchConfig(Launch.slurm), lambda: None)
    (tmp_path / "queue").write_text("17_[0-1] gpu rbptrack PENDING")
    for place, cells in (("first", ["c"]), ("second", ["b", "c"])):
        with pytest.raises(BadInput, match="scancel 17"):
            _refuse_while_an_array_runs(tmp_path / "launch" / place, cells)
    _refuse_while_an_array_runs(tmp_path / "launch/second", ["c"])
    (tmp_path / "queue").write_text("")
    _refuse_while_an_array_runs(folder, ["a", "b"])


def python(code: str) -> list[str]:
    """The command that runs this code, which is given the GPU that it sees as `gpu`."""
    return [sys.executable, "-c", f"import os, time; gpu = os.environ['CUDA_VISIBLE_DEVICES']\n{code}"]


def test_jobs_run_side_by_side_each_on_a_gpu_of_its_own(tmp_path: Path) -> None:
    """Each of the first two waits until the other has begun."""
    meet = f"""
print(gpu, flush=True)
open({str(tmp_path)!r} + f"/{{gpu}}.begun", "w").close()
while not all(os.path.exists({str(tmp_path)!r} + f"/{{one}}.begun") for one in (3, 7)):
    time.sleep(0.01)
"""
    jobs = Jobs([python(meet), python(meet), python("print(gpu)")], tmp_path, ())
    run_on_gpus(jobs, ["3", "7"], lambda: None)
    seen = [(tmp_path / f"{number}.log").read_text().strip() for number in range(3)]
    assert seen[:2] == ["3", "7"]
    assert seen[2] in ("3", "7")


def test_all_gpus_are_those_that_cuda_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = ["GPU-89f", "MIG-GPU-89f/1/0"]
    for visible, seen in {"0,": ["0"], "2, 3,-1,4": ["2", "3"], ",".join(gpus): gpus}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert _all_gpus() == seen
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    with pytest.raises(BadInput):
        _all_gpus()


def test_an_interrupt_ends_the_jobs(tmp_path: Path) -> None:
    log = tmp_path / "0.log"

    def interrupt() -> None:
        if log.read_text():
            raise KeyboardInterrupt

    jobs = Jobs([python("print(os.getpid(), flush=True); time.sleep(600)")], tmp_path, ())
    with pytest.raises(KeyboardInterrupt):
        run_on_gpus(jobs, ["0"], interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)
