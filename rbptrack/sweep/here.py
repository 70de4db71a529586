"""Tasks done in this process, with a bar over all of them."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.console.progress import SweepProgress
from rbptrack.sweep.resolved import Resolved
from rbptrack.sweep.results import Results
from rbptrack.sweep.tasks import Task
from rbptrack.sweep.work import work

_LEAST_WEIGHT = 2e6  # parameters whose measuring takes as long as what every cell takes beside it


def measure_here(tasks: Sequence[Task], results: Results, resolved: Sequence[Resolved], *, total: int) -> None:
    """Do tasks one after the other."""
    if len(tasks) == 1:
        work(tasks, results, lambda task: resolved[task.number], total=total)
        return
    with SweepProgress(lambda: [_weight(task, resolved[task.number]) for task in tasks]) as progress:
        work(progress.over(tasks), results, lambda task: resolved[task.number], total=total)


def _weight(task: Task, resolved: Resolved) -> float:
    """Estimate roughly how long a task takes compared with others."""
    return (_LEAST_WEIGHT + resolved.count_parameters().total) / task.shard.count
