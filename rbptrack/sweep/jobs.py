"""Jobs of a launcher: which cells each measures, as a file that says all a process on another machine needs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rbptrack.config.schema import Config, Group

Measure = Callable[[Config, Path, str], None]


def grouped(cells: Sequence[Config], group: Group) -> list[list[int]]:
    """The numbers of the cells of each job, in the order of the cells."""
    jobs: dict[object, list[int]] = {}
    for number, cell in enumerate(cells):
        model = OmegaConf.to_yaml(OmegaConf.structured(cell.model))
        jobs.setdefault(number if group is Group.cell else model, []).append(number)
    return list(jobs.values())


def write(folder: Path, cells: Sequence[Config], numbers: Sequence[Sequence[int]]) -> list[Path]:
    """Write a file for each job; returns them.

    Args:
        folder: of the sweep, which every machine sees.
        cells: all of the sweep.
        numbers: the cells of each job.

    """
    folder.mkdir(parents=True, exist_ok=True)
    before = len(list(folder.glob("job-*.yaml")))
    files = []
    for job, mine in enumerate(numbers):
        said = [{"number": n, "config": OmegaConf.structured(cells[n])} for n in mine]
        file = folder / f"job-{before + job}.yaml"
        OmegaConf.save({"cwd": str(Path.cwd()), "total": len(cells), "cells": said}, file)
        files.append(file)
    return files


def ended(folder: Path) -> set[int]:
    """The numbers of the cells that have an outcome."""
    return {int(path.parent.name) for path in folder.glob("*/outcome.json")}


def run(composed: DictConfig, measure: Measure) -> None:
    """Measure a job's cells that have no outcome yet, each on its own; what is printed goes to a file beside the job's.

    Args:
        composed: a config whose `launch.job` names the job's file.
        measure: measures one cell and leaves its outcome in a folder, with a label for its progress.

    """
    file = Path(composed.launch.job)
    said: Any = OmegaConf.load(file)
    os.chdir(said.cwd)  # Ray's workers begin elsewhere
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    with file.with_suffix(".log").open("a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        for cell in said.cells:
            folder = file.parent / str(cell.number)
            folder.mkdir(exist_ok=True)
            if not (folder / "outcome.json").exists():
                config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), cell.config))
                assert isinstance(config, Config)  # noqa: S101
                measure(config, folder, f"[{cell.number + 1}/{said.total}]")


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # unwinds, so that the run in progress is closed as KILLED
