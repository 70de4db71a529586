"""Where the jobs of a sweep run: in this process, on Ray or under SLURM, behind one small protocol.

Where somebody has chosen a launcher, a sweeper or callbacks of Hydra, those run the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rbptrack.base.process import leave_out_what_is_loaded
from rbptrack.console.progress import SweepProgress
from rbptrack.sweep.jobs import Job, Task, work
from rbptrack.sweep.resolve import Resolved
from rbptrack.sweep.results import Results

_LEAST_WEIGHT = 2e6  # parameters whose measuring takes as long as what every cell takes beside it


class Phase(Enum):
    """How far a job is for its executor."""

    waiting = "waiting"
    running = "running"
    gone = "gone"


@dataclass(frozen=True)
class State:
    """What an executor knows of a job: how far it is; why it waits, or how it was lost, in a few words."""

    phase: Phase
    why: str = ""


class Executor(Protocol):
    """Runs jobs.

    Attributes:
        elsewhere: whether in other processes, which tell through files what they do while this one waits.
        outlives: what is said of the jobs where this process is ended, and nobody asked for their end; empty where they
            end with it.

    """

    elsewhere: bool
    outlives: str

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the jobs can be had, before any is submitted; returns a line that says what was found.

        Raises:
            BadInput: what they need is not there, or never will be.

        """

    def gpus(self) -> list[str]:
        """What the GPUs there are called, as far as that is known."""

    def submit(self, jobs: Sequence[Job]) -> None:
        """Let jobs run, for the first time or, those that were lost, again.

        Raises:
            BadInput: they are not taken.

        """

    def states(self) -> Mapping[int, State]:
        """What is known of each job that was submitted, by its number."""

    def cancel(self) -> None:
        """End all jobs."""


class InProcess:
    """An executor whose jobs have ended when they are submitted, because this process does them."""

    elsewhere, outlives = False, ""

    def check(self, jobs: Sequence[Job]) -> str:
        """Nothing to find."""
        return ""

    def gpus(self) -> list[str]:
        """None that is given to jobs."""
        return []

    def states(self) -> Mapping[int, State]:
        """Nothing is under way."""
        return {}

    def cancel(self) -> None:
        """Nothing is under way."""


class Here(InProcess):
    """Jobs run one after the other.

    Args:
        results: is told of every task.
        resolved: what each cell resolves to, in the order of the sweep.

    """

    def __init__(self, results: Results, resolved: Sequence[Resolved]) -> None:
        self._results, self._resolved = results, resolved

    def submit(self, jobs: Sequence[Job]) -> None:
        """Do the jobs."""
        leave_out_what_is_loaded()  # what libraries leave behind is found soon: memory stays flat
        tasks = [task for job in jobs for task in job.tasks]
        if len(tasks) == 1:
            work(tasks, self._results, lambda task: self._resolved[task.number], total=jobs[0].total)
            return
        with SweepProgress(lambda: [self._weight(task) for task in tasks]) as progress:
            work(progress.over(tasks), self._results, lambda task: self._resolved[task.number], total=jobs[0].total)

    def _weight(self, task: Task) -> float:
        """How long a task takes beside others, roughly."""
        return (_LEAST_WEIGHT + self._resolved[task.number].count_parameters().total) / task.shard.count
