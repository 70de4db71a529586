"""Jobs as processes of this machine that begin one after the other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rbptrack.analysis.executors import Executor, Job, Phase, State


@dataclass(kw_only=True)
class Aside(Executor):
    """Run jobs as processes of this machine."""

    one_machine: ClassVar[bool] = True
    gpus: int | float | str = 0

    def __post_init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def room(self, gpus: float) -> int:
        return 1

    def check(self, jobs: Sequence[Job]) -> str:
        return f"{len(jobs)} processes of this machine"

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            with job.log.open("ab") as log:
                environment = {**os.environ, **job.environment}
                self._processes[job.number] = subprocess.Popen(
                    job.argv, cwd=job.folder, env=environment, stdout=log, stderr=log
                )

    def states(self) -> Mapping[int, State]:
        return {
            number: State(Phase.running if process.poll() is None else Phase.gone, f"exit code {process.returncode}")
            for number, process in self._processes.items()
        }

    def cancel(self) -> None:
        for process in self._processes.values():
            process.terminate()
            process.wait()
