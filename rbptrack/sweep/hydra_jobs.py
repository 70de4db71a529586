"""Cells run by what somebody chose of Hydra: a launcher, a sweeper or callbacks of it; each is a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from rbptrack.base.process import raise_if_stopped
from rbptrack.base.secrets import guard
from rbptrack.config.check import typed
from rbptrack.config.hydra_internals import BASIC
from rbptrack.config.request import Request
from rbptrack.sweep.channel import Inbox, Teller
from rbptrack.sweep.executors import Executor
from rbptrack.sweep.jobs import Job, Task, shards, work
from rbptrack.sweep.resolve import Resolver

CELLS = "RBPTRACK_CELLS"
"""The environment variable that tells processes of Hydra's launchers how many cells the sweep has."""


def wanted(request: Request) -> bool:
    """Whether somebody has chosen something of Hydra, on the command line or in a config."""
    if any(word.lstrip("+~").startswith(("hydra/", "hydra.")) for word in _own(request)):
        return True
    hydra = request.composer.hydra_settings(request.jobs()[0])
    return bool(hydra.callbacks) or any(hydra[name]["_target_"] != target for name, target in BASIC.items())


def _own(request: Request) -> list[str]:
    """The overrides, without those that only say what is composed."""
    return [word for word in request.overrides if not word.startswith(("hydra.searchpath=", "hydra.mode="))]


class HydraJobs(Executor):
    """Hydra runs the jobs while they are submitted, one for each cell."""

    def __init__(self, request: Request, inbox: Inbox, extra: Sequence[str]) -> None:
        self._request, self._inbox, self._extra = request, inbox, extra

    def submit(self, jobs: Sequence[Job]) -> None:
        """Let Hydra run a job for each cell; those are the jobs that it is given here."""
        os.environ[CELLS] = str(len(jobs))
        try:
            self._request.run_by_hydra(job, extra=self._extra)
        except SystemExit:  # also how Hydra ends after a job that failed, which the outcomes say better
            raise_if_stopped()
        finally:
            self._inbox.read(jobs)


def job(composed: DictConfig) -> None:
    """Hydra's job: one cell, of which the sweep is told through a file in its folder."""
    guard()
    hydra, config = HydraConfig.get(), typed(composed)
    config = replace(config, shards=1) if config.shards == "auto" else config
    folder, total = Path(hydra.runtime.output_dir), int(os.environ.get(CELLS, "1"))
    number = hydra.job.num if total > 1 else 0
    tasks = tuple(Task(number, shard, config) for shard in shards(config))
    teller = Teller(Job(number, tasks, 0, total, folder.parent / f"job-{number}.json", Path.cwd()))
    work(tasks, teller, lambda task: _resolver().resolve(task.config), total=total)
    teller.close()


@cache
def _resolver() -> Resolver:
    """Of this process: the cells that a launcher runs in it share what they name."""
    return Resolver()
