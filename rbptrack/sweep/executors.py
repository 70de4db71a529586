"""Where the jobs of a sweep run: in this process, on Ray or under SLURM, behind one small class.

Where somebody has chosen a launcher, a sweeper or callbacks of Hydra, those run the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

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


class Executor:
    """Runs jobs; as it stands, those that have ended when they are submitted, because this process does them."""

    elsewhere: bool = False
    """Whether in other processes, which tell through files what they do while this one waits."""
    outlives: str = ""
    """What is said of the jobs where this process is ended, and nobody asked for their end."""

    def check(self, jobs: Sequence[Job]) -> str:
        """Check that the jobs can be had, now or ever, else BadInput; returns a line that says what was found."""
        return ""

    def gpus(self) -> list[str]:
        """What the GPUs there are called, as far as that is known."""
        return []

    def submit(self, jobs: Sequence[Job]) -> None:
        """Let jobs run, for the first time or, those that were lost, again; BadInput where they are not taken."""
        raise NotImplementedError

    def states(self) -> Mapping[int, State]:
        """What is known of each job that was submitted, by its number."""
        return {}

    def cancel(self) -> None:
        """End all jobs."""


class Here(Executor):
    """Jobs run one after the other."""

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
