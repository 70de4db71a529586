"""Measure one cell in a folder of its own, under a lock, and deliver the measurement to the store."""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from filelock import FileLock, Timeout

from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError, file_access_error, first_line
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import duration
from rbptrack.base.parquet import write_table
from rbptrack.base.process import raise_for_last_signal
from rbptrack.config.paths import cells_folder
from rbptrack.config.schema import Config, Rank
from rbptrack.console.output import print_text
from rbptrack.console.progress import token_bar
from rbptrack.measurement.build import from_ranks
from rbptrack.measurement.describe import config_yaml
from rbptrack.measurement.document import Measurement, measurement_title
from rbptrack.measurement.files import (
    CONFIG_FILE,
    DOCUMENTS_FILE,
    HISTOGRAM_FILE,
    RECORD_FILE,
    TOKENS_FILE,
    UNSCORED_FILE,
)
from rbptrack.measurement.record import MeasurementRecord, read_measurement
from rbptrack.sources.manifest import check_unchanged
from rbptrack.sweep.cells import Cell
from rbptrack.tracking import Outbox, Store

if TYPE_CHECKING:  # these modules import torch and transformers, which are loaded only to run a model
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine import Engine, Ranked
    from rbptrack.models.architecture import ParameterCounts
    from rbptrack.models.causal import CausalModel
    from rbptrack.sweep.load import Loader

log = logging.getLogger(__name__)

TITLE_WIDTH = 24
"""The width of the column of titles in the lines of a sweep, if no title is longer."""

_HIGH_CE_NATS = 0.5  # a CE above ln |V| by more than this gets a note; untrained weights stay below it


@dataclass(frozen=True)
class Measured:
    """The outcome of a cell that was measured.

    Attributes:
        title: the title of the cell.
        measurement: the measurement.
        run_id: the ID of the run in the store; empty if the measurement is not delivered.
        delivery_error: why the delivery failed; the measurement then waits on disk. Empty without an error.

    """

    title: str
    measurement: Measurement
    run_id: str = ""
    delivery_error: str = ""

    def line(self, title_width: int = TITLE_WIDTH) -> str:
        """Return the line about this outcome that the terminal shows."""
        measurement = self.measurement
        parts = [f"{self.title:<{title_width}} CE {measurement.ce:.3f}"]
        if measurement.rbp:
            nearest_to_10 = min(measurement.rbp, key=lambda k: max(k / 10, 10 / k))
            parts.append(f"RBP_{nearest_to_10} {measurement.rbp[nearest_to_10]:.3f}")
        parts.append(f"{measurement.num_tokens:>11,.0f} tokens")
        if measurement.tokens_per_second is not None:
            parts.append(f"{measurement.tokens_per_second:,.0f} tok/s")
        if self.delivery_error:
            parts.append("waits for the store")
        return "  ".join(parts)


@dataclass(frozen=True)
class Found:
    """The outcome of a cell that is already measured.

    Attributes:
        title: the title of the cell.
        run_id: the ID of the run in the store.

    """

    title: str
    run_id: str

    def line(self, title_width: int = TITLE_WIDTH) -> str:
        """Return the line about this outcome that the terminal shows."""
        return f"{self.title:<{title_width}} already measured"


@dataclass(frozen=True)
class Failed:
    """The outcome of a cell that could not be measured.

    Attributes:
        title: the title of the cell.
        message: why it failed, in one line.
        bad_input: whether it failed because of a mistake in what the user asked for.

    """

    title: str
    message: str
    bad_input: bool = False

    @classmethod
    def from_error(cls, title: str, error: Exception) -> Failed:
        """Make the outcome of a cell that ended with an error. If the error is unexpected, log its traceback."""
        expected_error = error if isinstance(error, RbptrackError) else file_access_error(error, cells_folder())
        if expected_error is None:
            log.error("%s failed", title, exc_info=error)
            message = f"{type(error).__name__}: {first_line(error)}"
        else:
            message = " ".join(str(expected_error).split())
        return cls(title, message, bad_input=isinstance(error, BadInput))

    def line(self) -> str:
        """Return the line about this outcome that the terminal shows."""
        return f"{self.title}  failed: {self.message}"


Outcome = Measured | Found | Failed
"""How a cell ended."""


def measure_cells(
    cells: Mapping[int, Cell], store: Store, *, loader: Loader, deliver: bool = True
) -> Iterator[tuple[int, Outcome]]:
    """Measure cells one after the other. At the end, print where the time went.

    While one cell is measured, the files and texts of the next are prepared.

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
        next_cell: a cell that is measured after this one. Its files and texts are prepared meanwhile.

    """
    from rbptrack.sweep.load import Loader

    loader = loader or Loader()
    deliver = deliver and cell.config.deliver
    try:
        with _hold_lock(cell) as is_first:
            is_new = is_first and store.was_missing(cell.fingerprint)
            if deliver and not cell.config.force and not is_new and (run_id := _find_run_id(cell, store)):
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
            log_failure(cell, store, failed.message)
        else:
            write_failure(cell, failed.message)
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
                log_failure(cell, store, message)
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


def log_failure(cell: Cell, store: Store, message: str) -> None:
    """Log a FAILED run that says why a cell failed. Does nothing if the store does not answer."""
    with suppress(RbptrackError):
        store.log_failure(cell.title, cell.description, message)


def write_failure(cell: Cell, message: str) -> None:
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
def _hold_lock(cell: Cell) -> Iterator[bool]:
    """Hold the lock of a cell while a block runs. If another process holds the lock, print a line and wait.

    Yields whether no process in this folder held this lock before.
    """
    cell.folder.parent.mkdir(parents=True, exist_ok=True)
    is_first = not _lock_file(cell).exists()
    lock = FileLock(_lock_file(cell))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print_text(f"{cell.title}: waiting for another process in this folder that measures it")
        lock.acquire()
    try:
        yield is_first
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
    if next_cell is not None:
        # On a CPU, tokenizing would take the cores from the model.
        loader.prepare(next_cell, tokenise=str(fields.get("device")).startswith("cuda"))
    check_unchanged(cell.files)
    cell.folder.mkdir(exist_ok=True)
    Outbox(store).write_address(cell.folder)
    tokenizer = loader.tokenizer(cell.tokenizer)
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

    config = cell.config
    if cell.served is None:
        model, corpus = loader.load(cell)
        return Transformers(model, corpus, config.engine), corpus, describe_model(model)
    architecture = loader.architecture(cell.weights)
    vocab_size = loader.check(cell).num_candidates
    corpus = loader.checked_corpus(cell)
    fields = describe_architecture(architecture, loader.parameters(cell.weights))
    return Served(config.model, cell.served, corpus, vocab_size, config.engine), corpus, fields


def measure_loaded(
    folder: Path,
    config: Config,
    engine: Engine,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    describe: Callable[[Ranked], dict[str, Any]],
    *,
    began: float,
    notes: Sequence[str] = (),
    show_bar: bool = True,
) -> tuple[Ranked, MeasurementRecord]:
    """Measure a corpus with an engine. Writes the ranks, the other files and the record into a folder.

    Args:
        folder: the folder for the files of the measurement.
        config: the configuration of the cell.
        engine: what computes the scores.
        corpus: the dataset as sequences of the model's tokens.
        tokenizer: the model's tokenizer.
        describe: a function that returns the fields of the measurement that follow neither from its ranks nor from the
            corpus.
        began: when the measurement began, in seconds since 1970.
        notes: remarks that a reader of the metrics must know.
        show_bar: whether to show a progress bar.

    Raises:
        BadInput: every k is larger than the vocabulary.
        MeasurementError: a logit is NaN or infinite, or memory does not suffice for a single sequence.

    """
    from rbptrack.engine import measure

    name = measurement_title(config.model.name, config.dataset.name)
    ks, notes_on_ks = _usable_ks(config, engine.vocab_size)
    with token_bar(corpus.num_targets, name, hidden=not show_bar) as progress:
        ranked = measure(
            engine,
            corpus,
            ks=ks,
            folder=folder,
            strict=config.rank is Rank.strict,
            progress=progress.update,
        )
    documents = corpus.document_table()
    groups = documents["group"].astype(str).tolist() if "group" in documents.columns else ()
    measurement = from_ranks(
        {**describe(ranked), "documents_hash": corpus.texts_hash, "documents": len(corpus.document_ids)},
        ranked.sums,
        groups=groups,
        notes=(*ranked.notes, *notes, *notes_on_ks, *_note_on_high_ce(config.dataset.name, ranked, engine.vocab_size)),
        **ranked.results(),
    )
    token_texts = corpus.token_texts(tokenizer, ranked.first_choices())
    ranked.sums.histogram.write(folder / HISTOGRAM_FILE)
    write_table(folder / DOCUMENTS_FILE, pa.Table.from_pandas(documents, preserve_index=False))
    write_table(folder / UNSCORED_FILE, pa.Table.from_pandas(corpus.unscored_table(), preserve_index=False))
    write_whole(folder / TOKENS_FILE, json.dumps({str(token): text for token, text in token_texts.items()}))
    write_whole(folder / CONFIG_FILE, config_yaml(config))
    record = MeasurementRecord(measurement=measurement, began=began)
    record.write(folder)
    return ranked, record


def describe_model(model: CausalModel) -> dict[str, Any]:
    """Return the fields of a measurement that the loaded model determines."""
    fields: dict[str, Any] = {
        "architecture": model.architecture,
        "weights": model.quantisation,
        "non_embedding_params": model.non_embedding_params,
        "total_params": model.total_params,
        "device": str(model.device),
    }
    if model.reference is not None:
        fields["reference_params"] = model.reference.model.total_params
    return fields


def describe_architecture(architecture: Any, parameters: ParameterCounts) -> dict[str, Any]:
    """Return the fields of a measurement that the transformers config of a model determines, for a model elsewhere."""
    from rbptrack.models.quantised import describe_quantisation

    return {
        "architecture": str(architecture.model_type),
        "weights": describe_quantisation(architecture),
        "non_embedding_params": parameters.non_embedding,
        "total_params": parameters.total,
    }


def _usable_ks(config: Config, vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the values of k up to the size of the vocabulary, and a note that names larger ones.

    Raises BadInput if every k is larger than the vocabulary.
    """
    requested = tuple(dict.fromkeys(config.k.values))
    usable = tuple(k for k in requested if k <= vocab_size)
    too_large = [str(k) for k in requested if k > vocab_size]
    if not usable:
        raise BadInput(
            f"k must be at most {vocab_size}, the vocabulary of {config.model.name}; got {', '.join(too_large)}"
        )
    if not too_large:
        return usable, ()
    verb = "is" if len(too_large) == 1 else "are"
    return usable, (f"k={', '.join(too_large)} {verb} left out: the vocabulary has only {vocab_size:,} entries",)


def _note_on_high_ce(dataset: str, ranked: Ranked, vocab_size: int) -> tuple[str, ...]:
    """Return a note if CE is far above the CE of a uniform guess over the vocabulary. Otherwise return no note."""
    ce = ranked.sums.histogram.ce
    ce_of_uniform_guess = math.log(vocab_size)
    if ce <= ce_of_uniform_guess + _HIGH_CE_NATS:
        return ()
    return (
        f"CE on {dataset} is {ce:.2f}, far above ln |V| = {ce_of_uniform_guess:.2f}, the CE of a uniform "
        "guess: check that weights and tokenizer belong to the same model",
    )


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
