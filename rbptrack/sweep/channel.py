"""How jobs elsewhere tell their sweep what becomes of their cells: one small file each, in a folder that both see.

The file is written whole, so that a reader never finds half of it, and it outlives its job: one that begins again does
not do twice what it has done. It is the same for every launcher, knows shards that have no run in the store yet, and
goes on while the store is away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from rbptrack.base.files import temporary_files, write_whole
from rbptrack.base.process import install_signals
from rbptrack.base.secrets import guard
from rbptrack.console.progress import CellState
from rbptrack.sweep.jobs import Job, Task, label, logged, work
from rbptrack.sweep.outcome import Outcome, announce
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.results import Results


@dataclass
class Report:
    """What a job has told.

    Attributes:
        ended: of each task that ended: the numbers of its cell and its shard, whether its cell ended with it, and how.
        at_work: how far the present task is, if it has got anywhere; its cell's number before it.
        gave_up: why the job does no more, where that is its own doing.
        done: whether it has nothing more to tell.

    """

    ended: list[tuple[int, int, bool, Outcome]] = field(default_factory=list)
    at_work: tuple[int, CellState] | None = None
    gave_up: str = ""
    done: bool = False

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a job's file; None where it is not there, cannot be read now, or is damaged."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except (OSError, ValueError):
            return None


class Teller:
    """The job's end of the channel; what an earlier life of the job has told stays told."""

    def __init__(self, job: Job) -> None:
        self._path = job.file
        self._report = Report.read(job.file) or Report()
        self._report.gave_up, self._report.done = "", False
        self._write()

    def known(self, task: Task) -> bool:
        """Whether this job has told of the end of a task, or of its cell."""
        return any(
            cell == task.number and (whole or shard == task.shard.number)
            for cell, shard, whole, _ in self._report.ended
        )

    def at_work(self, task: Task, state: CellState) -> None:
        """Tell how far a task is."""
        self._report.at_work = task.number, state
        with suppress(OSError):  # what only a table is made of ends no measurement
            self._write()

    def ended(self, task: Task, outcome: Outcome, *, whole: bool) -> None:
        """Tell how a task ended."""
        self._report.ended.append((task.number, task.shard.number, whole, outcome))
        self._report.at_work = None
        self._write()

    def rest(self) -> None:
        """Tell that nothing is under way: the job may begin again."""
        self._report.at_work = None
        self._write()

    def close(self, gave_up: str = "") -> None:
        """Tell that there is nothing more to tell, and why, where that is not the job's end."""
        self._report.at_work, self._report.gave_up, self._report.done = None, gave_up, True
        self._write()

    def _write(self) -> None:
        write_whole(self._path, json.dumps(asdict(self._report)))


def run(job: Job, *, over: str = "") -> None:
    """Do a job, in a process of its own on whatever machine; what is printed goes into its log.

    Where it is `over`, tell instead of doing it that this is why it does no more.
    """
    os.chdir(job.folder)  # Ray's workers begin elsewhere
    install_signals()
    with (
        temporary_files(),
        job.log.open("a", buffering=1) as log,
        redirect_stdout(log),
        redirect_stderr(log),
        logged(job.log),
    ):
        guard()
        teller, resolver = Teller(job), Resolver()
        if 0 < job.gpus < 1 and not over:
            _share_gpu(job.gpus)
        try:
            if not over:
                work(job.tasks, teller, lambda task: resolver.resolve(task.config), total=job.total)
        except BaseException:
            teller.rest()
            raise
        teller.close(over)


def _share_gpu(share: float) -> None:
    """Take no more of the GPU's memory than this job was given: others are at work on it."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


class Inbox:
    """The sweep's end of the channel.

    `reports` holds the last of each job that has begun, by its number; `aloud` prints a line for each cell that ends.
    """

    def __init__(self, results: Results, *, total: int, aloud: bool) -> None:
        self.reports: dict[int, Report] = {}
        self._results, self._total, self._aloud = results, total, aloud
        self._seen: dict[int, tuple[int, int]] = {}

    def read(self, jobs: Iterable[Job]) -> None:
        """Read the files of jobs that have told something new."""
        for job in jobs:
            with suppress(OSError):  # it has not begun, or a network file system does not answer for a moment
                now = job.file.stat()
                if self._seen.get(job.number) == (now.st_mtime_ns, now.st_ino):
                    continue
                if report := Report.read(job.file):
                    self._seen[job.number] = now.st_mtime_ns, now.st_ino
                    self.reports[job.number] = report
                    self._take(report)

    def _take(self, report: Report) -> None:
        for cell, shard, whole, outcome in report.ended:
            if self._results.take(cell, shard, outcome, whole=whole) and whole and self._aloud:
                announce(outcome, label(cell, self._total))
