"""What each job is given: GPUs by what its models need. And what cells cost, by which they are divided and ordered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rbptrack.base.errors import BadInput
from rbptrack.config.schema import Config, LaunchConfig, Where
from rbptrack.sweep.devices import KNOWN, Device, data_sheet, sheet_of
from rbptrack.sweep.jobs import Task
from rbptrack.sweep.plan import MOST_GPUS, Size, memory_and_gpus, operations, size_of
from rbptrack.sweep.resolve import Resolved

LONG_SECONDS = 4 * 3600.0  # of one job; shards=auto brings it below
_SHARE_OF_TIME = 0.8  # of launch.time that a job may take by the estimate
_ROOM = 2.0  # times what one sequence needs: batches are the faster the larger they are


class Resources:
    """GPUs and costs of the cells of one sweep."""

    def __init__(
        self, launch: LaunchConfig, names: Sequence[str], cells: Sequence[Config], resolved: Sequence[Resolved]
    ) -> None:
        self._launch, self._names, self._resolved = launch, names, resolved
        self._sizes: dict[str, Size] = {}
        self.cells = [self._fitted(cell, resolution) for cell, resolution in zip(cells, resolved, strict=True)]

    def gpus(self, tasks: Sequence[Task]) -> float:
        """How many GPUs a job has for its tasks, or which share of one."""
        if self._launch.gpus != "auto":
            return float(self._launch.gpus)
        return max(self._gpus(self._resolved[task.number]) for task in tasks)

    def cost(self, tasks: Sequence[Task]) -> float:
        """Operations of a job, as far as they are known."""
        return sum((self._operations(self._resolved[t.number]) or 0.0) / t.shard.count for t in tasks)

    def _fitted(self, cell: Config, resolved: Resolved) -> Config:
        """A cell with the shards that its cost asks for, and spread over several GPUs where one is too small."""
        if cell.shards == "auto":
            cell = replace(cell, shards=self._shards(resolved))
        several = self._launch.gpus == "auto" and self._gpus(resolved) > 1
        if several and not cell.model.device_map:
            cell = replace(cell, model=replace(cell.model, device_map="auto"))
        return cell

    def _shards(self, resolved: Resolved) -> int:
        """So many that each takes less than a few hours, and than the time that SLURM gives a job."""
        most = LONG_SECONDS
        if self._launch.where is Where.slurm:
            most = min(most, _SHARE_OF_TIME * 60 * self._launch.time)
        operations = self._operations(resolved)
        if operations is None:
            return 1
        return max(1, math.ceil(self._device("shards").seconds(operations, resolved.model) / most))

    def _gpus(self, resolved: Resolved) -> float:
        if resolved.model.device == "cpu":
            return 0.0
        device = self._device("launch.gpus")
        needed, gpus = memory_and_gpus(resolved, device.memory_bytes, most=MOST_GPUS)
        if gpus is None:
            raise BadInput(
                f"launch.gpus=auto: no {device.name}, nor {MOST_GPUS} of them, hold {resolved.model.name}; "
                "model.dtype=bfloat16 halves it"
            )
        share = math.ceil(10 * _ROOM * needed / device.memory_bytes) / 10
        if gpus > 1 or share > 0.5 or self._launch.where is Where.slurm:  # which gives whole GPUs
            return float(gpus)
        return share

    def _device(self, option: str) -> Device:
        if self._launch.device:
            return data_sheet(self._launch.device, option="launch.device")
        if device := sheet_of(self._names):
            return device
        if self._launch.where is Where.gpus and not self._names:
            raise BadInput(f"{option}=auto: this machine has no GPU; launch.gpus=0 measures on CPUs")
        named = f" (they are called {', '.join(sorted(set(self._names)))})" if self._names else ""
        raise BadInput(
            f"{option}=auto: what GPUs launch={self._launch.where.value} has is not known here{named}: name the kind, "
            f"launch.device=h100. Options: {', '.join(KNOWN)}"
        )

    def _operations(self, resolved: Resolved) -> float | None:
        key = repr((resolved.dataset, resolved.texts.identity, resolved.tokenizer.name_or_path))
        if key not in self._sizes:
            self._sizes[key] = size_of(resolved)
        return operations(resolved, self._sizes[key])
