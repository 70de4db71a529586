"""One cell of a sweep: measure one model on one dataset and log it, unless that was done already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rbptrack.base.errors import RbptrackError, StoreAway, disk_trouble
from rbptrack.base.process import raise_if_stopped, stop_code
from rbptrack.console.output import say
from rbptrack.console.progress import CellProgress, spinner
from rbptrack.engine.at_work import discard, locked
from rbptrack.ranks.measurement import WHOLE, Measurement, Shard
from rbptrack.sweep import measured_before
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import CellFailed, Outcome
from rbptrack.sweep.resolved import Resolved
from rbptrack.tracking import claim, outbox
from rbptrack.tracking.groups import DOCUMENTS, DocumentGroups, write_documents
from rbptrack.tracking.live import Live
from rbptrack.tracking.params import ResolvedParams, software_versions
from rbptrack.tracking.record import Record, add_artifacts, write_token_texts
from rbptrack.tracking.schema import Tag
from rbptrack.tracking.writer import Writer

if TYPE_CHECKING:  # torch, transformers and datasets load only where a model runs
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.engine.measure import Share
    from rbptrack.models.causal import CausalModel


def run(cell: Resolved, delivery: Delivery, shard: Shard = WHOLE) -> Outcome | None:
    """Measure and log one cell, or find that it was measured before.

    Returns:
        How the cell ended; None for a shard whose cell another one will deliver.

    Raises:
        BadInput: the request is invalid; no run began.
        CellFailed: the run that had begun could not be finished; it is marked FAILED (KILLED for an interrupt).

    """
    delivery = measured_before.forced_where_columns_are_missing(delivery)
    if shard.count > 1:
        return _run_shard(cell, delivery, shard)
    # Two processes that are asked for the same cell: one measures, the other waits and then finds it measured.
    with locked(delivery.folder, waits=delivery.waits):
        if ended := measured_before.outcome_of(cell, delivery):
            discard(delivery.folder)  # leftovers of a process that died, or of another machine
            return ended
        corpus = _corpus(cell, delivery)
        return _measure(cell, corpus, _model(cell), delivery)


def _corpus(cell: Resolved, delivery: Delivery) -> Corpus:
    """Load the cell's sequences: all that is wrong with the input or the store is found before a run begins."""
    if delivery.store.database is not None:
        delivery.store.check_writable()
    with spinner(f"reading and tokenizing {cell.dataset.name}"):
        return cell.load_corpus()


def _model(cell: Resolved) -> CausalModel:
    with spinner(f"loading {cell.model.name}"):
        return cell.load_model()


def _run_shard(cell: Resolved, delivery: Delivery, shard: Shard) -> Outcome | None:
    """Measure a shard's share; the job that then finds every share on disk delivers the whole cell."""
    from rbptrack.engine.measure import Share
    from rbptrack.engine.shards import complete

    corpus = _corpus(cell, delivery)
    model = _model(cell)
    with locked(delivery.folder, waits=delivery.waits):  # else the folder may be one that is being removed
        if ended := measured_before.outcome_of(cell, delivery):
            return ended
        share = Share(model, corpus, engine=cell.engine, folder=delivery.folder, shard=shard)
    _measure_share(cell, share, delivery, shard)
    with locked(delivery.folder, waits=delivery.waits):
        ended = measured_before.outcome_of(cell, delivery)
        if ended is None and complete(corpus, delivery.folder):
            return _measure(cell, corpus, model, delivery)
        if ended:
            discard(delivery.folder)  # measured elsewhere meanwhile, by somebody with a folder of their own
        return ended


def _measure_share(cell: Resolved, share: Share, delivery: Delivery, shard: Shard) -> None:
    title = f"{delivery.about.title}, {shard}"
    with (
        _closed(delivery.store.writer, "", delivery.folder),
        _progress(title, share.num_targets, delivery) as progress,
    ):
        share.measure(strict=cell.strict, progress=progress, waits=delivery.waits)


def _progress(title: str, total: int, delivery: Delivery) -> CellProgress:
    return CellProgress(title, total=total, progress_label=delivery.progress_label, tell=delivery.tell)


def _measure(cell: Resolved, corpus: Corpus, model: CausalModel, delivery: Delivery) -> Outcome:
    """Measure in a run of the cell's own, and deliver it; a store that is away gets it later."""
    from rbptrack.engine.measure import measure

    about = delivery.about
    folder = delivery.folder
    ks, notes = measured_before.usable_ks(cell.ks, cell.candidates, about.model)
    if delivery.force and delivery.config.shards == 1:
        discard(folder)
    with spinner("starting its run in the store"):
        record = _record(cell, corpus, model, delivery)
        run_id = _begin(record, delivery)
    writer = delivery.store.writer
    groups = cell.load_groups()
    with (
        _closed(writer, run_id, folder),
        _progress(about.title, corpus.num_targets, delivery) as progress,
        Live(writer, run_id, every=delivery.config.tracking.every) as live,
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
        made = _complete(record, result, model, delivery, groups)
        write_documents(made / DOCUMENTS, corpus.document_table(), groups)
        write_token_texts(made, corpus.token_texts(cell.tokenizer))
    sent = _sent(writer, record, made, run_id, delivery)
    own = [note for note in result.notes if note not in model.notes]
    notes += [f"{about.title}: {note}" for note in own] + [f"{about.model}: {note}" for note in model.notes]
    outcome = delivery.outcome("measured", sent.run_id, numbers=record.metrics, notes=notes)
    outcome.waits = sent.waits
    return outcome


def _sent(writer: Writer, record: Record, made: Path, run_id: str, delivery: Delivery) -> outbox.Sent:
    """Deliver a complete measurement; whatever stops that, the outbox keeps it."""
    with _closed(writer, run_id, made):
        return outbox.send(delivery.store, record, made, run_id, made_from=delivery.folder, tell=say)


def _end(writer: Writer, run_id: str, status: str) -> None:
    if run_id and status:
        with suppress(RbptrackError):  # repaired at the next start
            writer.end(run_id, status)


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
        status = "KILLED" if stop_code() else status
        raise_if_stopped()
        raise CellFailed(run_id, disk_trouble(error, folder) or error) from error
    finally:
        _end(writer, run_id, status)


def _begin(record: Record, delivery: Delivery) -> str:
    """Return the cell's run; empty where the store is away."""
    writer = delivery.store.writer
    try:
        if delivery.force:
            run_id = writer.begin(record.name, record.tags, started=record.started)
        else:
            run_id = claim.begin(delivery.store, record, delivery.folder)
        writer.log(run_id, params=record.params)
    except StoreAway as error:
        say(f"{record.name}: {error}; the measurement goes on and waits on disk")
        return ""
    return run_id


def _record(cell: Resolved, corpus: Corpus, model: CausalModel, delivery: Delivery) -> Record:
    about = delivery.about
    record = Record(about.title, about.tags(), delivery.params() | _resolved(cell, corpus, model))
    record.tags |= {Tag.FORCED: "yes"} if delivery.force else {}
    record.dataset = {
        "name": about.dataset,
        "digest": corpus.texts_hash[:36],  # as much as MLflow takes
        "source": json.dumps({"source": cell.texts.identity, "split": cell.dataset.split}),
        "profile": json.dumps({"documents": len(corpus.document_ids), "scored_tokens": corpus.num_targets}),
    }
    return record


def _resolved(cell: Resolved, corpus: Corpus, model: CausalModel) -> dict[str, str]:
    """Return the params resolved at run time, beside the config's."""
    params = ResolvedParams(
        commit=cell.weights.identity,
        non_embedding_params=model.non_embedding_params,
        total_params=model.total_params,
        vocab_size=model.vocab_size,
        device=str(model.device),
        dataset_commit=cell.texts.identity,
        texts_hash=corpus.texts_hash,
        num_documents=len(corpus.document_ids),
        scored_tokens=corpus.num_targets,
        prefix=str(corpus.prefix.tolist()) if len(corpus.prefix) > 1 else None,
        chat_template=cell.template or None,
        reference=cell.reference.title if cell.reference else None,
        reference_commit=cell.reference.weights.identity if cell.reference else None,
        reference_params=model.reference.model.total_params if model.reference else None,
    )
    return params.params() | software_versions()


def _complete(
    record: Record, result: Measurement, model: CausalModel, delivery: Delivery, groups: DocumentGroups | None
) -> Path:
    """Fill in the results, and lay the artifacts beside it; returns the record's folder."""
    counts = result.counts.in_groups(groups.of(result.counts)) if groups else None
    record.add_results(result, non_embedding_params=model.non_embedding_params, counts=counts)
    record.tags |= {Tag.GROUPS: groups.tag} if groups else {}
    made = result.path.parent / "record"
    add_artifacts(made, ranks=result.path, histogram=result.histogram, title=record.name)
    (made / "config.yaml").write_text(delivery.yaml(), encoding="utf-8")
    return made
