"""Tests of `measure_cell` and `deliver_finished`: one cell that two processes measure, or that a job leaves on disk."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from rbptrack import engine, sweep
from rbptrack.config.paths import embedded
from rbptrack.sweep.measuring import deliver_finished, measure_cell
from rbptrack.sweep.outcomes import Failed, Measured
from rbptrack.tracking import Store
from tests.sweep.conftest import Configs, raising


def test_measure_cell_in_two_threads_measures_once(store: Store, configs: Configs) -> None:
    """The second thread waits for the lock of the first, and then finds the cell measured."""
    cell = sweep.resolve(*configs())
    outcomes: list[sweep.Outcome] = []

    def measure() -> None:
        outcomes.append(measure_cell(cell, Store()))

    threads = [threading.Thread(target=measure) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Found", "Measured"]
    assert len(list(store.measurements.search(""))) == 1


def test_deliver_finished_delivers_the_folder_of_a_job_and_removes_it(store: Store, configs: Configs) -> None:
    cell = sweep.resolve(*configs())
    measure_cell(cell, store, deliver=False)
    outcome = deliver_finished(cell, store)
    assert isinstance(outcome, Measured)
    assert outcome.run_id == store.find(cell.fingerprint)
    assert not cell.folder.exists()
    assert deliver_finished(cell, store) is None


def test_deliver_finished_logs_the_reason_why_a_job_failed(
    store: Store, configs: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = sweep.resolve(*configs())
    monkeypatch.setattr(engine, "measure", raising(RuntimeError("no luck")))
    assert isinstance(measure_cell(cell, store, deliver=False), Failed)
    assert not list(store.measurements.search("attributes.status = 'FAILED'"))
    outcome = deliver_finished(cell, store)
    assert isinstance(outcome, Failed)
    assert "no luck" in outcome.message
    assert len(list(store.measurements.search("attributes.status = 'FAILED'"))) == 1


def test_measure_cell_with_deliver_false_leaves_the_measurement_on_disk(store: Store, configs: Configs) -> None:
    """Hydra's launchers call `measure_cell` without a sweep."""
    cell = sweep.resolve(*configs("deliver=false"))
    outcome = measure_cell(cell, store)
    assert isinstance(outcome, Measured)
    assert not outcome.run_id
    assert (cell.folder / "record.json").exists()
    assert not list(store.measurements.search(""))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_measure_cell_fails_and_keeps_no_ranks_if_a_file_changes_meanwhile(
    name: str, configs: Configs, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(embedded("models/6k"), tmp_path / "mine")
    cell = sweep.resolve(*configs("model=./mine", f"model.tokenizer={embedded('tokenizer')}"))
    measure = engine.measure

    def measure_and_change(*args: Any, **options: Any) -> Any:
        measured = measure(*args, **options)
        (tmp_path / "mine" / name).write_bytes(b"other")
        return measured

    monkeypatch.setattr(engine, "measure", measure_and_change)
    outcome = measure_cell(cell, store, deliver=False)
    assert isinstance(outcome, Failed)
    assert name in outcome.message
    assert not cell.folder.exists()
