"""Group the cells of a sweep into jobs of about equal time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rbptrack.sweep.cells import Cell

JOB_SECONDS = 300.0
"""Cells are grouped until a job is expected to take this long. The start of a job then hardly counts."""

_START_SECONDS = 15.0  # what the start of a process, its imports and its GPU take


def group_into_jobs(
    cells: Sequence[tuple[Cell, float]], *, num_parallel: int = 0, max_jobs: int = 0
) -> list[list[Cell]]:
    """Group cells into jobs by their expected time, and sort the jobs by it, the longest first.

    The cells of one model are divided into jobs of about `JOB_SECONDS`. If the number of jobs that run at the same time
    is known, the jobs are shorter if some would otherwise have nothing to do, and shorter jobs of all models share that
    number of jobs, because starting a process takes longer than measuring a small model.

    Args:
        cells: pairs of a cell and its expected seconds; NaN if unknown.
        num_parallel: the number of jobs that run at the same time; 0 if it is unknown.
        max_jobs: the largest number of jobs; 0 for any number.

    """
    timed = [(cell, JOB_SECONDS if math.isnan(seconds) else seconds) for cell, seconds in cells]
    enough = JOB_SECONDS
    if num_parallel:
        enough = min(enough, max(_START_SECONDS, _seconds(timed) / num_parallel))
    jobs: list[_Job] = []
    for _, cells_of_model in groupby(sorted(timed, key=_by_model), key=_by_model):
        jobs.append([])
        for cell in sorted(cells_of_model, key=lambda pair: -pair[1]):
            if _seconds(jobs[-1]) >= enough:
                jobs.append([])
            jobs[-1].append(cell)
    short = [job for job in jobs if _seconds(job) < enough]
    if 0 < num_parallel < len(short):
        jobs = [job for job in jobs if _seconds(job) >= enough] + _share(short, num_parallel)
    if 0 < max_jobs < len(jobs):
        jobs = _share(jobs, max_jobs)
    return [[cell for cell, _ in job] for job in sorted(jobs, key=_seconds, reverse=True)]


_Job = list[tuple[Cell, float]]  # cells with their expected seconds


def _seconds(job: _Job) -> float:
    return sum(seconds for _, seconds in job)


def _by_model(pair: tuple[Cell, float]) -> str:
    return repr((pair[0].config.model, pair[0].config.reference))


def _share(jobs: Sequence[_Job], number: int) -> list[_Job]:
    """Join jobs to a smaller number of jobs that take about equally long."""
    shared: list[_Job] = [[] for _ in range(number)]
    for job in sorted(jobs, key=_seconds, reverse=True):
        min(shared, key=lambda other: (_seconds(other), len(other))).extend(job)
    return shared
