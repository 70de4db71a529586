"""Tests of jobs that run side by side on the GPUs of one machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rbptrack import sweep
from rbptrack.base.errors import BadInput
from rbptrack.sweep.gpus import Gpus, run_on_gpus
from rbptrack.tracking import Store
from tests.sweep.conftest import Configs


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
