"""How jobs elsewhere tell their sweep what becomes of their cells: one small file each, in a folder that both see.

The file is written whole, so that a reader never finds half of it, and it outlives its job: one that begins again does
not repeat finished work. It is the same for every executor, knows shards that have no run in the store yet, and
goes on while the store is away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from rbptrack.analysis.executors import Job
from rbptrack.base.files import write_whole
from rbptrack.console.progress import CellState
from rbptrack.sweep.outcome import Outcome, announce
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task
from rbptrack.sweep.work import label


@dataclass
class Report:
    """What a job has told.

    Attributes:
        ended: of each task that ended: the numbers of its cell and its shard, whether its cell ended with it, and how.
        at_work: how far the present task is, if it has got anywhere; its cell's number before it.
        done: whether it has nothing more to tell.

    """

    ended: list[tuple[int, int, bool, Outcome]] = field(default_factory=list)
    at_work: tuple[int, CellState] | None = None
    done: bool = False

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a job's file; None where it is not there, cannot be read now, or is damaged."""
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except (OSError, ValueError):
            return None


def report_file(job: Job) -> Path:
    """Return the file in which a job reports on its tasks."""
    return job.log.with_suffix(".json")


class Teller:
    """The job's end of its file; what an earlier life of the job has told stays told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._report = Report.read(path) or Report()
        self._report.done = False
        self.got_on = False  # whether a task has ended in this life of the job
        self._write()

    def knows_end_of(self, task: Task) -> bool:
        """Return whether this job has told of the end of a task, or of its cell."""
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
        self.got_on = True
        self._write()

    def rest(self) -> None:
        """Tell that nothing is under way: the job may begin again."""
        self._report.at_work = None
        self._write()

    def close(self) -> None:
        """Tell that the last report was made."""
        self._report.at_work = None
        self._report.done = True
        self._write()

    def _write(self) -> None:
        write_whole(self._path, json.dumps(asdict(self._report)))


class Inbox:
    """The sweep's end of the files.

    `reports` holds the last of each job that has begun, by its number; `aloud` prints a line for each cell that ends.
    """

    def __init__(self, results: Results, *, total: int, aloud: bool) -> None:
        self.reports: dict[int, Report] = {}
        self._results = results
        self._total = total
        self._aloud = aloud
        self._seen: dict[Path, tuple[int, int]] = {}

    def read(self, jobs: Iterable[Job]) -> None:
        """Read the files of jobs that have told something new."""
        for job in jobs:
            if report := self.read_file(report_file(job)):
                self.reports[job.number] = report

    def read_file(self, path: Path) -> Report | None:
        """Read one file; None where it tells nothing new."""
        with suppress(OSError):  # it has not begun, or a network file system does not answer for a moment
            now = path.stat()
            if self._seen.get(path) != (now.st_mtime_ns, now.st_ino) and (report := Report.read(path)):
                self._seen[path] = now.st_mtime_ns, now.st_ino
                self._take(report)
                return report
        return None

    def _take(self, report: Report) -> None:
        for cell, shard, whole, outcome in report.ended:
            if self._results.take(cell, shard, outcome, whole=whole) and whole and self._aloud:
                announce(outcome, label(cell, self._total))
