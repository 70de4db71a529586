"""Jobs and files of cells for tests."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rbptrack.analysis.executors import Job
from rbptrack.config.request import measuring, sweep_of
from rbptrack.config.schema import Config
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.tasks import Cell, Task, Tasks, shards


def asked(*words: str) -> list[Config]:
    """The cells of a command line."""
    return sweep_of(measuring(["model=nano/6k", "dataset=pydocs", *words]))[1]


def job(number: int = 0, *, folder: Path = Path(), cells: Path | None = None, **options: Any) -> Job:
    """A job that works in a folder."""
    cells = cells or folder / "cells-0.json"
    argv = (sys.executable, "-m", "rbptrack.sweep.job", str(cells), str(number))
    defaults: dict[str, Any] = {"argv": argv, "log": folder / f"job-{number}.log", "environment": {}}
    return Job(number=number, sweep="rbptrack-test", folder=folder, cells=cells, **defaults | options)


def tasks_of(cells: Sequence[Config]) -> list[Task]:
    """Every task of some cells."""
    return [Task(number, shard, cell) for number, cell in enumerate(cells) for shard in shards(cell)]


def cells_file(folder: Path, cells: Sequence[Config], *, gpus: float = 0.0) -> Path:
    """Write the file from which jobs pull."""
    resolver = Resolver()
    resolved = {number: Cell(cell, resolver.resolve(cell).fingerprint) for number, cell in enumerate(cells)}
    order = [(task.number, task.shard.number) for task in tasks_of(cells)]
    Tasks(len(cells), gpus, folder, resolved, order).write(folder / "cells-0.json")
    return folder / "cells-0.json"
