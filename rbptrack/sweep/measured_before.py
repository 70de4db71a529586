"""Find a cell's earlier measurement and add any k or document sources that it lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError, StoreAway
from rbptrack.config.schema import Again
from rbptrack.ranks import VERSION, is_rbp_column, rbp_ks, rbp_name
from rbptrack.sweep.delivery import Delivery
from rbptrack.sweep.outcome import Outcome
from rbptrack.sweep.resolved import Resolved
from rbptrack.tracking import outbox
from rbptrack.tracking.claim import find_after_others
from rbptrack.tracking.groups import DOCUMENTS, DocumentGroups, document_table, write_documents
from rbptrack.tracking.params import ResolvedParams
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.record import k_metrics
from rbptrack.tracking.runs_table import LoggedRun
from rbptrack.tracking.schema import Tag


def outcomes_of(cells: Sequence[tuple[Resolved, Delivery]]) -> dict[int, Outcome]:
    """Return the cells of a sweep that were measured before, by their numbers: the store is asked once for all of them.

    What cannot be said of a cell now (its texts have changed, say) is left for its job to say.
    """
    unforced = {number: pair for number, pair in enumerate(cells) if not pair[1].force}
    if not unforced:
        return {}
    reader = cells[0][1].store.reader
    outcomes: dict[int, Outcome] = {}
    try:
        runs = reader.find_all({cell.fingerprint for cell, _ in unforced.values()})
    except StoreAway:
        runs = {}
    for number, (cell, delivery) in unforced.items():
        run = runs.get(cell.fingerprint)
        with suppress(RbptrackError):
            if waiting := _waiting(delivery):
                outcomes[number] = waiting
            elif run and (delivery.config.again is not Again.columns or _has_columns(reader, run.run_id)):
                outcomes[number] = skipped(cell, delivery, run)
    return outcomes


def forced_where_columns_are_missing(delivery: Delivery) -> Delivery:
    """Return the same delivery; a forced one where the earlier measurement lacks requested columns."""
    if delivery.config.again is not Again.columns or delivery.force:
        return delivery
    reader = delivery.store.reader
    with suppress(StoreAway):
        run = reader.find(delivery.about.fingerprint)
        if run and not _has_columns(reader, run):
            return replace(delivery, force=True)
    return delivery


def _has_columns(reader: Reader, run_id: str) -> bool:
    try:
        return reader.ranks(run_id).version == VERSION
    except MissingArtifact:  # imported without ranks
        return False


def outcome_of(cell: Resolved, delivery: Delivery) -> Outcome | None:
    """Find an earlier measurement, in the store or waiting for it, once no other process measures the cell.

    A store that stays away is asked no longer: nothing is known of it then.
    """
    if delivery.force:
        return None
    if waiting := _waiting(delivery):
        return waiting
    try:
        return _in_store(cell, delivery)
    except StoreAway:
        delivery.store.wait()  # before hours are spent: a moment's silence must not hide that it was measured
    with suppress(StoreAway):
        return _in_store(cell, delivery)
    return None


def _in_store(cell: Resolved, delivery: Delivery) -> Outcome | None:
    reader = delivery.store.reader
    run_id = find_after_others(reader, delivery.fingerprint, delivery.folder, tell=delivery.say_waiting)
    return skipped(cell, delivery, reader.run(run_id)) if run_id else None


def _waiting(delivery: Delivery) -> Outcome | None:
    record = outbox.find(delivery.store, delivery.about.fingerprint)
    if record is None:
        return None
    outcome = delivery.outcome(
        "skipped", numbers=record.metrics, notes=_other_name(delivery, record.tags, "to be uploaded")
    )
    outcome.waits = "the tracking store was away when it was measured"
    return outcome


def skipped(cell: Resolved, delivery: Delivery, logged: LoggedRun) -> Outcome:
    """Return a cell that was measured before; k that it lacks are added from its ranks, without the model."""
    run_id = logged.run_id
    reader = delivery.store.reader
    metrics = dict(logged.metrics)
    params = ResolvedParams.read(logged.params)
    ks, notes = usable_ks(cell.ks, params.vocab_size or 0, delivery.about.model)
    missing = tuple(k for k in ks if rbp_name(k) not in metrics)
    groups = _missing_sources(cell, logged.tags, params.texts_hash)
    if groups:
        notes.append(_filled(groups, run_id, logged.metrics, delivery))
    if missing:
        ranks = reader.ranks(run_id)
        counts = ranks.document_counts(missing)
        if Tag.GROUPS in logged.tags or groups:
            sources = reader.groups(run_id)
            counts = counts.in_groups([sources[document] for document in counts.document])
        added = k_metrics(ranks.histogram(), counts)
        delivery.store.writer.log_more(run_id, {k: v for k, v in added.items() if is_rbp_column(k)})
        metrics |= added
    notes += _other_name(delivery, logged.tags, f"run {run_id}")
    outcome = delivery.outcome("skipped", run_id, numbers=metrics, notes=notes)
    outcome.added_ks = list(missing)
    return outcome


def _other_name(delivery: Delivery, tags: Mapping[str, str], where: str) -> list[str]:
    """Return a note where the same weights and texts stand in the store under another name, by which alone they are
    found.
    """
    about = delivery.about
    if (tags.get(Tag.MODEL), tags.get(Tag.DATASET)) == (about.model, about.dataset):
        return []
    standing = f"{tags.get(Tag.MODEL)}/{tags.get(Tag.DATASET)}"
    return [f"{about.title} is already in {delivery.store.shown} as {standing} ({where}); skipped"]


def _missing_sources(cell: Resolved, tags: Mapping[str, str], texts_hash: str | None) -> DocumentGroups | None:
    """Return the sources of documents that a measurement lacks or has otherwise; BadInput where its texts have
    changed.
    """
    groups = cell.load_groups()
    if groups is None or tags.get(Tag.GROUPS) == groups.tag:
        return None
    if texts_hash not in (None, groups.texts_hash):
        raise BadInput(
            f"dataset.group={groups.field}: the texts of {cell.dataset.name} have changed since {cell.model.name} was "
            "measured on them, so their sources cannot be filled in; measure again with force=true"
        )
    return groups


def _filled(groups: DocumentGroups, run_id: str, metrics: Mapping[str, float], delivery: Delivery) -> str:
    """Keep the sources of documents with a measurement made before, and the errors that follow from them; says so."""
    reader = delivery.store.reader
    writer = delivery.store.writer
    ranks = reader.ranks(run_id)
    counts = ranks.document_counts(rbp_ks(metrics))
    errors = k_metrics(ranks.histogram(), counts.in_groups(groups.of(counts)))
    with TemporaryDirectory() as folder:
        write_documents(Path(folder, DOCUMENTS), document_table(counts, groups), groups)
        writer.log_folder(run_id, Path(folder))
    errors = {name: error for name, error in errors.items() if name.endswith("_se")}
    writer.log_more(run_id, errors, tags={Tag.GROUPS: groups.tag})
    return f"{delivery.about.title}: documents grouped by {groups.field}"


def usable_ks(ks: tuple[int, ...], vocab_size: int, model: str) -> tuple[tuple[int, ...], list[str]]:
    """Return the k that a vocabulary allows, and a note about those left out; BadInput if none is left."""
    kept = tuple(sorted({k for k in ks if k <= vocab_size}))
    if not kept:
        raise BadInput(f"k must be between 1 and {vocab_size}, the vocabulary's size of {model}; got {list(ks)}")
    out = sorted(set(ks) - set(kept))
    return kept, [f"k = {', '.join(map(str, out))} left out where |V| = {vocab_size}"] if out else []
