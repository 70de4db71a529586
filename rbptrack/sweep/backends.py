"""Measure the cells of a sweep in this process, on the GPUs of this machine, or as one SLURM array.

`Gpus` and `Slurm` write the cells into job files. `rbptrack job FILE` measures the cells of one file and leaves the
finished measurements on disk. It does not use the tracking store: the process that launched the jobs delivers the
measurements as they appear. The store may therefore be a file that only this process can reach. If a job ends early,
run the command again to continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rbptrack.base.escape import file_part
from rbptrack.config.paths import mlruns_folder
from rbptrack.config.schema import Config, Launch
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.gpus import Gpus
from rbptrack.sweep.jobs import ReportOutcome, check_cells
from rbptrack.sweep.measuring import measure_cells
from rbptrack.sweep.slurm import Slurm
from rbptrack.tracking import Store


class Backend(Protocol):
    """A place where the cells of a sweep are measured."""

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Measure cells. Returns when all of them have ended.

        Args:
            cells: the cells, by their number in the sweep.
            report_outcome: called once for each cell, when it has ended.

        """


@dataclass(frozen=True)
class Local:
    """Measures one cell after the other in this process."""

    store: Store

    def run(self, cells: Mapping[int, Cell], report_outcome: ReportOutcome) -> None:
        """Check all cells first, then measure the cells that passed the check."""
        from rbptrack.sweep.load import Loader

        loader = Loader()
        readable_cells = check_cells(cells, loader.check, report_outcome)
        for number, outcome in measure_cells(readable_cells, self.store, loader=loader):
            report_outcome(number, outcome)


def make_backend(settings: Config, store: Store, name: str) -> Backend:
    """Make the backend that a configuration asks for.

    Args:
        settings: the configuration, of which `launch` is read.
        store: the tracking store.
        name: the name of the folder for job files: the sweep, or a fingerprint.

    """
    launch = settings.launch
    if launch.kind is Launch.local:
        return Local(store)
    folder = mlruns_folder() / "launch" / file_part(name)
    if launch.kind is Launch.gpus:
        return Gpus(store, folder, launch.gpus)
    if launch.kind is Launch.slurm:
        return Slurm(store, folder, launch.options, launch.show)
    raise NotImplementedError(f"launch={launch.kind.value} has no backend")
