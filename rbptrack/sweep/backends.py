"""Measure the cells of a sweep in this process, on the GPUs of this machine, or as one SLURM array.

`Gpus` and `Slurm` write the cells into job files. `rbptrack job FILE` measures the cells of one file and leaves the
finished measurements on disk. It does not use the tracking store: the process that launched the jobs delivers the
measurements as they appear. The store may therefore be a file that only this process can reach. If a job ends early,
run the command again to continue.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from rbptrack.base.errors import BadInput
from rbptrack.base.escape import file_part
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import counted, short_path
from rbptrack.config.paths import mlruns_folder
from rbptrack.config.schema import Config, Launch
from rbptrack.console.output import print_text
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.cost import GPU_SPEED, Planner
from rbptrack.sweep.jobs import OWNER_ONLY, Collector, ReportOutcome, check_cells, write_jobs
from rbptrack.sweep.measuring import measure_cells
from rbptrack.tracking import Store

_POLL_SECONDS = 0.05  # how often to ask whether a process has ended
_COLLECT_SECONDS = 1.0  # how often to look for finished measurements, whose folders may be on a network
_SLURM_SECONDS = 60.0  # how long to wait for an answer of SLURM
_MAX_ARRAY_SIZE = 1001  # SLURM's default, if it does not say its own
_GPU_NAME = re.compile(r"\d+|(GPU|MIG)-.+")  # as in CUDA_VISIBLE_DEVICES
_SCRIPT_FILE = "job.sh"
_ARRAY_FILE = "array.txt"  # holds the number of the SLURM array and the fingerprints of its cells

# SLURM sends USR1 at the time limit. It cannot be TERM, which scancel sends: a cancelled job would be requeued.
_SCRIPT = """\
#!/bin/bash
#SBATCH --array=0-{last}
#SBATCH --requeue --open-mode=append --signal=B:USR1@90
#SBATCH --output="{logs}/%A_%a.log"
{options}
cd {working_folder}
end_child() {{ kill -TERM $child; wait $child; }}
trap 'end_child; exit 143' TERM  # cancelled, or requeued for another job
trap 'end_child; scontrol requeue ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID; exit 0' USR1  # its time is over
{python} -m rbptrack job {jobs}/$SLURM_ARRAY_TASK_ID.json & child=$!
wait $child
"""


class Backend(Protocol):
    """A place where the cells of a sweep are measured."""

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Measure cells. Returns when all of them have ended.

        Args:
            cells: the cells, by their number in the sweep.
            report_outcome: called once for each cell, when it has ended.

        """


@dataclass(frozen=True)
class Local:
    """Measures one cell after the other in this process."""

    store: Store

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Check all cells first, then measure the cells that passed the check."""
        from rbptrack.sweep.load import Loader

        loader = Loader()
        readable_cells = check_cells(cells, loader.check, report_outcome)
        for number, outcome in measure_cells(readable_cells, self.store, loader=loader):
            report_outcome(number, outcome)


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


@dataclass(frozen=True)
class Slurm:
    """Submits jobs as one SLURM array and waits for its end.

    Attributes:
        store: the tracking store.
        folder: the folder for job files, the script and the output of the jobs. All nodes must see it.
        options: options of sbatch, such as {"partition": "gpu", "gres": "gpu:1", "time": "4:00:00"}.
        show: whether to print the script instead of submitting it.

    """

    store: Store
    folder: Path
    options: Mapping[str, str] = field(default_factory=dict)
    show: bool = False

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Run jobs until all have ended. If this process is interrupted, the jobs go on.

        Raises:
            BadInput: sbatch is not installed or refuses the script, or an earlier array still measures some cells.

        """
        fingerprints = [cell.fingerprint for cell in cells.values()]
        _refuse_running_array(self.folder, fingerprints)
        planner = Planner(
            GPU_SPEED if any("gpu" in f"{option}={value}" for option, value in self.options.items()) else None
        )
        jobs, readable_cells = write_jobs(cells, report_outcome, self.folder, planner, max_jobs=_max_array_size())
        if not jobs:
            return
        script = self._write_script(len(jobs))
        if self.show:
            print_text(script.read_text())
            return
        collector = Collector(readable_cells, self.store, self.folder, report_outcome)
        submit_and_wait(script, fingerprints, collector.collect)
        collector.finish()

    def _write_script(self, num_jobs: int) -> Path:
        path = self.folder / _SCRIPT_FILE
        script = _SCRIPT.format(
            last=num_jobs - 1,
            logs=str(self.folder).replace("%", "%%"),
            options="\n".join(f"#SBATCH {_sbatch_option(name, value)}" for name, value in self.options.items()),
            working_folder=shlex.quote(str(Path.cwd())),
            python=shlex.quote(sys.executable),
            jobs=shlex.quote(str(self.folder)),
        )
        write_whole(path, script, OWNER_ONLY)
        return path


def make_backend(settings: Config, store: Store, name: str) -> Backend:
    """Make the backend that a configuration asks for.

    Args:
        settings: the configuration, of which `launch` is read.
        store: the tracking store.
        name: the name of the folder for job files: the sweep, or a fingerprint.

    """
    launch = settings.launch
    if launch.kind is Launch.local:
        return Local(store)
    folder = mlruns_folder() / "launch" / file_part(name)
    if launch.kind is Launch.gpus:
        return Gpus(store, folder, launch.gpus)
    if launch.kind is Launch.slurm:
        return Slurm(store, folder, launch.options, launch.show)
    raise NotImplementedError(f"launch={launch.kind.value} has no backend")


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
            _wait_for_an_end(gpu_by_process)
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


def submit_and_wait(script: Path, fingerprints: Sequence[str], collect: Callable[[], None]) -> None:
    """Submit a SLURM array and wait for its end.

    If this process is interrupted, the array goes on. The user runs the command again to deliver the results.

    Args:
        script: the script for sbatch.
        fingerprints: the fingerprints of the cells that the array measures.
        collect: called about once a second while the array runs.

    Raises:
        BadInput: sbatch is not installed, or refuses the script.

    """
    try:
        sbatch = subprocess.Popen(
            ["sbatch", "--parsable", "--wait", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C must reach this process, not sbatch
        )
    except FileNotFoundError as error:
        raise BadInput(
            "launch=slurm: this machine has no sbatch. Run the command on a login node of SLURM; "
            "launch.show=true only prints the script"
        ) from error
    with sbatch:
        assert sbatch.stdout is not None  # noqa: S101
        assert sbatch.stderr is not None  # noqa: S101
        array_id = sbatch.stdout.readline().strip().partition(";")[0]
        if not array_id:
            raise BadInput(f"sbatch refuses {short_path(script)}: {sbatch.stderr.read().strip()}")
        write_whole(script.parent / _ARRAY_FILE, "\n".join([array_id, *fingerprints]))
        print_text(f"submitted as SLURM array {array_id}; output: {short_path(script.parent)}")
        try:
            while sbatch.poll() is None:
                _wait_for_an_end([sbatch])
                collect()
        except BaseException:
            sbatch.terminate()
            print_text(f"The jobs go on. Run the command again to deliver their results; scancel {array_id} ends them.")
            raise


def _wait_for_an_end(processes: Collection[subprocess.Popen[Any]]) -> None:
    """Wait until one of the processes has ended, but at most a second."""
    deadline = time.monotonic() + _COLLECT_SECONDS
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        time.sleep(_POLL_SECONDS)


def _sbatch_option(name: str, value: str) -> str:
    """Return an option of sbatch for a script. sbatch reads quotes as a shell does."""
    if value.lower() in ("", "true"):  # such as --exclusive, which takes no value
        return f"--{name}"
    return shlex.quote(f"--{name}={value}")


def _max_array_size() -> int:
    """Return the largest number of tasks of a SLURM array."""
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", _ask_slurm("scontrol", "show", "config"), re.MULTILINE)
    return int(match[1]) if match else _MAX_ARRAY_SIZE


def _ask_slurm(*command: str) -> str:
    """Return what a command of SLURM prints; an empty text if the command is not installed."""
    try:
        return subprocess.run(command, capture_output=True, check=False, text=True, timeout=_SLURM_SECONDS).stdout
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired as error:
        raise BadInput(
            f"launch=slurm: SLURM does not answer ({command[0]} took more than {_SLURM_SECONDS:.0f} s). Run this "
            "command again when SLURM answers"
        ) from error


def _refuse_running_array(folder: Path, fingerprints: Collection[str]) -> None:
    """Raise BadInput if an earlier SLURM array, which uses this folder or measures one of these cells, still runs."""
    for file in folder.parent.glob(f"*/{_ARRAY_FILE}"):
        array_id, *array_fingerprints = file.read_text().split()
        if file.parent != folder and set(array_fingerprints).isdisjoint(fingerprints):
            continue
        if _ask_slurm("squeue", "--noheader", f"--jobs={array_id}").strip():
            raise BadInput(
                f"the SLURM array {array_id} is still running, and it measures some of these cells or belongs to a "
                "sweep of this name. Its results are kept. Run the command again when it has ended, or after "
                f"scancel {array_id}"
            )


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
