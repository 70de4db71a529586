"""Which cells become one job, how jobs run side by side, and the script of SLURM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rbptrack import sweep
from rbptrack.base.errors import BadInput
from rbptrack.sweep.backends import (
    Slurm,
    _all_gpus,
    _refuse_while_an_array_runs,
    group_into_jobs,
    run_job,
    run_side_by_side,
    submit_and_wait,
)
from rbptrack.sweep.cells import Cell, read_job, write_job
from rbptrack.tracking import Outbox, Store
from tests.sweep.conftest import Configs


def names(jobs: list[list[Cell]]) -> list[list[str]]:
    return [[f"{cell.config.model.size} {cell.config.dataset.name}" for cell in job] for job in jobs]


def test_a_job_has_all_datasets_of_a_small_model_and_one_of_a_large_one(configs: Configs) -> None:
    cells = [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k,nano/38k", "dataset=pydocs,stdlib")]
    params = {"6k": 70_000_000, "15k": 900_000_000, "38k": 12_000_000_000}
    sized = [(cell, params[cell.config.model.size]) for cell in cells]
    assert names(group_into_jobs(sized)) == [
        ["38k pydocs"],
        ["38k stdlib"],
        ["15k pydocs", "15k stdlib"],
        ["6k pydocs", "6k stdlib"],
    ]
    together = names(group_into_jobs(sized, at_a_time=1))
    assert together[:2] == [["38k pydocs"], ["38k stdlib"]]
    assert sorted(together[2]) == ["15k pydocs", "15k stdlib", "6k pydocs", "6k stdlib"]


def test_small_models_share_as_many_jobs_as_run_side_by_side(configs: Configs) -> None:
    sizes = {"6k": 6, "15k": 15, "38k": 38, "115k": 115}
    cells = [sweep.resolve(config) for config in configs(f"model={','.join(f'nano/{size}' for size in sizes)}")]
    jobs = group_into_jobs([(cell, sizes[cell.config.model.size]) for cell in cells], at_a_time=2)
    assert names(jobs) == [["115k pydocs"], ["38k pydocs", "15k pydocs", "6k pydocs"]]


def test_the_script_is_one_array_with_sbatchs_own_options(
    store: Store, configs: Configs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder"
    cells = dict(enumerate(map(sweep.resolve, configs("model=nano/6k,nano/15k"))))
    Slurm(store, folder, {"partition": "gpu", "gres": "gpu:1"}, show=True).run(cells, lambda *_: None)
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-1" in script
    assert "#SBATCH --partition=gpu\n#SBATCH --gres=gpu:1" in script
    assert subprocess.run(["bash", "-n", str(folder / "job.sh")], check=False).returncode == 0
    jobs = [read_job(folder / f"{number}.json") for number in range(2)]
    assert jobs == [[cells[1]], [cells[0]]]


def test_a_job_measures_its_cells_and_leaves_their_folders(store: Store, configs: Configs, tmp_path: Path) -> None:
    cells = [sweep.resolve(config) for config in configs("dataset=pydocs,stdlib")]
    write_job(tmp_path / "0.json", cells)
    assert run_job(tmp_path / "0.json") == 0
    assert all((cell.folder / "record.json").exists() for cell in cells)
    assert not list(store.measurements.search(""))
    assert len(Outbox(store).deliver_waiting()) == 2


def test_what_an_array_is_at_work_on_is_not_submitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, line in (("sbatch", "echo 17; sleep 0.1"), ("squeue", f"cat {tmp_path}/queue")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    folder = tmp_path / "launch/first"
    folder.mkdir(parents=True)
    submit_and_wait(folder / "job.sh", ["a", "b"], lambda: None)
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
    commands = [python(meet), python(meet), python("print(gpu)")]
    run_side_by_side(commands, ["3", "7"], tmp_path, lambda: None)
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

    commands = [python("print(os.getpid(), flush=True); time.sleep(600)")]
    with pytest.raises(KeyboardInterrupt):
        run_side_by_side(commands, ["0"], tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)
