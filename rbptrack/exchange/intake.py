"""Adds the checked measurements and scores of an importer to a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rbptrack.analysis.importing import CheckedContent, CheckedMeasurement
from rbptrack.analysis.rules import ImportedRow
from rbptrack.analysis.scores import replaced_scores
from rbptrack.base.formatting import counted
from rbptrack.facts import FACT_BY_NAME, IMPORTABLE_COLUMNS, Place, stored_texts
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Outbox, Record, Store
from rbptrack.tracking.facts import measurement_tags, measurement_title
from rbptrack.tracking.names import HISTOGRAM_FILE, RANKS_FILE, Metric
from rbptrack.tracking.record import MAX_TEXT_LENGTH, ce_and_rbp_metrics, compute_histogram, rbp_curve, size_metrics


def import_content(importer: str, content: CheckedContent, path: Path, store: Store) -> list[str]:
    """Add the checked measurements and scores of a file or folder that the store does not have yet.

    If an earlier import of a measurement had other numbers, the new numbers replace them. `importer` is the name of the
    importer that read the file or folder.

    Returns:
        Lines about the import for the user.

    Raises:
        StoreAway: the store does not answer. The measurements that it already got stay there.

    """
    num_new = 0
    for measurement in content.measurements:
        record = _record_of_import(measurement, importer, path.name)
        if store.find_equivalent(record):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            if measurement.imported.ranks is not None:
                measurement.imported.ranks.write(folder / RANKS_FILE)
                compute_histogram(folder / RANKS_FILE).write(folder / HISTOGRAM_FILE)
            record.write(folder)
            Outbox(store).deliver(folder, keep_folder=True)  # it is deleted at the end of the block
        num_new += 1
    earlier_scores = store.save_scores(content.scores, path.name) if len(content.scores) else None
    return list(_summary_lines(content, num_new, earlier_scores))


def imported_line(num_new: int, num_measurements: int) -> str:
    """Return a line that says how many measurements of a file were new to the store and were imported."""
    others = "; the others are already in the store" if num_new < num_measurements else ""
    return f"{num_new} of {counted(num_measurements, 'measurement')} imported{others}"


def _summary_lines(content: CheckedContent, num_new: int, earlier_scores: pd.DataFrame | None) -> Iterator[str]:
    """Yield the lines that tell the user what was imported, and what the imported measurements lack.

    `earlier_scores` are the scores of the store before the import. None means that no new score was imported.
    """
    if content.measurements:
        yield imported_line(num_new, len(content.measurements))
    num_without_ranks = sum(measurement.imported.ranks is None for measurement in content.measurements)
    if num_without_ranks:
        yield (
            f"{num_without_ranks} without ranks: their intervals do not include the error from the choice of documents"
        )
    num_without_size = sum(measurement.row.non_embedding_params is None for measurement in content.measurements)
    if num_without_size:
        yield f"{num_without_size} without non_embedding_params: laws in size leave them out"
    if len(content.scores):
        outcome = "already in the store" if earlier_scores is None else "imported"
        yield f"{counted(len(content.scores), 'score')} {outcome}"
    if earlier_scores is not None:
        yield from replaced_scores(earlier_scores, content.scores)
    yield from content.notes


def _record_of_import(measurement: CheckedMeasurement, importer: str, file_name: str) -> Record:
    """Make the record of an imported measurement. Its fingerprint does not depend on the imported numbers."""
    row = measurement.row
    imported = measurement.imported
    metrics = _row_metrics(row)
    curve = list(row.rbp.items())
    if imported.ranks is not None:
        histogram = imported.ranks.histogram()
        metrics |= ce_and_rbp_metrics(histogram, imported.ranks.document_counts(list(row.rbp)))
        curve = rbp_curve(histogram)
    # The identity includes the model's name in the file, because two models may have one family and size.
    identity = {"imported": importer} | {name: str(value) for name, value in row.conditions.items()}
    model = "-".join(filter(None, (row.family, row.size, f"seed{row.seed}" if row.seed else "")))
    values = row.model_dump(include=set(IMPORTABLE_COLUMNS)) | {
        "model": model,
        "repo": imported.repo,
        "fingerprint": fingerprint(identity),
        "imported": importer,
        "imported_from": file_name,
        "notes": " ".join(imported.notes.split())[:MAX_TEXT_LENGTH],
        "without_ranks": imported.ranks is None,
    }
    return Record(
        measurement_title(model, row.dataset),
        measurement_tags(values),
        stored_texts(Place.PARAM, values),
        metrics,
        curves={Metric.RBP_CURVE: curve} if curve else {},
        identity=identity,
    )


def _row_metrics(row: ImportedRow) -> dict[str, float]:
    """Return the numbers of a row as metrics, including rbp_<k> and standard errors."""
    columns = row.model_dump(exclude_none=True)
    names = [name for name in IMPORTABLE_COLUMNS if FACT_BY_NAME[name].place is Place.METRIC]
    metrics = {name: float(columns[name]) for name in names if name in columns}
    metrics |= row.model_extra or {}
    if row.non_embedding_params is not None:
        metrics |= size_metrics(row.non_embedding_params)
    return metrics
