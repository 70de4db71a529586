"""Measure one cell in a folder of its own, under a lock, and deliver the measurement to the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import duration
from rbptrack.base.process import raise_for_last_signal
from rbptrack.console.output import print_text
from rbptrack.measurement.files import RECORD_FILE
from rbptrack.measurement.record import read_measurement
from rbptrack.sources.manifest import check_unchanged
from rbptrack.sweep import lookups
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.loaded import measure_loaded
from rbptrack.sweep.outcomes import Failed, Found, Measured, Outcome
from rbptrack.tracking import Outbox, Store

if TYPE_CHECKING:  # these modules import torch and transformers, which are loaded only to run a model
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Engine, Ranked
    from rbptrack.sweep.load import Loader


def measure_cells(
    cells: Mapping[int, Cell], store: Store, *, loader: Loader, deliver: bool = True
) -> Iterator[tuple[int, Outcome]]:
    """Measure cells one after the other. At the end, print where the time went.

    While one cell is measured on a GPU, the texts of the next are tokenized.

    Args:
        cells: the cells, by number.
        store: the tracking store.
        loader: loads models and texts.
        deliver: whether finished measurements are delivered. If it is false, they stay on disk.

    Yields:
        The number and the outcome of each cell.

    """
    numbers = list(cells)
    for i, (number, cell) in enumerate(cells.items()):
        next_cell = cells[numbers[i + 1]] if i + 1 < len(numbers) else None
        yield number, measure_cell(cell, store, loader=loader, deliver=deliver, next_cell=next_cell)
    if loader.seconds:
        parts = [f"{part} {duration(seconds)}" for part, seconds in loader.seconds.items()]
        print_text(f"time: {', '.join(parts)}")


def measure_cell(
    cell: Cell, store: Store, *, loader: Loader | None = None, deliver: bool = True, next_cell: Cell | None = None
) -> Outcome:
    """Measure one cell and deliver the measurement, unless the store has it already.

    No error is raised. If the measurement fails, the outcome is `Failed`.

    Args:
        cell: the cell to measure.
        store: the tracking store.
        loader: loads models and texts. Pass one loader for several cells, because it keeps what it has loaded.
        deliver: if this or `deliver` in the cell's configuration is false, the store is neither read nor written, and
            the measurement stays on disk.
        next_cell: a cell that is measured after this one. On a GPU, its texts are tokenized meanwhile.

    """
    from rbptrack.sweep.load import Loader

    loader = loader or Loader()
    deliver = deliver and cell.config.deliver
    try:
        with _hold_lock(cell):
            if deliver and not cell.config.force and (run_id := _find_run_id(cell, store)):
                return Found(cell.title, run_id)
            if not (cell.folder / RECORD_FILE).exists():
                _measure(cell, store, loader, next_cell)
            if not deliver:
                return _read_outcome(cell)
            with loader.timed("delivery"):
                return _deliver(cell, store)
    except Exception as error:
        raise_for_last_signal()
        failed = Failed.from_error(cell.title, error)
        if deliver:
            _log_failure(cell, store, failed.message)
        else:
            _write_failure(cell, failed.message)
        return failed


def deliver_finished(cell: Cell, store: Store, *, patience: float = 0) -> Outcome | None:
    """Deliver a measurement that another process has finished, or log the failure of that process.

    If `deliver` in the cell's configuration is false, the store is not written, and the measurement stays on disk. No
    error is raised. If the delivery fails, the outcome is `Failed`.

    Args:
        cell: the cell that the other process measures.
        store: the tracking store.
        patience: how many seconds to wait for a process that holds the lock of the cell.

    Returns:
        The outcome. None if the other process is still measuring, or if another command delivers the measurement.

    """
    try:
        if failure_file(cell).exists():
            message = failure_file(cell).read_text()
            if cell.config.deliver:
                failure_file(cell).unlink()
                _log_failure(cell, store, message)
            return Failed(cell.title, message)
        if not (cell.folder / RECORD_FILE).exists():
            return None
        with FileLock(_lock_file(cell), timeout=patience):
            return _deliver(cell, store) if cell.config.deliver else _read_outcome(cell)
    except (Timeout, FileNotFoundError):
        return None
    except Exception as error:
        raise_for_last_signal()
        return Failed.from_error(cell.title, error)


def _log_failure(cell: Cell, store: Store, message: str) -> None:
    """Log a FAILED run that says why a cell failed. Does nothing if the store does not answer."""
    with suppress(RbptrackError):
        store.log_failure(cell.title, cell.description, message)


def _write_failure(cell: Cell, message: str) -> None:
    """Write why a cell failed to a file. The process that launched this job reads the file."""
    with suppress(OSError):
        failure_file(cell).parent.mkdir(parents=True, exist_ok=True)
        write_whole(failure_file(cell), message)


def failure_file(cell: Cell) -> Path:
    """Return the path of the file in which a job writes why a cell failed."""
    return cell.folder.with_name(f"{cell.fingerprint}.failed")


def _lock_file(cell: Cell) -> Path:
    return cell.folder.with_name(f"{cell.fingerprint}.lock")


@contextmanager
def _hold_lock(cell: Cell) -> Iterator[None]:
    """Hold the lock of a cell while a block runs. If another process holds the lock, print a line and wait."""
    cell.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_file(cell))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print_text(f"{cell.title}: waiting for another process in this folder that measures it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _find_run_id(cell: Cell, store: Store) -> str:
    """Return the run ID of a cell. It is empty if the store has no measurement of the cell, or cannot say so now.

    A password may expire during a sweep. The other cells are then measured, and wait on this disk.
    """
    try:
        return store.find(cell.fingerprint) or ""
    except RbptrackError:
        return ""


def _measure(cell: Cell, store: Store, loader: Loader, next_cell: Cell | None) -> None:
    """Measure a cell. Writes the ranks and the record into the folder of the cell."""
    began = time.time()
    failure_file(cell).unlink(missing_ok=True)
    engine, corpus, fields = _make_engine(cell, loader)
    if next_cell is not None and str(fields.get("device")).startswith("cuda"):
        loader.prepare(next_cell)  # on a CPU, tokenizing would take the cores from the model
    check_unchanged(cell.files)
    cell.folder.mkdir(exist_ok=True)
    Outbox(store).write_address(cell.folder)
    tokenizer = lookups.tokenizer(cell.tokenizer)
    description = {**cell.description, **fields}

    def finish(_: Ranked) -> dict[str, Any]:
        try:
            check_unchanged(cell.files)
        except BadInput:
            shutil.rmtree(cell.folder)  # weights on disk may have been read again while the ranks were computed
            raise
        return description

    with loader.timed("ranks"):
        measure_loaded(cell.folder, cell.config, engine, corpus, tokenizer, finish, began=began, notes=cell.notes)


def _make_engine(cell: Cell, loader: Loader) -> tuple[Engine, Corpus, dict[str, Any]]:
    """Make the engine for a cell. Returns it with the corpus and the fields that the model determines."""
    from rbptrack.engine import Served, Transformers
    from rbptrack.models.describe import describe_architecture, describe_model

    config = cell.config
    if cell.served is None:
        model, corpus = loader.load(cell)
        return Transformers(model, corpus, config.engine), corpus, describe_model(model)
    architecture = lookups.architecture(cell.weights)
    vocab_size = loader.check(cell).num_candidates
    corpus = loader.checked_corpus(cell)
    fields = describe_architecture(architecture, lookups.parameters(cell.weights))
    return Served(config.model, cell.served, corpus, vocab_size, config.engine), corpus, fields


def _deliver(cell: Cell, store: Store) -> Measured:
    """Log the finished measurement in the folder of a cell to the store.

    If the measurement cannot be delivered, for whatever reason, it waits on disk, and the next command delivers it.
    """
    measured = _read_outcome(cell)
    try:
        return replace(measured, run_id=Outbox(store).deliver(cell.folder))
    except MissingArtifact:  # a file of the folder is damaged: there is nothing to deliver
        raise
    except Exception as error:
        raise_for_last_signal()
        return replace(measured, delivery_error=Failed.from_error(cell.title, error).message)


def _read_outcome(cell: Cell) -> Measured:
    """Read the outcome of a cell from the finished measurement in its folder."""
    return Measured(cell.title, read_measurement(cell.folder).measurement)
