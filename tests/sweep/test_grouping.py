"""Tests of how cells are grouped into jobs."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rbptrack import sweep
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.grouping import group_into_jobs
from tests.sweep.conftest import Configs


def sizes_and_datasets(jobs: list[list[Cell]]) -> list[list[str]]:
    """Name the cells of each job, such as `6k pydocs`."""
    return [[f"{cell.config.model.size} {cell.config.dataset.name}" for cell in job] for job in jobs]


@pytest.fixture
def cells_and_seconds(configs: Configs) -> list[tuple[Cell, float]]:
    """Pairs of a cell and its expected seconds: three models on two datasets. The numbers are invented."""
    seconds = {"6k": 10.0, "15k": 100.0, "38k": 1000.0}
    cells = [sweep.resolve(config) for config in configs("model=nano/6k,nano/15k,nano/38k", "dataset=pydocs,stdlib")]
    return [(cell, seconds[cell.config.model.size]) for cell in cells]


def test_group_into_jobs_makes_a_job_per_fast_model_and_per_dataset_of_a_slow_one(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    assert sizes_and_datasets(group_into_jobs(cells_and_seconds)) == [
        ["38k pydocs"],
        ["38k stdlib"],
        ["15k pydocs", "15k stdlib"],
        ["6k pydocs", "6k stdlib"],
    ]


def test_group_into_jobs_puts_all_fast_models_into_one_job_if_one_runs_at_a_time(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    *jobs_of_slow_model, fast_job = sizes_and_datasets(group_into_jobs(cells_and_seconds, num_parallel=1))
    assert jobs_of_slow_model == [["38k pydocs"], ["38k stdlib"]]
    assert sorted(fast_job) == ["15k pydocs", "15k stdlib", "6k pydocs", "6k stdlib"]


def test_group_into_jobs_uses_all_gpus_for_one_fast_model_on_several_datasets(configs: Configs) -> None:
    cells = [sweep.resolve(config) for config in configs("model=nano/6k", "dataset.seq_len=64,65,66,67")]
    jobs = group_into_jobs([(cell, 100.0) for cell in cells], num_parallel=4)
    assert [len(job) for job in jobs] == [1, 1, 1, 1]


def test_group_into_jobs_starts_one_process_for_seconds_of_work(cells_and_seconds: list[tuple[Cell, float]]) -> None:
    assert len(group_into_jobs([(cell, 0.5) for cell, _ in cells_and_seconds], num_parallel=1)) == 1


def test_group_into_jobs_gives_a_cell_of_unknown_time_a_job_of_its_own(
    cells_and_seconds: list[tuple[Cell, float]],
) -> None:
    assert len(group_into_jobs([(cell, math.nan) for cell, _ in cells_and_seconds])) == 6


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), num_parallel=st.integers(0, 7), max_jobs=st.integers(1, 7))
def test_group_into_jobs_keeps_each_cell_once_in_at_most_so_many_jobs(
    cells_and_seconds: list[tuple[Cell, float]], data: st.DataObject, num_parallel: int, max_jobs: int
) -> None:
    times = st.floats(0, 1e6) | st.sampled_from([0.0, math.nan])
    timed = [(cell, data.draw(times)) for cell, _ in cells_and_seconds]
    jobs = group_into_jobs(timed, num_parallel=num_parallel, max_jobs=max_jobs)
    assert len(jobs) <= max_jobs
    assert all(jobs)
    assert sorted(cell.fingerprint for job in jobs for cell in job) == sorted(cell.fingerprint for cell, _ in timed)
