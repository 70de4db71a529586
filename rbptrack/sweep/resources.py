"""What jobs are given: GPUs by what models need, and tasks by how long they take."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rbptrack.analysis.executors import Executor
from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Config
from rbptrack.sweep.balance import cut
from rbptrack.sweep.devices import KNOWN, Device, data_sheet, guessed, sheet_of
from rbptrack.sweep.plan import MOST_GPUS, memory_and_gpus, operations, size_of, too_large
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.tasks import Task, shards

LONG_SECONDS = 4 * 3600.0  # that no task takes: a lost machine loses little
SHARE_OF_TIME = 0.8  # of a job's time limit that a task may take by the estimate
_ROOM = 2.0  # times what one sequence needs: batches are the faster the larger they are


@dataclass(frozen=True)
class Pool:
    """Tasks that need the same number of GPUs, those that take longest first, and how many jobs pull them."""

    gpus: float
    tasks: Sequence[Task]
    jobs: int
    longest: float  # seconds of the first task


class Resources:
    """GPUs and costs of the cells of one sweep.

    Args:
        executor: of the jobs.
        cells: of the sweep.
        resolved: the same, resolved.

    """

    def __init__(self, executor: Executor, cells: Sequence[Config], resolved: Sequence[Resolved]) -> None:
        self._executor = executor
        self._resolved = resolved
        self._kinds = list(executor.kinds())
        self.cells = [self._spread(cell, resolution) for cell, resolution in zip(cells, resolved, strict=True)]

    def pools(self, ended: Collection[int] = ()) -> list[Pool]:
        """Cut cells into tasks and divide them among jobs; cells that have ended, by their numbers, are left out.

        `cells` have their numbers of shards from then on.
        """
        by_gpus: dict[float, list[int]] = {}
        for number in range(len(self.cells)):
            if number not in ended:
                by_gpus.setdefault(self._gpus_of(number), []).append(number)
        return [self._pool(gpus, numbers) for gpus, numbers in sorted(by_gpus.items(), reverse=True)]

    def _pool(self, gpus: float, numbers: Sequence[int]) -> Pool:
        room = self._executor.room(gpus)
        seconds = {number: self._seconds(number) for number in numbers}
        most = min(LONG_SECONDS, SHARE_OF_TIME * 60 * (self._executor.minutes or math.inf))
        for number, count in cut(seconds, jobs=room, most=most).items():
            if self.cells[number].shards == "auto":
                self.cells[number] = replace(self.cells[number], shards=count)
        tasks = [Task(number, shard, self.cells[number]) for number in numbers for shard in shards(self.cells[number])]
        tasks.sort(key=lambda task: seconds[task.number] / task.shard.count, reverse=True)
        longest = seconds[tasks[0].number] / tasks[0].shard.count
        return Pool(gpus, tasks, min(room, len(tasks)), longest)

    def _seconds(self, number: int) -> float:
        """Estimate how long a cell takes one job; None if unknown."""
        resolved = self._resolved[number]
        device = self._device() or guessed(cpu=resolved.model.device == "cpu" or self._executor.gpus == 0)
        count = self._operations(resolved)
        return 0.0 if count is None else device.seconds(count, resolved.model)

    def _spread(self, cell: Config, resolved: Resolved) -> Config:
        """Return a cell whose model is spread over several GPUs where one is too small."""
        if self._executor.gpus == "auto" and not cell.model.device_map and self._gpus(resolved) > 1:
            return replace(cell, model=replace(cell.model, device_map="auto"))
        return cell

    def _gpus_of(self, number: int) -> float:
        """Return the number of GPUs that a job has for a cell, or its share of one."""
        if self._executor.gpus != "auto":
            return float(self._executor.gpus)
        return self._gpus(self._resolved[number])

    def _gpus(self, resolved: Resolved) -> float:
        if resolved.model.device == "cpu":
            return 0.0
        device = self._device()
        if device is None:
            raise self._unknown_device()
        needed, gpus = memory_and_gpus(resolved, device.memory_bytes, most=MOST_GPUS)
        if gpus is None:
            raise BadInput(too_large(resolved.model.name, resolved.model.dtype.value, device.name))
        share = math.ceil(10 * _ROOM * needed / device.memory_bytes) / 10
        if gpus > 1 or share > 0.5 or not self._executor.shares_gpus:
            return float(gpus)
        return share

    def _device(self) -> Device | None:
        if self._executor.device:
            return data_sheet(self._executor.device, option="launch.device")
        return sheet_of(self._kinds)

    def _unknown_device(self) -> BadInput:
        named = f" (they are called {', '.join(sorted(set(self._kinds)))})" if self._kinds else ""
        return BadInput(
            f"launch.gpus=auto: the kind of GPU of launch={self._executor.name} is unknown{named}. Name it, such as "
            f"launch.device=h100 ({', '.join(KNOWN)}), or measure on CPUs: launch.gpus=0"
        )

    def _operations(self, resolved: Resolved) -> float | None:
        return operations(resolved, size_of(resolved))
