"""Tests of job files."""

from __future__ import annotations

from pathlib import Path

from rbptrack import sweep
from rbptrack.sweep.jobs import run_job, write_job
from rbptrack.tracking import Outbox, Store
from tests.sweep.conftest import Configs


def test_run_job_measures_its_cells_and_leaves_their_folders(store: Store, configs: Configs, tmp_path: Path) -> None:
    cells = [sweep.resolve(config) for config in configs("dataset=pydocs,stdlib")]
    write_job(tmp_path / "0.json", cells)
    assert run_job(tmp_path / "0.json") == 0
    assert all((cell.folder / "record.json").exists() for cell in cells)
    assert not list(store.measurements.search(""))
    assert len(Outbox(store).deliver_waiting()) == 2
