"""Cells run by what somebody chose of Hydra: a launcher, a sweeper or callbacks of it; each is a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rbptrack.base.process import raise_if_stopped
from rbptrack.base.secrets import guard
from rbptrack.config.check import typed
from rbptrack.config.hydra_internals import BASIC
from rbptrack.config.request import Request
from rbptrack.sweep.reports import Inbox, Teller
from rbptrack.sweep.resolve import Resolver
from rbptrack.sweep.tasks import Task, shards
from rbptrack.sweep.work import work

CELLS = "RBPTRACK_CELLS"
"""The environment variable that tells processes of Hydra's launchers how many cells the sweep has."""


def wanted(request: Request) -> bool:
    """Return whether somebody has chosen something of Hydra, on the command line or in a config."""
    if any(word.lstrip("+~").startswith(("hydra/", "hydra.")) for word in _own(request)):
        return True
    hydra = request.composer.hydra_settings(request.jobs()[0])
    return bool(hydra.callbacks) or any(hydra[name]["_target_"] != target for name, target in BASIC.items())


def _own(request: Request) -> list[str]:
    """Return the overrides, without those that only choose configs."""
    return [word for word in request.overrides if not word.startswith(("hydra.searchpath=", "hydra.mode="))]


def run(request: Request, inbox: Inbox, folder: Path, *, total: int, extra: Sequence[str]) -> None:
    """Let Hydra run a job for each cell.

    Args:
        request: the command line.
        inbox: hears what becomes of the cells.
        folder: of the sweep's jobs.
        total: the number of cells.
        extra: further overrides.

    """
    os.environ[CELLS] = str(total)
    try:
        request.run_by_hydra(job, extra=extra)
    except SystemExit:  # also how Hydra ends after a job that failed, which the outcomes say better
        raise_if_stopped()
    finally:
        for number in range(total):
            inbox.read_file(_report_file(folder, number))


def job(composed: DictConfig) -> None:
    """Run one cell as Hydra's job; it reports to the sweep by a file in its folder."""
    guard()
    hydra = HydraConfig.get()
    config = typed(composed)
    total = int(os.environ.get(CELLS, "1"))
    number = hydra.job.num if total > 1 else 0
    tasks = [Task(number, shard, config) for shard in shards(config)]
    teller = Teller(_report_file(Path(hydra.runtime.output_dir).parent, number))
    work(tasks, teller, lambda task: _resolver().resolve(task.config), total=total)
    teller.close()


def _report_file(folder: Path, number: int) -> Path:
    return folder / f"job-{number}.json"


@cache
def _resolver() -> Resolver:
    """Return this process's resolver: the cells that a launcher runs in it share their downloads and models."""
    return Resolver()
