"""One cell of a sweep: measure one model on one dataset and log it, unless that was done already."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from rbptrack.console import CellProgress, say
from rbptrack.errors import BadInput, RbptrackError, StoreAway, disk_trouble
from rbptrack.sources.fingerprint import SCORING_VERSION
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import CellFailed, Outcome
from rbptrack.sweep.resolve import Resolved
from rbptrack.tracking import Live, Reader, Writer, claim
from rbptrack.tracking import outbox as spool
from rbptrack.tracking.record import Record, add_artifacts, curves, k_metrics, size_metrics
from rbptrack.version import __version__

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine.measure import Measurement
    from rbptrack.models.loading import CausalModel


def run(cell: Resolved, delivery: Delivery) -> Outcome:
    """Measure and log one cell, or find that it was measured before.

    Raises:
        BadInput: something is wrong with what was asked; no run began.
        CellFailed: the run that had begun could not be finished; it is marked FAILED (KILLED for an interrupt).

    """
    if known := _known(cell, delivery):
        return known
    if delivery.connection.database is not None:
        delivery.connection.check_writable()
    corpus = cell.load_corpus()  # all that can be wrong with the input is found before a run begins
    delivery.folder.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that are asked for the same cell: one measures, the other waits and then finds it measured.
    lock = delivery.folder.with_suffix(".lock")
    with FileLock(lock):
        try:
            return _known(cell, delivery) or _measure(cell, corpus, cell.load_model(), delivery)
        finally:
            lock.unlink(missing_ok=True)


def _known(cell: Resolved, delivery: Delivery) -> Outcome | None:
    """What was measured before, in the store or waiting for it; a store that is away knows nothing now."""
    about = delivery.about
    if delivery.force:
        return None
    if waits := spool.holds(about.fingerprint):
        outcome = Outcome(about.title, about.model, about.dataset, "skipped", numbers=waits.metrics)
        outcome.waits = "the tracking store was away when it was measured"
        return outcome
    try:
        found = Reader(delivery.connection).find(about.fingerprint)
        return _skipped(cell, delivery, found) if found else None
    except StoreAway:
        return None


def _skipped(cell: Resolved, delivery: Delivery, run_id: str) -> Outcome:
    """A cell that was measured before; k that it lacks are added from its ranks, without the model."""
    about, reader = delivery.about, Reader(delivery.connection)
    logged = reader.run(run_id)
    metrics = dict(logged.metrics)
    ks, notes = _usable_ks(cell.ks, int(logged.params["model.vocab_size"]), about.model)
    lacking = tuple(k for k in ks if f"rbp_{k}" not in metrics)
    if lacking:
        ranks = reader.ranks(run_id)
        added = k_metrics(ranks.histogram(), ranks.document_counts(lacking))
        Writer(delivery.connection).log(run_id, metrics={k: v for k, v in added.items() if k.startswith("rbp_")})
        metrics |= added
    return Outcome(about.title, about.model, about.dataset, "skipped", run_id, numbers=metrics, notes=notes)


def _usable_ks(ks: tuple[int, ...], vocab_size: int, model: str) -> tuple[tuple[int, ...], list[str]]:
    """The k that a vocabulary allows, and a note about those left out; BadInput if none is left."""
    kept = tuple(sorted({k for k in ks if k <= vocab_size}))
    if not kept:
        raise BadInput(f"k must be between 1 and {vocab_size}, the vocabulary's size of {model}; got {list(ks)}")
    out = sorted(set(ks) - set(kept))
    return kept, [f"k = {', '.join(map(str, out))} left out where |V| = {vocab_size}"] if out else []


def _measure(cell: Resolved, corpus: Corpus, model: CausalModel, delivery: Delivery) -> Outcome:
    """Measure in a run of the cell's own, and deliver it; a store that is away gets it later."""
    from rbptrack.engine.measure import discard, measure

    about, folder = delivery.about, delivery.folder
    ks, notes = _usable_ks(cell.ks, cell.candidates, about.model)
    if delivery.force:
        discard(folder)
    record = _record(cell, corpus, model, delivery)
    run_id, done = _begin(record, delivery)
    if done:
        return _skipped(cell, delivery, run_id)
    writer = Writer(delivery.connection)
    with _closed(writer, run_id, folder):
        with (
            CellProgress(about.title, total=corpus.num_targets, progress_label=delivery.progress_label) as progress,
            Live(writer, run_id, every=delivery.every) as live,
        ):
            result = measure(
                model,
                corpus,
                ks=ks,
                engine=cell.engine,
                folder=folder,
                strict=cell.strict,
                progress=progress,
                on_part=live.add,
            )
        made = _complete(record, result, model, delivery)
        corpus.document_table().to_csv(made / "documents.csv", index=False)
        run_id, waits = spool.deliver_or_keep(writer, record, made, run_id)
    discard(folder)
    notes += [f"{about.title}: {note}" for note in result.notes]
    numbers = record.metrics
    return Outcome(about.title, about.model, about.dataset, "measured", run_id, "", False, waits, numbers, notes)


@contextmanager
def _closed(writer: Writer, run_id: str, folder: Path) -> Iterator[None]:
    """Close the run as FAILED or KILLED where the block does not reach its end; an error becomes CellFailed."""
    status = "FAILED"
    try:
        yield
        status = ""
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    except Exception as error:
        raise CellFailed(run_id, disk_trouble(error, folder) or error) from error
    finally:
        if run_id and status:
            with suppress(RbptrackError):  # repaired at the next start
                writer.end(run_id, status)


def _begin(record: Record, delivery: Delivery) -> tuple[str, bool]:
    """The cell's run, and whether another has finished it meanwhile; no run where the store is away."""
    writer = Writer(delivery.connection)
    try:
        if delivery.force:
            run_id, done = writer.begin(record.name, record.tags, started=record.started), False
        else:
            run_id, done = claim(delivery.connection, record, delivery.folder, tell=say)
        if not done:
            writer.log(run_id, params=record.params)
    except StoreAway as error:
        say(f"{record.name}: {error}; the measurement goes on and waits on disk")
        return "", False
    return run_id, done


def _record(cell: Resolved, corpus: Corpus, model: CausalModel, delivery: Delivery) -> Record:
    """What is known of the measurement before it begins."""
    about = delivery.about
    record = Record(about.title, about.tags(), dict(delivery.params) | _facts(cell, corpus, model))
    record.tags |= {"rbptrack.forced": "yes"} if delivery.force else {}
    record.dataset = {
        "name": about.dataset,
        "digest": corpus.texts_hash[:36],  # as much as MLflow takes
        "source": json.dumps({"source": cell.texts.identity, "split": cell.dataset.split}),
        "profile": json.dumps({"documents": len(corpus.document_ids), "scored_tokens": corpus.num_targets}),
    }
    return record


def _facts(cell: Resolved, corpus: Corpus, model: CausalModel) -> dict[str, str]:
    """What was resolved at run time: params beside the config's."""
    import torch
    import transformers

    found = {
        "model.commit": cell.weights.identity,
        "model.non_embedding_params": model.non_embedding_params,
        "model.total_params": model.total_params,
        "model.vocab_size": model.vocab_size,
        "model.device_used": str(model.device) if model.group is None else str(model.group),
        "dataset.commit": cell.texts.identity,
        "dataset.texts_hash": corpus.texts_hash,
        "dataset.num_documents": len(corpus.document_ids),
        "versions.rbptrack": __version__,
        "versions.python": platform.python_version(),
        "versions.torch": torch.__version__,
        "versions.transformers": transformers.__version__,
        "versions.scoring": SCORING_VERSION,
    }
    if model.group is not None:
        found["model.split_difference"] = f"{model.group.loaded.drift:.2g}"  # of logits, share by share
    return {name: str(value) for name, value in found.items()}


def _complete(record: Record, result: Measurement, model: CausalModel, delivery: Delivery) -> Path:
    """Fill in what was measured, and lay the artifacts beside it; returns the record's folder."""
    fill(record, result, non_embedding_params=model.non_embedding_params)
    made = result.path.parent / "record"
    add_artifacts(made, ranks=result.path, histogram=result.histogram, title=record.name)
    (made / "config.yaml").write_text(delivery.yaml, encoding="utf-8")
    return made


def fill(record: Record, result: Measurement, *, non_embedding_params: int) -> None:
    """Metrics and curves of a finished measurement."""
    record.ended = time.time()
    record.metrics |= k_metrics(result.histogram, result.counts) | size_metrics(non_embedding_params)
    record.metrics |= {
        "bits_per_byte": result.bits_per_byte,
        "num_tokens": result.num_tokens,
        "tie_rate": result.tie_rate,
        "peak_memory_bytes": result.peak_memory_bytes,
        "batch_tokens": result.batch_tokens,
        "chunk_tokens": result.chunk_tokens,
        "out_of_memory_recoveries": sum(note.startswith("out of memory") for note in result.notes),
    }
    record.tags |= {"rbptrack.notes": "; ".join(result.notes)} if result.notes else {}
    if result.fresh_tokens:
        record.metrics["tokens_per_second"] = result.fresh_tokens / result.seconds
    record.curves = curves(result.histogram)
