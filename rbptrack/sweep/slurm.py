"""SLURM behind `launch=slurm`: what a cluster can give, its jobs through submitit, and what has become of them."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import cached_property, partial
from typing import Any

from rbptrack.base.errors import BadInput
from rbptrack.base.process import install_signals, stop_code
from rbptrack.base.words import counted
from rbptrack.config.schema import LaunchConfig
from rbptrack.sweep.channel import run
from rbptrack.sweep.executors import Executor, Phase, State
from rbptrack.sweep.jobs import Job, login_of
from rbptrack.sweep.outcome import CONTINUES

_ANSWER_SECONDS = 60  # of the controller; the cluster's own programs try for as long
_LOOK_SECONDS = 15.0  # between two looks at the queue, of which each may take
_LOOK_ANSWER_SECONDS = 10  # while the sweep's table stands still
_SILENT = "the cluster does not answer"
_SIGNAL_SECONDS = 60  # before a job's time is over: long enough to write what was measured
_GONE = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
_MAX_ARRAY = 1001  # SLURM's own, where the cluster does not say


class Slurm(Executor):
    """SLURM's queue: one array of jobs for each kind of job."""

    elsewhere = True
    outlives = "the jobs go on in SLURM's queue, and the same command finds what they measure; scancel ends them"

    def __init__(self, launch: LaunchConfig, name: str, tell: Callable[[str], None]) -> None:
        self._launch, self._name, self._tell = launch, name, tell
        self._handles: dict[int, Any] = {}  # of submitit, by the job's number
        self._states: dict[int, State] = {}
        self._looked, self._silent = 0.0, False

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the cluster answers and has what each job asks for."""
        self._check_login(login_of(jobs))
        return check(self._launch, max((job.gpus for job in jobs), default=0.0), self._nodes)

    def _check_login(self, names: Sequence[str]) -> None:
        """BadInput where jobs would not have the store's password: sbatch gives them this environment, or parts."""
        exported = str(self._launch.sbatch.get("export") or os.environ.get("SBATCH_EXPORT", "ALL")).split(",")
        if "ALL" not in exported and (lost := [name for name in names if name not in exported]):
            raise BadInput(
                f"launch=slurm: jobs would not have {' and '.join(lost)}, with which they reach the tracking store: "
                f"export SBATCH_EXPORT=ALL, or name it there (it is {','.join(exported)})"
            )

    def gpus(self) -> list[str]:
        """What the GPUs of the nodes are called: `gpu:a100:4` has such a name, `gpu:4` has none."""
        return [name for _, gres, *_ in self._nodes for name in re.findall(r"gpu:([^:,(]+):\d", gres)]

    @cached_property
    def _nodes(self) -> list[list[str]]:
        return nodes(self._launch)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue: an array for each number of GPUs, as long as the cluster allows."""
        most, by_gpus = max_array(), dict[int, list[Job]]()
        for job in jobs:
            by_gpus.setdefault(math.ceil(job.gpus), []).append(job)
        for alike in by_gpus.values():
            for first in range(0, len(alike), most):
                array = alike[first : first + most]
                self._submit_array(array, share=len(array) / len(jobs))
        self._looked = time.monotonic()

    def _submit_array(self, jobs: Sequence[Job], *, share: float) -> None:
        """One array; `share` of the jobs that may run at a time are its."""
        import submitit

        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # after the import, which sets it
        launch = self._launch
        executor = submitit.AutoExecutor(
            jobs[0].file.parent / "slurm", cluster="slurm", slurm_max_num_timeout=launch.retries
        )
        executor.update_parameters(**parameters(launch, self._name, gpus=math.ceil(jobs[0].gpus)))
        executor.update_parameters(slurm_array_parallelism=max(1, int(launch.jobs * share)))
        try:
            with redirect_stderr(io.StringIO()):  # what sbatch says, which the error says again
                handles = executor.map_array(Work(), jobs)
        except submitit.core.utils.FailedJobError as error:
            self.cancel()
            raise BadInput(f"launch=slurm: the cluster does not take these jobs: {_refusal(error)}") from error
        for job, handle in zip(jobs, handles, strict=True):
            self._handles[job.number] = handle
            self._states[job.number] = State(Phase.waiting)

    def states(self) -> Mapping[int, State]:
        """What the queue says, which is looked at now and then; a silent controller tells nothing of a job."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            command = ["squeue", "--noheader", "--array", "--me", f"--name={self._name}", "--states=all"]
            listed = _lines([*command, "--format=%i|%T|%r"], seconds=_LOOK_ANSWER_SECONDS)
            self._looked = time.monotonic()
            if listed is None and not self._silent:
                self._tell(f"launch=slurm: {_SILENT}; the sweep waits for it, and its jobs go on")
            self._silent = listed is None
            if listed is not None:
                self._states = {n: self._state(handle, listed) for n, handle in self._handles.items()}
        return self._states

    def _state(self, handle: Any, listed: Sequence[str]) -> State:
        state = state_of(handle.job_id, listed)
        if state.phase is not Phase.gone or not state.why:
            return state
        said: list[str] = []
        with suppress(OSError):
            said = [line.strip() for line in handle.paths.stderr.read_text().splitlines() if line.strip()]
        return State(Phase.gone, f"job {handle.job_id}, {state.why}" + (f": {said[-1]}" if said else ""))

    def cancel(self) -> None:
        """End all jobs of this name."""
        command = ["scancel", "--me", f"--name={self._name}"]
        if _lines(command) is None:
            self._tell(f"launch=slurm: {_SILENT}, and the jobs go on; end them with: {' '.join(command)}")


class Work:
    """A job as submitit runs it on a node, and puts it into the queue again when its time is over."""

    def __call__(self, job: Job) -> None:
        """Do the job; a job over its time first saves what it has measured."""
        import submitit

        number = getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}")
        again = signal.getsignal(number)
        assert callable(again)  # noqa: S101 - submitit has set it
        for each in (number, signal.SIGTERM):  # submitit would leave SIGTERM to SIGKILL
            signal.signal(each, signal.SIG_DFL)
        install_signals(number)
        try:
            run(job)
        except SystemExit:
            if stop_code() != 128 + number:
                raise
            try:
                again(number, None)  # raises SystemExit once the job is in the queue
            except submitit.core.utils.UncompletedJobError:
                launch = job.tasks[0].config.launch
                times = counted(launch.retries + 1, "time")
                run(job, over=f"over launch.time={launch.time} (minutes) {times}; {CONTINUES}")

    def checkpoint(self, job: Job) -> Any:
        """What is put into the queue: the same; what was measured is found."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, job)


def parameters(launch: LaunchConfig, name: str, *, gpus: int) -> dict[str, Any]:
    """What submitit is told of a sweep's jobs that have so many GPUs each."""
    settings: dict[str, Any] = {
        "name": name,
        "timeout_min": launch.time,
        "cpus_per_task": launch.cpus,
        "nodes": 1,
        "tasks_per_node": 1,
        "slurm_signal_delay_s": min(_SIGNAL_SECONDS, launch.time * 30),
        "slurm_additional_parameters": {"requeue": True, **launch.sbatch},
        "slurm_setup": list(launch.setup),
    }
    settings |= {"slurm_gres": f"gpu:{gpus}"} if gpus else {}
    settings |= {"slurm_partition": launch.partition} if launch.partition else {}
    settings |= {"slurm_account": launch.account} if launch.account else {}
    settings |= {"mem_gb": launch.memory} if launch.memory else {}
    return settings


def state_of(job_id: str, listed: Sequence[str]) -> State:
    """The state of a job, from what squeue lists as `ID|STATE|REASON`; what it no longer lists has ended.

    Examples:
        >>> state_of("5_1", ["5_0|RUNNING|None", "5_1|PENDING|Priority"])
        State(phase=<Phase.waiting: 'waiting'>, why='Priority')

    """
    for line in listed:
        number, state, why = line.split("|", 2)
        if number == job_id:
            if state in _GONE:
                return State(Phase.gone, "" if state == "COMPLETED" else state)
            return State(Phase.waiting, why) if state == "PENDING" else State(Phase.running)
    return State(Phase.gone)


def max_array() -> int:
    """How many jobs an array of this cluster may have."""
    said = re.search(r"MaxArraySize\s*=\s*(\d+)", "\n".join(_lines(["scontrol", "show", "config"]) or []))
    return max(1, int(said[1]) if said else _MAX_ARRAY)


def _refusal(error: Exception) -> str:
    """What sbatch said of jobs that it did not take, in a line."""
    said = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in str(error).splitlines() if line.strip()]
    return "; ".join(line.removeprefix("Batch job submission failed: ") for line in said)


def nodes(launch: LaunchConfig) -> list[list[str]]:
    """Nodes for jobs, by sinfo: name, GPUs, CPUs, time limit, MB of memory, partition; BadInput where there is none."""
    if shutil.which("sbatch") is None or shutil.which("sinfo") is None:
        raise BadInput("launch=slurm: there is no sbatch here; run it on a login node of the cluster")
    named = [f"--partition={launch.partition}"] if launch.partition else []
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%G|%c|%l|%m|%P", *named]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"launch=slurm: the cluster does not answer within {_ANSWER_SECONDS} s; try again") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["no answer"])[-1]
        raise BadInput(f"launch=slurm: the cluster does not answer: {said}") from error
    listed = [line.split("|") for line in done.stdout.splitlines() if line.strip()]
    if not listed:
        what = f"has no partition {launch.partition}" if launch.partition else "has no nodes"
        raise BadInput(f"launch=slurm: the cluster {what}; sinfo lists what there is")
    if launch.partition:
        return listed
    return [node for node in listed if node[-1].endswith("*")] or listed


def check(launch: LaunchConfig, gpus: float, nodes: Sequence[Sequence[str]]) -> str:
    """A line about the nodes that were found; BadInput where none could ever run a job that asks for so much."""
    where = f"partition {launch.partition}" if launch.partition else "the cluster"
    if not launch.partition and nodes[0][-1].endswith("*"):
        where = f"the default partition {nodes[0][-1].rstrip('*')}"
    had = partial(_check_had, where=where)
    had("gpus", math.ceil(gpus), max(gpus_of(gres) for _, gres, *_ in nodes), "GPU", "on a node")
    had("cpus", launch.cpus, max(_number(cpus) for _, _, cpus, *_ in nodes), "CPU", "on a node")
    had("memory", launch.memory, max(_number(mb) for *_, mb, _ in nodes) / 1024, "GB", "on a node")
    had("time", launch.time, max(minutes(limit) for _, _, _, limit, *_ in nodes), "minute", "for a job")
    return f"jobs go into SLURM's queue ({counted(len({name for name, *_ in nodes}), 'node')})"


def _check_had(option: str, wanted: int, most: float, what: str, each: str, *, where: str) -> None:
    """BadInput where a job would wait in the queue for ever."""
    if wanted > most:
        number = f"{most:.4g} GB" if what == "GB" else counted(int(most), what)
        raise BadInput(
            f"launch=slurm: launch.{option}={wanted}, but {where} has at most {number} {each}; ask for "
            f"{'launch.gpus=0 to measure on CPUs' if option == 'gpus' and not most else 'less'}, or name another "
            "launch.partition"
        )


def _number(text: str) -> int:
    """What sinfo counts: `64`, or `64+` where nodes differ."""
    return int(text.rstrip("+"))


def minutes(limit: str) -> float:
    """SLURM's time limits in minutes: `infinite`, `30:00`, `2:00:00`, `1-00:00:00`."""
    if limit == "infinite":
        return float("inf")
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes = ([0] * (3 - len(parts)) + parts)[:2]
    return int(days or 0) * 1440 + hours * 60 + minutes


def gpus_of(gres: str) -> int:
    """GPUs of a node: `gpu:2`, `gpu:a100:4(S:0-1)`, `(null)`."""
    return sum(int(n) for n in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))


def _lines(command: Sequence[str], *, seconds: float = _ANSWER_SECONDS) -> list[str] | None:
    """What one of the cluster's programs prints; None where it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)  # noqa: S603
        return done.stdout.splitlines()
    return None
