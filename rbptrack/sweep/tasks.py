"""The file of resolved cells from which the jobs of a sweep pull, and who took what.

A task is a cell, or a shard of one. A job takes one by making a file of the task's number that nobody has made before,
which is atomic on network file systems too. What it took stays its own: begun again under its number, it goes on there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from rbptrack.base.files import write_whole
from rbptrack.config.schema import Config
from rbptrack.ranks.measurement import Shard
from rbptrack.sources.pin import Source


@dataclass(frozen=True)
class Task:
    """What a job does at a time: a cell, or one shard of it."""

    number: int  # of the cell in its sweep
    shard: Shard
    config: Config

    @property
    def title(self) -> str:
        """`pythia-70m / wiki`, or `pythia-70m / wiki, shard 3 of 8`."""
        return self.config.title if self.shard.count == 1 else f"{self.config.title}, {self.shard}"


@dataclass
class Cell:
    """A cell that was resolved where the sweep began."""

    config: Config
    fingerprint: str


@dataclass
class Tasks:
    """What one file holds.

    Attributes:
        total: cells of the sweep.
        gpus: that each job which pulls from this file has.
        folder: where jobs work.
        cells: by their numbers.
        order: of each task the numbers of its cell and shard; those that take longest come first.
        pinned: what the hub's names stood for when the sweep began (see `sweep.resolve.Resolver`).

    """

    total: int
    gpus: float
    folder: Path
    cells: dict[int, Cell]
    order: list[tuple[int, int]]
    pinned: list[tuple[tuple[str, ...], Source]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file of tasks."""
        return TypeAdapter(cls).validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Write the file; nobody has taken anything yet."""
        taken_folder(path).mkdir(parents=True)
        write_whole(path, TypeAdapter(type(self)).dump_json(self, warnings=False).decode())

    def __iter__(self) -> Iterator[Task]:
        for number, shard in self.order:
            config = self.cells[number].config
            yield Task(number, shards(config)[shard], config)


def shards(config: Config) -> list[Shard]:
    """Return the shards of a cell; `auto` is one as long as nothing has cut it."""
    count = 1 if config.shards == "auto" else int(config.shards)
    return [Shard(number, count) for number in range(count)]


def taken_folder(path: Path) -> Path:
    """Return the folder in which jobs take a file's tasks: one file for each task taken."""
    return path.with_suffix(".taken")


def takers(path: Path) -> dict[int, int]:
    """Return the number of the job that took each task, by the task's place in the file."""
    jobs = {}
    for file in taken_folder(path).iterdir():
        with suppress(ValueError):  # its job died in the moment between making and writing it
            jobs[int(file.name)] = int(file.read_text(encoding="utf-8"))
    return jobs


def left_for(path: Path, job: int) -> bool:
    """Return whether a job has something to do: a task that nobody has taken, or one of its own from before it was
    lost.
    """
    order = json.loads(path.read_text(encoding="utf-8"))["order"]
    jobs = takers(path)
    return len(list(taken_folder(path).iterdir())) < len(order) or job in jobs.values()


@dataclass
class Pull:
    """Takes tasks from a file for one job.

    Attributes:
        path: the file.
        job: the job's number.

    """

    path: Path
    job: int

    def tasks(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """Yield the tasks that the job is to do: those that it took before it was lost, then others until none is left.

        Tasks of the model that it has loaded come first; else the one that takes longest.
        """
        before = [place for place, job in sorted(takers(self.path).items()) if job == self.job]
        for place in before:
            yield tasks[place]
        model = tasks[before[-1]].config.model if before else None
        while True:
            taken = {int(file.name) for file in taken_folder(self.path).iterdir()}
            left = [place for place in range(len(tasks)) if place not in taken]
            if not left:
                return
            left.sort(key=lambda place: tasks[place].config.model != model)
            if self._take(left[0]):
                model = tasks[left[0]].config.model
                yield tasks[left[0]]

    def _take(self, place: int) -> bool:
        """Take a task, unless another job was first."""
        try:
            opened = os.open(taken_folder(self.path) / str(place), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(opened, "w") as file:
            file.write(str(self.job))
        return True
