"""Measure the cells of a sweep on the GPUs of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from rbptrack.base.errors import BadInput
from rbptrack.base.formatting import counted, short_path
from rbptrack.console.output import print_text
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.cost import Planner
from rbptrack.sweep.jobs import Collector, ReportOutcome, wait_for_an_end, write_jobs
from rbptrack.sweep.speed import GPU_SPEED
from rbptrack.tracking import Store

_GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.+")  # as in CUDA_VISIBLE_DEVICES


@dataclass(frozen=True)
class Gpus:
    """Runs one job on each GPU of this machine. When a job ends, the next one begins on its GPU.

    Attributes:
        store: the tracking store.
        folder: the folder for job files and for the output of the jobs.
        names: the GPUs to use, named as in CUDA_VISIBLE_DEVICES; empty means all GPUs.

    """

    store: Store
    folder: Path
    names: Sequence[str] = ()

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Run jobs until all have ended. If this process is interrupted, it ends the jobs."""
        gpus = self.names or _all_gpus()
        planner = Planner(GPU_SPEED)
        jobs, readable_cells = write_jobs(cells, report_outcome, self.folder, planner, num_parallel=len(gpus))
        if not jobs:
            return
        collector = Collector(readable_cells, self.store, self.folder, report_outcome)
        commands = [[sys.executable, "-m", "rbptrack", "job", str(job)] for job in jobs]
        jobs_on_gpus = f"{counted(len(jobs), 'job')} on {counted(len(gpus), 'GPU')}"
        print_text(f"{jobs_on_gpus}; their output: {short_path(self.folder)}")
        run_on_gpus(commands, gpus, self.folder, collector.collect)
        collector.finish()


def run_on_gpus(commands: Sequence[list[str]], gpus: Sequence[str], folder: Path, collect: Callable[[], None]) -> None:
    """Run each command on the next free GPU, until all have ended. If this process is interrupted, it ends them.

    Args:
        commands: the commands, in the order in which they begin.
        gpus: names of GPUs for CUDA_VISIBLE_DEVICES.
        folder: the folder for the output of the commands: 0.log, 1.log, ...
        collect: called about once a second while commands run.

    """
    waiting_commands = deque(enumerate(commands))
    free_gpus = list(gpus)
    gpu_by_process: dict[subprocess.Popen[bytes], str] = {}
    try:
        while waiting_commands or gpu_by_process:
            while waiting_commands and free_gpus:
                number, command = waiting_commands.popleft()
                gpu = free_gpus.pop(0)
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
                with (folder / f"{number}.log").open("ab") as output:
                    process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
                gpu_by_process[process] = gpu
            wait_for_an_end(gpu_by_process)
            ended_processes = [process for process in gpu_by_process if process.poll() is not None]
            for process in ended_processes:
                free_gpus.append(gpu_by_process.pop(process))
            collect()
    except BaseException:  # Ctrl-C, or SIGTERM as an exception
        for process in gpu_by_process:
            process.terminate()
        for process in gpu_by_process:
            process.wait()
        raise


def _all_gpus() -> list[str]:
    """Return numbers, UUIDs or MIG names of the GPUs that this process may use. Raises BadInput if there are none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        import torch

        gpus = [str(number) for number in range(torch.cuda.device_count())]
    else:  # CUDA stops at the first invalid name, such as -1 or SLURM's NoDevFiles
        gpus = list(takewhile(_GPU_NAME.fullmatch, (name.strip() for name in visible.split(","))))
    if not gpus:
        raise BadInput(
            "launch=gpus: this process sees no CUDA device. If this machine has GPUs, name them: launch.gpus=0,1"
        )
    return gpus
