"""Write and run job files, and deliver what jobs leave on disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import short_path
from rbptrack.console.output import print_text
from rbptrack.console.progress import spinner
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.cost import Planner
from rbptrack.sweep.grouping import group_into_jobs
from rbptrack.sweep.measuring import deliver_finished, failure_file, measure_cells
from rbptrack.sweep.outcomes import Failed, Found, Outcome
from rbptrack.tracking import Store

ReportOutcome = Callable[[int, Outcome], None]
"""A function that a backend calls when a cell has ended. It gets the cell's number and its outcome."""

OWNER_ONLY = 0o600
"""The permissions of job files and scripts."""

_OWNER_ONLY_FOLDER = 0o700
_PATIENCE_SECONDS = 60.0  # how long to wait for another command that is delivering a measurement
_CELLS = TypeAdapter(Annotated[list[Cell], Field(min_length=1)])


def check_cells(
    cells: Mapping[int, Cell], check: Callable[[Cell], object], report_outcome: ReportOutcome
) -> dict[int, Cell]:
    """Check cells, and report those that do not pass as failed. Returns the cells that pass, by number."""
    passed = {}
    with spinner("checking models and tokenizers"):
        for number, cell in cells.items():
            try:
                check(cell)
            except RbptrackError as error:
                report_outcome(number, Failed.from_error(cell.title, error))
            else:
                passed[number] = cell
    return passed


def write_jobs(
    cells: Mapping[int, Cell],
    report_outcome: ReportOutcome,
    folder: Path,
    planner: Planner,
    *,
    num_parallel: int = 0,
    max_jobs: int = 0,
) -> tuple[list[Path], dict[int, Cell]]:
    """Write job files for the cells with readable models. Returns the files, and these cells by number."""
    readable_cells = check_cells(cells, planner.seconds, report_outcome)
    timed = [(cell, planner.seconds(cell)) for cell in readable_cells.values()]
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_OWNER_ONLY_FOLDER)
    files = []
    for number, job_cells in enumerate(group_into_jobs(timed, num_parallel=num_parallel, max_jobs=max_jobs)):
        files.append(folder / f"{number}.json")
        write_job(files[-1], job_cells)
    return files, readable_cells


def write_job(path: Path, cells: Sequence[Cell]) -> None:
    """Write a job file: the cells that one process measures, as JSON."""
    write_whole(path, _CELLS.dump_json(list(cells), indent=1), OWNER_ONLY)


def read_job(path: Path) -> list[Cell]:
    """Read the cells of a job file. Raises BadInput if the file cannot be read, or is not a job file."""
    try:
        return _CELLS.validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: the job file cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise BadInput(f"{path} is not a job file of rbptrack") from error


def run_job(path: Path) -> int:
    """Measure the cells of a job file and leave the finished measurements on disk.

    Returns:
        The exit code: 1 if a cell failed, else 0.

    Raises:
        BadInput: the file cannot be read, or is not a job file.

    """
    from rbptrack.sweep.load import Loader

    cells = read_job(path)
    tracking = cells[0].config.tracking  # all cells of a sweep have the same store
    store = Store(tracking.uri, tracking.experiment)
    outcomes: list[Outcome] = []
    for _, outcome in measure_cells(dict(enumerate(cells)), store, loader=Loader(), deliver=False):
        print_text(outcome.line())
        outcomes.append(outcome)
    return int(any(isinstance(outcome, Failed) for outcome in outcomes))


class Collector:
    """Delivers the measurements that jobs finish, and reports the outcome of each cell.

    Args:
        cells: the cells that jobs measure, by their number in the sweep.
        store: the tracking store.
        folder: the folder with the output of the jobs.
        report_outcome: called once for each cell, when it has ended.

    """

    def __init__(self, cells: Mapping[int, Cell], store: Store, folder: Path, report_outcome: ReportOutcome) -> None:
        self._cells = dict(cells)
        self._store = store
        self._folder = folder
        self._report_outcome = report_outcome
        # With force=true: earlier runs of these cells, which the jobs did not make. None: unknown.
        self._earlier_run_ids: set[str] | None = set()
        for cell in cells.values():
            failure_file(cell).unlink(missing_ok=True)  # an earlier job may have left one
        if any(cell.config.force for cell in cells.values()):
            run_id_by_number = self._find_run_ids()
            self._earlier_run_ids = None if run_id_by_number is None else set(run_id_by_number.values())

    def collect(self, patience: float = 0) -> None:
        """Deliver the measurements that are finished now, and report their outcomes.

        Args:
            patience: how many seconds to wait for another process that is delivering a measurement.

        """
        for number, cell in list(self._cells.items()):
            outcome = deliver_finished(cell, self._store, patience=patience)
            if outcome is not None:
                self._end_cell(number, outcome)

    def finish(self) -> None:
        """Deliver the last measurements after all jobs have ended, and report the outcomes of all remaining cells.

        A cell without a measurement on disk has failed, unless another command has delivered it meanwhile.
        """
        self.collect(patience=_PATIENCE_SECONDS)
        if self._earlier_run_ids is not None:
            for number, run_id in (self._find_run_ids() or {}).items():
                if run_id not in self._earlier_run_ids:
                    self._end_cell(number, Found(self._cells[number].title, run_id))
        message = (
            "its job ended without a result. It was killed, or took too much time or memory: see "
            f"{short_path(self._folder)}/*.log, and run the command again to continue"
        )
        for number, cell in list(self._cells.items()):
            self._end_cell(number, Failed(cell.title, message))

    def _find_run_ids(self) -> dict[int, str] | None:
        """Return the run ID of each remaining cell that the store has, by number. Return None if that is unknown now.

        Cells with `deliver=false` are not looked up.
        """
        fingerprints = {cell.fingerprint for cell in self._cells.values() if cell.config.deliver}
        try:
            run_ids = self._store.find_all(fingerprints)
        except RbptrackError:  # the store is away, or a password has expired
            return None
        run_id_by_number = {}
        for number, cell in self._cells.items():
            if cell.fingerprint in run_ids:
                run_id_by_number[number] = run_ids[cell.fingerprint]
        return run_id_by_number

    def _end_cell(self, number: int, outcome: Outcome) -> None:
        del self._cells[number]
        self._report_outcome(number, outcome)


_POLL_SECONDS = 0.05  # how often to ask whether a process has ended
_COLLECT_SECONDS = 1.0  # how often to look for finished measurements, whose folders may be on a network


def wait_for_an_end(processes: Collection[subprocess.Popen[Any]]) -> None:
    """Wait until one of the processes has ended, but at most a second."""
    deadline = time.monotonic() + _COLLECT_SECONDS
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        time.sleep(_POLL_SECONDS)
