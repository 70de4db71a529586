"""Jobs of a launcher: which cells each measures, as a file that says all a process on another machine needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rbptrack import interrupts, temporary
from rbptrack.config.schema import Config, Group
from rbptrack.measurement import Shard
from rbptrack.sweep.outcome import OUTCOME, shard_folder

Measure = Callable[[Config, Path, str, Shard], None]


@dataclass(frozen=True)
class Task:
    """What a job does at a time: a cell, by its number, or one shard of it."""

    number: int
    shard: Shard

    def ended(self, folder: Path) -> bool:
        """Whether the cell, or this shard, has an outcome in the sweep's folder."""
        return (folder / str(self.number) / OUTCOME).exists() or (self.folder(folder) / OUTCOME).exists()

    def folder(self, sweep: Path) -> Path:
        """Where its progress and its outcome are kept in a sweep's folder."""
        return shard_folder(sweep / str(self.number), self.shard)


def grouped(cells: Sequence[Config], group: Group) -> list[list[Task]]:
    """The tasks of each job, in the order of the cells; the shards of a cell are in different jobs."""
    jobs: dict[object, list[Task]] = {}
    for number, cell in enumerate(cells):
        model = OmegaConf.to_yaml(OmegaConf.structured(cell.model))
        for shard in shards(cell):
            together = number if group is Group.cell else model
            jobs.setdefault((together, shard), []).append(Task(number, shard))
    return list(jobs.values())


def shards(cell: Config) -> list[Shard]:
    """The shards of a cell."""
    return [Shard(number, cell.shards) for number in range(cell.shards)]


def write(folder: Path, cells: Sequence[Config], jobs: Sequence[Sequence[Task]]) -> list[Path]:
    """Write a file for each job; returns them.

    Args:
        folder: of the sweep, which every machine sees.
        cells: all of the sweep.
        jobs: the tasks of each.

    """
    folder.mkdir(parents=True, exist_ok=True)
    before = len(list(folder.glob("job-*.yaml")))
    files = []
    for job, mine in enumerate(jobs):
        said = [
            {"number": task.number, "shard": asdict(task.shard), "config": OmegaConf.structured(cells[task.number])}
            for task in mine
        ]
        file = folder / f"job-{before + job}.yaml"
        OmegaConf.save({"cwd": str(Path.cwd()), "total": len(cells), "cells": said}, file)
        files.append(file)
    return files


def run(composed: DictConfig, measure: Measure) -> None:
    """Do a job's tasks that have no outcome yet, each on its own; what is printed goes to a file beside the job's.

    Args:
        composed: a config whose `launch.job` names the job's file.
        measure: measures one cell, or one shard of it, and leaves its outcome in a folder, with a label for its
            progress.

    """
    file = Path(composed.launch.job)
    said: Any = OmegaConf.load(file)
    os.chdir(said.cwd)  # Ray's workers begin elsewhere
    interrupts.install()
    with (
        temporary.for_this_process(),
        file.with_suffix(".log").open("a", buffering=1) as log,
        redirect_stdout(log),
        redirect_stderr(log),
    ):
        for cell in said.cells:
            task = Task(cell.number, Shard(**cell.shard))
            folder = file.parent / str(task.number)
            folder.mkdir(exist_ok=True)
            if not task.ended(file.parent):
                config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), cell.config))
                assert isinstance(config, Config)  # noqa: S101
                measure(config, folder, f"[{task.number + 1}/{said.total}]", task.shard)
