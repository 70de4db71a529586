"""Measures one cell under a lock in its own folder, lays it out as a record, and delivers it to the store."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from rbptrack.base.errors import BadInput, RbptrackError, StoreAway, StoreRefuses, disk_trouble, first_line
from rbptrack.base.files import write_whole
from rbptrack.base.process import raise_stop
from rbptrack.config.paths import cells_folder
from rbptrack.config.schema import Config, Rank
from rbptrack.console.output import say
from rbptrack.console.progress import bar
from rbptrack.ranks import rbp_name
from rbptrack.sweep.cells import Cell
from rbptrack.tracking import Facts, Outbox, Record, Store, lay_out
from rbptrack.tracking.facts import title
from rbptrack.tracking.names import RECORD_FILE, Metric, Tag

if TYPE_CHECKING:  # torch and transformers load only where a model runs
    from transformers import PreTrainedTokenizerBase

    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel
    from rbptrack.ranks.measurement import Measurement
    from rbptrack.sweep.load import Loader

log = logging.getLogger(__name__)

_WORSE_NATS = 0.5  # above a guess: fresh weights are a little worse than one


@dataclass(frozen=True)
class Measured:
    """A cell that was measured.

    Attributes:
        title: `pythia-70m / wiki`.
        numbers: the metrics of its record.
        notes: what a reader must know.
        run_id: its run in the store; empty until it is delivered.
        waits: why the finished measurement is on disk and not in the store; empty if it is not waiting.

    """

    title: str
    numbers: Mapping[str, float]
    notes: tuple[str, ...] = ()
    run_id: str = ""
    waits: str = ""

    def line(self) -> str:
        """The outcome in a line."""
        rbp = rbp_name(10)
        parts = [f"{self.title:<24} CE {self.numbers[Metric.CE]:.3f}"]
        if rbp in self.numbers:
            parts.append(f"RBP_10 {self.numbers[rbp]:.3f}")
        parts.append(f"{self.numbers[Metric.NUM_TOKENS]:>11,.0f} tokens")
        if Metric.TOKENS_PER_SECOND in self.numbers:
            parts.append(f"{self.numbers[Metric.TOKENS_PER_SECOND]:,.0f} tok/s")
        if self.waits:
            parts.append("waits for the store")
        return "  ".join(parts)


@dataclass(frozen=True)
class Found:
    """A cell whose measurement is in the store already.

    Attributes:
        title: `pythia-70m / wiki`.
        run_id: its run.

    """

    title: str
    run_id: str

    def line(self) -> str:
        """The outcome in a line."""
        return f"{self.title:<24} already measured"


@dataclass(frozen=True)
class Failed:
    """A cell that could not be measured.

    Attributes:
        title: `pythia-70m / wiki`.
        message: why.
        bad_input: whether the reason is what the user asked for.

    """

    title: str
    message: str
    bad_input: bool = False

    @classmethod
    def by(cls, title: str, error: Exception) -> Failed:
        """The outcome of a cell that an error ended. An unexpected error is logged with its traceback."""
        known = error if isinstance(error, RbptrackError) else disk_trouble(error, cells_folder())
        if known is None:
            log.error("%s failed", title, exc_info=error)
            message = f"{type(error).__name__}: {first_line(error)}"
        else:
            message = " ".join(str(known).split())
        return cls(title, message, bad_input=isinstance(error, BadInput))

    def line(self) -> str:
        """The outcome in a line."""
        return f"{self.title}  failed: {self.message}"


Outcome = Measured | Found | Failed
"""How a cell ended."""


def measure_cell(cell: Cell, store: Store, *, loader: Loader | None = None, deliver: bool = True) -> Outcome:
    """Measure one cell and log it, unless the store has it. An error is returned as an outcome. The caller can go on.

    Args:
        cell: what to measure.
        store: where it goes.
        loader: keeps models and texts for the next cell.
        deliver: false leaves the finished folder to the process that launched this one, and asks the store nothing.

    """
    try:
        with _locked(cell):
            if deliver and not cell.config.force and (run_id := _find_run(cell, store)):
                return Found(cell.title, run_id)
            if not (cell.folder / RECORD_FILE).exists():
                _measure(cell, store, loader)
            return _finished(cell, store, deliver=deliver)
    except Exception as error:
        raise_stop()
        failed = Failed.by(cell.title, error)
        if deliver:
            log_failure(cell, store, failed.message)
        else:
            leave_failure(cell, failed.message)
        return failed


def deliver_finished(cell: Cell, store: Store, *, deliver: bool = True, patience: float = 0) -> Outcome | None:
    """Deliver a cell that another process has finished or given up; None while it has done neither.

    None, too, where another command delivers or has delivered it. An error is an outcome: other jobs go on.

    Args:
        cell: what was measured.
        store: where it goes.
        deliver: false leaves what it finds to the process that launched this one.
        patience: seconds to wait for another process that holds the cell's lock.

    """
    try:
        if failure_file(cell).exists():
            message = failure_file(cell).read_text()
            if deliver:
                failure_file(cell).unlink()
                log_failure(cell, store, message)
            return Failed(cell.title, message)
        if not (cell.folder / RECORD_FILE).exists():
            return None
        with FileLock(_lock_file(cell), timeout=patience):
            return _finished(cell, store, deliver=deliver)
    except (Timeout, FileNotFoundError):
        return None
    except Exception as error:
        raise_stop()
        return Failed.by(cell.title, error)


def log_failure(cell: Cell, store: Store, message: str) -> None:
    """Log a run that says why the cell failed, if the store answers."""
    facts = Facts.of(cell.config, cell.identity, _pins(cell))  # the model and the texts may not have been read
    with suppress(RbptrackError):
        store.fail(Record(facts.title, facts.tags(), facts.params()), message)


def leave_failure(cell: Cell, message: str) -> None:
    """Write why a cell failed, for the process that launched this one."""
    with suppress(OSError):
        failure_file(cell).parent.mkdir(parents=True, exist_ok=True)
        write_whole(failure_file(cell), message)


def failure_file(cell: Cell) -> Path:
    """Where a job that delivers nothing says why its cell failed."""
    return cell.folder.with_name(f"{cell.fingerprint}.failed")


def _lock_file(cell: Cell) -> Path:
    return cell.folder.with_name(f"{cell.fingerprint}.lock")


@contextmanager
def _locked(cell: Cell) -> Iterator[None]:
    """Hold the cell's lock: of two processes one measures, while the other waits and then finds it measured."""
    cell.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_file(cell))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{cell.title}: another process in this folder measures it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _find_run(cell: Cell, store: Store) -> str:
    """Return the run ID of a finished measurement; empty if it is not in the store or the store is away."""
    try:
        return store.find(cell.fingerprint) or ""
    except StoreAway:
        return ""


def _measure(cell: Cell, store: Store, loader: Loader | None) -> None:
    """Measure a cell in its folder, and complete the folder with its record."""
    from rbptrack.sweep.load import Loader

    began = time.time()
    failure_file(cell).unlink(missing_ok=True)
    loader = loader or Loader()
    model, corpus = loader.load(cell)
    facts = _facts(cell, model, corpus, loader.fit(cell).template)
    cell.folder.mkdir(exist_ok=True)
    Outbox(store).address(cell.folder)
    measure_loaded(
        cell.folder,
        cell.config,
        model,
        corpus,
        loader.tokenizer(cell),
        lambda _: facts,
        began=began,
        notes=cell.notes,
    )


def measure_loaded(
    folder: Path,
    config: Config,
    model: CausalModel,
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    facts: Callable[[Measurement], Facts],
    *,
    began: float,
    notes: Sequence[str] = (),
    show_bar: bool = True,
) -> tuple[Measurement, Record]:
    """Measure a corpus with a model, and complete a folder with the ranks and their record.

    Args:
        folder: where the measurement is kept.
        config: what is measured and how.
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        tokenizer: the model's.
        facts: gives the facts of the measurement.
        began: when the measurement began, in seconds since 1970.
        notes: what a reader must know.
        show_bar: false shows no progress.

    Raises:
        BadInput: no k is within the vocabulary, or model and corpus do not fit each other.
        MeasurementError: the logits hold a NaN or an infinity, or one sequence alone does not fit into memory.

    """
    from rbptrack import engine

    name = title(config.model.name, config.dataset.name)
    ks, notes_on_k = _usable_ks(config, model.vocab_size)
    with bar(corpus.num_targets, name, hidden=not show_bar) as progress:
        measurement = engine.measure(
            model,
            corpus,
            ks=ks,
            engine=config.engine,
            folder=folder,
            strict=config.rank is Rank.strict,
            progress=progress.update,
        )
    record = lay_out(
        folder,
        measurement,
        facts(measurement),
        documents=corpus.document_table(),
        unscored=corpus.unscored_table(),
        token_texts=corpus.token_texts(tokenizer, measurement.first_choices()),
        began=began,
        notes=(*notes, *notes_on_k, *_worse_than_a_guess(config.dataset.name, measurement, model.vocab_size)),
    )
    return measurement, record


def _usable_ks(config: Config, vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The k that were asked for up to |V|, and a note on the others.

    Raises:
        BadInput: none is that small.

    """
    asked = tuple(dict.fromkeys(config.k.values))
    usable = tuple(k for k in asked if k <= vocab_size)
    above = ", ".join(str(k) for k in asked if k > vocab_size)
    if not usable:
        raise BadInput(f"k must be at most {vocab_size}, the vocabulary of {config.model.name}; got {above}")
    if not above:
        return usable, ()
    verb = "are" if "," in above else "is"
    return usable, (f"k={above} {verb} above the vocabulary ({vocab_size:,})",)


def _worse_than_a_guess(dataset: str, measurement: Measurement, vocab_size: int) -> tuple[str, ...]:
    """A note if a model predicts much worse than one that knows nothing."""
    guess = math.log(vocab_size)
    if measurement.ce <= guess + _WORSE_NATS:
        return ()
    return (
        f"CE {measurement.ce:.2f} on {dataset} is far above ln |V| = {guess:.2f}, which guessing gives: are weights "
        "and tokenizer of one model?",
    )


def _facts(cell: Cell, model: CausalModel, corpus: Corpus, template: str) -> Facts:
    """The facts of a cell whose model and texts are loaded."""
    further = _pins(cell)
    if template:
        further["chat_template"] = hashlib.sha256(template.encode()).hexdigest()
    return Facts.of(cell.config, cell.identity, further, model=model, corpus=corpus)


def _pins(cell: Cell) -> dict[str, object]:
    """The facts that are known of a cell before anything is loaded."""
    return {
        "sweep": cell.config.sweep,
        "commit": cell.weights.identity,
        "dataset_commit": cell.texts.identity,
        "tokenizer_commit": cell.tokenizer.identity if cell.config.model.tokenizer else "",
        "reference_commit": cell.reference.identity if cell.reference else "",
        "forced": cell.config.force,
    }


def _finished(cell: Cell, store: Store, *, deliver: bool) -> Measured:
    """The outcome of a cell whose folder holds its record. A store that is away or refuses gets it with
    the next command.
    """
    record = Record.read(cell.folder)
    notes = tuple(filter(None, record.tags.get(Tag.NOTES, "").split("; ")))
    measured = Measured(cell.title, record.metrics, notes)
    if not deliver:
        return measured
    try:
        return replace(measured, run_id=Outbox(store).deliver(cell.folder))
    except (StoreAway, StoreRefuses) as error:
        return replace(measured, waits=str(error))
