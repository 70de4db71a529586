"""SLURM behind `launch=slurm`: what a cluster can give, what its launcher is told, and when a job has ended."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from rbptrack.analysis import counted
from rbptrack.config.schema import LaunchConfig
from rbptrack.errors import BadInput

_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 60  # of the controller; the cluster's own programs try for as long
_REASON_SECONDS = 5.0  # likewise, where nothing but a word in the table depends on it
_SILENT = "the cluster does not answer"
_LOOK_SECONDS = 30  # at most between two looks at the queue
_SIGNAL_SECONDS = 60  # before a job's time is over: long enough to write what was measured


def check(launch: LaunchConfig) -> str:
    """Check that the cluster answers and has what each job asks for.

    Returns:
        A line that says what was found.

    Raises:
        BadInput: no cluster answers, or no node could ever run such a job.

    """
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
    nodes = [line.split("|") for line in done.stdout.splitlines() if line.strip()]
    if not nodes:
        what = f"has no partition {launch.partition}" if launch.partition else "has no nodes"
        raise BadInput(f"launch=slurm: the cluster {what}; sinfo lists what there is")
    where = f"partition {launch.partition}" if launch.partition else "the cluster"
    if not launch.partition and (default := [node for node in nodes if node[-1].endswith("*")]):
        nodes, where = default, f"the default partition {default[0][-1].rstrip('*')}"
    had = partial(_check_had, where=where)
    had("gpus", launch.gpus, max(gpus_of(gres) for _, gres, *_ in nodes), "GPU", "on a node")
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


def overrides(launch: LaunchConfig, name: str) -> list[str]:
    """What Hydra is told of SLURM's jobs, which have this name in the queue."""
    settings: dict[str, object] = {
        "name": name,
        "timeout_min": launch.time,
        "cpus_per_task": launch.cpus,
        "array_parallelism": launch.jobs,
        "max_num_timeout": launch.retries,  # a job that is over its time is requeued as often
        "signal_delay_s": min(_SIGNAL_SECONDS, launch.time * 30),
    }
    settings |= {"gres": f"gpu:{launch.gpus}"} if launch.gpus else {}
    settings |= {"partition": launch.partition} if launch.partition else {}
    settings |= {"account": launch.account} if launch.account else {}
    settings |= {"mem_gb": launch.memory} if launch.memory else {}
    lines = [f"hydra.launcher.{key}={_quoted(value)}" for key, value in settings.items()]
    setup = ",".join(_quoted(line) for line in launch.setup)
    lines += [f"hydra.launcher.setup=[{setup}]"] if launch.setup else []
    return ["hydra/launcher=submitit_slurm", *lines, "+hydra.launcher.additional_parameters.requeue=true"]


def _quoted(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def prepare(name: str) -> None:
    """Let submitit look for a sweep's jobs in the queue, and be silent.

    It asks the cluster's accounts (sacct), which many clusters do not keep; there it would wait for ever for a job that
    was killed. The queue lists every job that has not ended, and for some minutes those that have.

    Args:
        name: of the jobs.

    """
    from submitit.core import utils
    from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob

    class QueueWatcher(SlurmInfoWatcher):  # type: ignore[misc]
        """The state of each job from squeue; what is no longer listed has ended."""

        def _make_command(self) -> list[str] | None:
            command = ["squeue", "--noheader", "--array", "--me", f"--name={name}", "--states=all", "--format=%i|%T"]
            return command if self._registered - self._finished else None

        def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
            return states(string if isinstance(string, str) else string.decode(), self._registered)

    SlurmJob.watcher = QueueWatcher(delay_s=_LOOK_SECONDS)
    utils.print = lambda *_, **__: None  # of what sbatch says, which the error says again
    logging.getLogger("submitit").setLevel(logging.CRITICAL)  # after the import, which sets it


def refused(error: Exception) -> str:
    """What sbatch said of jobs that it did not take, in a line; empty where an error is another."""
    if not isinstance(error.__cause__, subprocess.CalledProcessError):
        return ""
    said = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in str(error).splitlines() if line.strip()]
    return "; ".join(line.removeprefix("Batch job submission failed: ") for line in said)


def lost(error: Exception) -> str:
    """What submitit says of a job that left no result, in a line; empty where an error is another.

    Examples:
        >>> lost(RuntimeError("Job 5_0 (task: 0) with path /x has not produced any output (state: NODE_FAIL)"))
        'job 5_0 was lost (NODE_FAIL)'

    """
    found = re.search(r"Job (\w+) \(task: \d+\) with path .*?\(state: (\w+)\)", str(error), re.DOTALL)
    if not found:
        return ""
    stream = [line.strip() for line in str(error).partition("Error stream produced:")[2].splitlines() if line.strip()]
    return f"job {found[1]} was lost ({found[2]})" + (f": {stream[-1]}" if stream[1:] else "")


def states(listed: str, jobs: Iterable[str]) -> dict[str, dict[str, str]]:
    """The state of each job, from what squeue lists as `ID|STATE`.

    Examples:
        >>> states("5_0|RUNNING", ["5_0", "5_1"])
        {'5_0': {'State': 'RUNNING'}, '5_1': {'State': 'ENDED'}}

    """
    found = dict(line.split("|", 1) for line in listed.split())
    return {job: {"State": found.get(job, "ENDED")} for job in jobs}


def wait(name: str, tell: Callable[[str], None]) -> None:
    """Wait until no job of this name is in the queue; while the controller does not answer, that is not known."""
    told = False
    while (listed := _lines(["squeue", "--noheader", "--me", f"--name={name}", "--format=%i"])) != []:
        if listed is None and not told:
            tell(f"launch=slurm: {_SILENT}; the sweep waits for it, and its jobs go on")
        told = listed is None
        time.sleep(_POLL_SECONDS)


def reason(name: str) -> str:
    """Why jobs of this name wait, in SLURM's words, such as `Priority`; empty where none does."""
    command = ["squeue", "--noheader", "--me", f"--name={name}", "--states=PENDING", "--format=%r"]
    said = _lines(command, seconds=_REASON_SECONDS)
    return _SILENT if said is None else max(said, key=said.count, default="")


def cancel(name: str, tell: Callable[[str], None]) -> None:
    """End all jobs of this name."""
    command = ["scancel", "--me", f"--name={name}"]
    if _lines(command) is None:
        tell(f"launch=slurm: {_SILENT}, and the jobs go on; end them with: {' '.join(command)}")


def _lines(command: Sequence[str], *, seconds: float = _ANSWER_SECONDS) -> list[str] | None:
    """What one of the cluster's programs prints; None where it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)  # noqa: S603
        return done.stdout.splitlines()
    return None
