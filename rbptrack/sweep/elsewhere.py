"""A sweep's cells as jobs for an executor: cut, written into the files from which jobs pull, and submitted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rbptrack.analysis.executors import Executor, Job
from rbptrack.base.addresses import login_variables
from rbptrack.base.words import short_path
from rbptrack.config.schema import Config
from rbptrack.console.output import complain, say
from rbptrack.sweep.drive import Drive
from rbptrack.sweep.reports import Inbox
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.resources import Pool, Resources
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Cell, Tasks


def prepared(
    executor: Executor,
    cells: Sequence[Config],
    resolved: Sequence[Resolved],
    results: Results,
    *,
    folder: Path,
    sweep: str,
) -> tuple[list[Config], Drive]:
    """Write the files from which jobs pull, and check that the jobs can be had.

    Args:
        executor: of the jobs.
        cells: of the sweep; those that have ended by the results are left out.
        resolved: the same, resolved.
        results: how cells have ended.
        folder: of the sweep's jobs; every machine sees it.
        sweep: its name.

    Returns:
        The cells as they were cut, and the jobs, ready to be submitted.

    Raises:
        BadInput: no machine could ever run such a job.

    """
    resources = Resources(executor, cells, resolved)
    pools = resources.pools(results.cells)
    jobs: list[Job] = []
    for place, pool in enumerate(pools):
        path = folder / f"cells-{place}.json"
        _write(path, pool, resolved, total=len(cells))
        numbers = range(len(jobs), len(jobs) + pool.jobs)
        jobs += [_job(number, path, pool, executor, cells[0], f"rbptrack-{sweep}") for number in numbers]
    executor_says = executor.check(jobs)
    if executor_says:
        say(f"{executor_says}; what they print: {short_path(str(folder))}/job-*.log")
    tasks = {folder / f"cells-{place}.json": pool.tasks for place, pool in enumerate(pools)}
    inbox = Inbox(results, total=len(cells), aloud=True)

    def tell(line: str) -> None:
        complain(line if line.startswith("launch=") else f"launch={executor.name}: {line}")

    return resources.cells, Drive(executor, tasks, jobs, results, inbox, tell)


def _write(path: Path, pool: Pool, resolved: Sequence[Resolved], *, total: int) -> None:
    """Write a pool's tasks into a file, with all that a job needs to know."""
    cells = {task.number: Cell(task.config, resolved[task.number].fingerprint) for task in pool.tasks}
    order = [(task.number, task.shard.number) for task in pool.tasks]
    Tasks(total, pool.gpus, Path.cwd(), cells, order, resolved[0].pinned).write(path)


def _job(number: int, cells: Path, pool: Pool, executor: Executor, config: Config, sweep: str) -> Job:
    return Job(
        number=number,
        sweep=sweep,
        argv=(sys.executable, "-m", "rbptrack.sweep.job", str(cells), str(number)),
        folder=Path.cwd(),
        cells=cells,
        log=cells.with_name(f"job-{number}.log"),
        environment={},
        secrets=tuple(login_variables(config.tracking.uri)),
        gpus=pool.gpus,
        cpus=executor.cpus,
        memory=executor.memory,
        minutes=executor.minutes,
    )
