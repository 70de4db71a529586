"""SLURM: what a cluster can give, jobs as arrays of sbatch, and what squeue says has become of them."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

from rbptrack.analysis.executors import Executor, Job, Phase, State
from rbptrack.base.errors import BadInput
from rbptrack.base.words import counted

ANSWER_SECONDS = 60  # of the controller; the cluster's own programs try for as long
LOOK_SECONDS = 15.0  # between two looks at the queue; each may take
LOOK_ANSWER_SECONDS = 10  # while the sweep's table stands still
SILENT = "the cluster does not answer"
SIGNAL_SECONDS = 60  # before a job's time is over: long enough to write the finished tokens
GONE = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
MAX_ARRAY = 1001  # SLURM's own, where the cluster does not say
GOT_ON = 75  # exit code of a job that received the signal to end, and had finished something since it began
OVER = "over launch.time"  # begins the sentence about a job that was over its time for the last time

# Its time is nearly over: the job saves its finished tokens, and goes back into the queue. bash runs a trap only
# where it waits, and a signal ends the wait.
SCRIPT = """\
#!/bin/bash
{options}
{setup}
case ${{SLURM_ARRAY_TASK_ID:-0}} in
{cases}
esac
cd {folder}
trap 'late=yes; kill -TERM $process' USR2
trap 'kill -TERM $process' TERM
env "${{variables[@]}}" "${{argv[@]}}" </dev/null & process=$!
while kill -0 $process 2>/dev/null; do wait $process; done
trap '' USR2 TERM
wait $process; code=$?
if [[ $late && $code != 0 ]]; then
    if (( code == {got_on} || ${{SLURM_RESTART_COUNT:-0}} < {retries} )); then
        scontrol requeue "$SLURM_JOB_ID" && exit
    fi
    echo "{over}={minutes} (minutes) {times}" >&2
fi
exit $code
"""


@dataclass(kw_only=True)
class Slurm(Executor):
    """Put jobs into SLURM's queue, from a login node: one array of jobs for each number of GPUs.

    Attributes:
        partition: empty: the cluster's default, as for `account`.
        account: to which the time is charged.
        time: minutes of a job; over them it is requeued and continues.
        jobs: how many run at a time.
        setup: shell lines before a job, such as `module load cuda`.
        sbatch: what else sbatch takes, such as {qos: low}.

    """

    name: ClassVar[str] = "slurm"
    outlives: ClassVar[str] = (
        "the jobs go on in SLURM's queue, and the same command finds what they measure; scancel ends them"
    )

    cpus: int = 4
    partition: str = ""
    account: str = ""
    time: int = 240
    jobs: int = 256
    setup: list[str] = field(default_factory=list)
    sbatch: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, least in (("time", 1), ("jobs", 1)):
            if getattr(self, option) < least:
                raise BadInput(f"launch.{option} must be at least {least}; got {getattr(self, option)}")
        self._ids: dict[int, str] = {}  # of SLURM, by the job's number
        self._outputs: dict[int, Path] = {}
        self._states: dict[int, State] = {}
        self._looked = 0.0
        self._is_silent = False
        self._sweep = ""

    @property
    def minutes(self) -> int:
        """What `time` is."""
        return self.time

    @cached_property
    def nodes(self) -> list[list[str]]:
        """Nodes for jobs, as sinfo lists them."""
        return nodes(self.partition)

    def kinds(self) -> list[str]:
        """Return the names of the nodes' GPUs: `gpu:a100:4` has such a name, `gpu:4` has none."""
        return [kind for _, gres, *_ in self.nodes for kind in re.findall(r"gpu:([^:,(]+):\d", gres)]

    def room(self, gpus: float) -> int:
        """Return how many jobs with so many GPUs each could run if no other user had any."""
        whole = math.ceil(gpus)
        by_name = {name: (gpus_of(gres), number(cpus)) for name, gres, cpus, *_ in self.nodes}
        fit = sum(min([cpus // self.cpus, *([has // whole] if whole else [])]) for has, cpus in by_name.values())
        return max(1, min(self.jobs, fit))

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the cluster answers and has what each job asks for."""
        self._check_secrets(jobs[0].secrets)
        where = f"partition {self.partition}" if self.partition else "the cluster"
        if not self.partition and self.nodes[0][-1].endswith("*"):
            where = f"the default partition {self.nodes[0][-1].rstrip('*')}"
        had = partial(check_had, where=where)
        gpus = math.ceil(max(job.gpus for job in jobs))
        had("gpus", gpus, max(gpus_of(gres) for _, gres, *_ in self.nodes), "GPU", place="on a node")
        had("cpus", self.cpus, max(number(cpus) for _, _, cpus, *_ in self.nodes), "CPU", place="on a node")
        had("memory", self.memory, max(number(mb) for *_, mb, _ in self.nodes) / 1024, "GB", place="on a node")
        had("time", self.time, max(minutes(limit) for _, _, _, limit, *_ in self.nodes), "minute", place="for a job")
        return f"jobs go into SLURM's queue ({counted(len({name for name, *_ in self.nodes}), 'node')})"

    def _check_secrets(self, names: Sequence[str]) -> None:
        """Raise BadInput where jobs would not have the store's password: sbatch gives them this environment, or
        parts.
        """
        exported = str(self.sbatch.get("export") or os.environ.get("SBATCH_EXPORT", "ALL")).split(",")
        if "ALL" not in exported and (missing := [name for name in names if name not in exported]):
            raise BadInput(
                f"launch=slurm: jobs would not have {' and '.join(missing)}, with which they reach the tracking store: "
                f"export SBATCH_EXPORT=ALL, or name it there (it is {','.join(exported)})"
            )

    def submit(self, jobs: Sequence[Job]) -> None:
        """Put jobs into the queue: an array for each number of GPUs, as long as the cluster allows."""
        most = max_array()
        by_gpus: dict[int, list[Job]] = {}
        for job in jobs:
            by_gpus.setdefault(math.ceil(job.gpus), []).append(job)
        for gpus, alike in by_gpus.items():
            for first in range(0, len(alike), most):
                array = alike[first : first + most]
                self._submit_array(array, gpus, at_a_time=max(1, int(self.jobs * len(array) / len(jobs))))
        self._looked = time.monotonic()

    def _submit_array(self, jobs: Sequence[Job], gpus: int, *, at_a_time: int) -> None:
        folder = jobs[0].log.parent / "slurm"
        folder.mkdir(exist_ok=True)
        script = folder / f"{jobs[0].number}-{time.time_ns()}.sh"
        script.write_text(self.script(jobs, gpus, at_a_time=at_a_time), encoding="utf-8")
        self._sweep = jobs[0].sweep
        try:
            done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=True)  # noqa: S603, S607
        except subprocess.CalledProcessError as error:
            self.cancel()
            raise BadInput(f"launch=slurm: the cluster does not take these jobs: {refusal(error.stderr)}") from error
        array = done.stdout.strip().partition(";")[0]
        for place, job in enumerate(jobs):
            self._ids[job.number] = f"{array}_{place}"
            self._outputs[job.number] = folder / f"{array}_{place}.out"
            self._states[job.number] = State(Phase.waiting)

    def script(self, jobs: Sequence[Job], gpus: int, *, at_a_time: int) -> str:
        """Return the batch script of an array of jobs with so many GPUs each."""
        options = {
            "job-name": jobs[0].sweep,
            "array": f"0-{len(jobs) - 1}%{at_a_time}",
            "output": f"{jobs[0].log.parent}/slurm/%A_%a.out",
            "open-mode": "append",  # of a job that is requeued
            "nodes": "1",
            "ntasks": "1",
            "cpus-per-task": str(self.cpus),
            "time": str(self.time),
            "signal": f"B:USR2@{min(SIGNAL_SECONDS, self.time * 30)}",
            "requeue": "",
            "gres": f"gpu:{gpus}" if gpus else "",
            "partition": self.partition,
            "account": self.account,
            "mem": f"{self.memory}G" if self.memory else "",
            **self.sbatch,
        }
        lines = [
            f"#SBATCH --{key}" + (f"={value}" if value else "")
            for key, value in options.items()
            if value or key == "requeue"
        ]
        cases = []
        for place, job in enumerate(jobs):
            variables = _words(f"{name}={value}" for name, value in job.environment.items())
            cases.append(f"{place}) variables=({variables}); argv=({_words(job.argv)});;")
        return SCRIPT.format(
            options="\n".join(lines),
            setup="\n".join(self.setup),
            cases="\n".join(cases),
            folder=shlex.quote(str(jobs[0].folder)),
            retries=self.retries,
            got_on=GOT_ON,
            over=OVER,
            minutes=self.time,
            times=counted(self.retries + 1, "time"),
        )

    def states(self) -> Mapping[int, State]:
        """Return the states in the queue, which is read now and then; a silent controller says nothing about a job."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            command = ["squeue", "--noheader", "--array", "--me", f"--name={self._sweep}", "--states=all"]
            listed = lines([*command, "--format=%i|%T|%r"], seconds=LOOK_ANSWER_SECONDS)
            self._looked = time.monotonic()
            if listed is None and not self._is_silent:
                self.tell(f"{SILENT}; the sweep waits for it, and its jobs go on")
            self._is_silent = listed is None
            if listed is not None:
                self._states = {job: self._state(job, job_id, listed) for job, job_id in self._ids.items()}
        return self._states

    def _state(self, job: int, job_id: str, listed: Sequence[str]) -> State:
        state = state_of(job_id, listed)
        if state.phase is not Phase.gone or not state.why:
            return state
        printed: list[str] = []
        with suppress(OSError):
            printed = [line.strip() for line in self._outputs[job].read_text().splitlines() if line.strip()]
        if printed and printed[-1].startswith(OVER):
            return State(Phase.gone, printed[-1], final=True)
        return State(Phase.gone, f"job {job_id}, {state.why}" + (f": {printed[-1]}" if printed else ""))

    def cancel(self) -> None:
        """End all jobs of this name."""
        command = ["scancel", "--me", f"--name={self._sweep}"]
        if lines(command) is None:
            self.tell(f"{SILENT}, and the jobs go on; end them with: {' '.join(command)}")


def state_of(job_id: str, listed: Sequence[str]) -> State:
    """Return the state of a job, from what squeue lists as `ID|STATE|REASON`; what it no longer lists has ended.

    Examples:
        >>> state_of("5_1", ["5_0|RUNNING|None", "5_1|PENDING|Priority"])
        State(phase=<Phase.waiting: 'waiting'>, why='Priority', final=False)

    """
    for line in listed:
        number, state, why = line.split("|", 2)
        if number == job_id:
            if state in GONE:
                return State(Phase.gone, "" if state == "COMPLETED" else state)
            return State(Phase.waiting, why) if state == "PENDING" else State(Phase.running)
    return State(Phase.gone)


def max_array() -> int:
    """Return how many jobs an array of this cluster may have."""
    size = re.search(r"MaxArraySize\s*=\s*(\d+)", "\n".join(lines(["scontrol", "show", "config"]) or []))
    return max(1, int(size[1]) if size else MAX_ARRAY)


def refusal(text: str) -> str:
    """Return sbatch's answer about refused jobs, in a line."""
    printed = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in text.splitlines() if line.strip()]
    return "; ".join(line.removeprefix("Batch job submission failed: ") for line in printed)


def nodes(partition: str) -> list[list[str]]:
    """Return nodes for jobs, by sinfo: name, GPUs, CPUs, time limit, MB of memory, partition; BadInput if sinfo lists
    none.
    """
    if shutil.which("sbatch") is None or shutil.which("sinfo") is None:
        raise BadInput("launch=slurm: this machine has no sbatch; run it on a login node of the cluster")
    named = [f"--partition={partition}"] if partition else []
    command = ["sinfo", "--noheader", "--Node", "--format=%N|%G|%c|%l|%m|%P", *named]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"launch=slurm: the cluster does not answer within {ANSWER_SECONDS} s; try again") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no answer"])[-1]
        raise BadInput(f"launch=slurm: the cluster does not answer: {last}") from error
    listed = [line.split("|") for line in done.stdout.splitlines() if line.strip()]
    if not listed:
        what = f"has no partition {partition}" if partition else "has no nodes"
        raise BadInput(f"launch=slurm: the cluster {what}; sinfo lists its nodes")
    if partition:
        return listed
    return [node for node in listed if node[-1].endswith("*")] or listed


def check_had(option: str, wanted: int, most: float, what: str, *, where: str, place: str) -> None:
    """Raise BadInput where a job would wait in the queue for ever."""
    if wanted > most:
        had = f"{most:.4g} GB" if what == "GB" else counted(int(most), what)
        less = "launch.gpus=0 to measure on CPUs" if option == "gpus" and not most else "less"
        raise BadInput(
            f"launch=slurm: launch.{option}={wanted}, but {where} has at most {had} {place}; ask for {less}, or name "
            "another launch.partition"
        )


def number(text: str) -> int:
    """Read a number of sinfo's: `64`, or `64+` where nodes differ."""
    return int(text.rstrip("+"))


def minutes(limit: str) -> float:
    """Return SLURM's time limits in minutes: `infinite`, `30:00`, `2:00:00`, `1-00:00:00`."""
    if limit == "infinite":
        return float("inf")
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    hours, minutes = ([0] * (3 - len(parts)) + parts)[:2]
    return int(days or 0) * 1440 + hours * 60 + minutes


def gpus_of(gres: str) -> int:
    """Return GPUs of a node: `gpu:2`, `gpu:a100:4(S:0-1)`, `(null)`."""
    return sum(int(count) for count in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))


def lines(command: Sequence[str], *, seconds: float = ANSWER_SECONDS) -> list[str] | None:
    """Return the output of one of the cluster's programs; None where it fails."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)  # noqa: S603
        return done.stdout.splitlines()
    return None


def _words(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))
