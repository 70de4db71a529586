"""Tests of `measure_cell` and `deliver_finished`: one cell that two processes measure, or that a job leaves on disk."""

from __future__ import annotations

import threading

import pytest

from rbptrack import engine, sweep
from rbptrack.sweep.measuring import Failed, Measured, deliver_finished, measure_cell
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
