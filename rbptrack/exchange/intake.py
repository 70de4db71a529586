"""Adds checked measurements and scores from importers to a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from rbptrack.analysis.importing import CheckedContent, CheckedMeasurement
from rbptrack.analysis.rules import ImportedRow
from rbptrack.base.formatting import counted
from rbptrack.facts import BY_NAME, IMPORTABLE, Place, stored_texts
from rbptrack.sources.fingerprint import fingerprint
from rbptrack.tracking import Outbox, Record, Store
from rbptrack.tracking.facts import measurement_tags, measurement_title
from rbptrack.tracking.names import HISTOGRAM_FILE, RANKS_FILE, Metric
from rbptrack.tracking.record import MAX_TEXT_LENGTH, compute_histogram, numbers, rbp_curve, size_metrics


def import_content(importer: str, content: CheckedContent, path: Path, store: Store) -> list[str]:
    """Add the checked measurements and scores of a file or folder that the store does not have yet.

    If an earlier import of a measurement had other numbers, the new numbers replace them.

    Args:
        importer: the name of the importer.
        content: the checked content of the file or folder.
        path: the file or folder.
        store: the store.

    Returns:
        Lines about the import for the user.

    Raises:
        StoreAway: the store does not answer. Run the command again later to complete the import.

    """
    new_measurements = 0
    for measurement in content.measurements:
        record = _make_record(measurement, importer, path.name)
        if store.find_same(record):
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if measurement.imported.ranks is not None:
                measurement.imported.ranks.write(folder / RANKS_FILE)
                compute_histogram(folder / RANKS_FILE).write(folder / HISTOGRAM_FILE)
            record.write(folder)
            Outbox(store).deliver(folder, keep=True)  # the temporary folder is deleted at the end of the block
        new_measurements += 1
    scores_are_new = len(content.scores) > 0 and store.save_scores(content.scores, path.name)
    return list(_report_lines(content, new_measurements, scores_are_new=scores_are_new))


def imported_line(new: int, measurements: int) -> str:
    """Return a line with the number of measurements that were imported.

    Args:
        new: the number of measurements that the store did not have.
        measurements: the number of all measurements in the file.

    """
    others = "; the others are already in the store" if new < measurements else ""
    return f"{new} of {counted(measurements, 'measurement')} imported{others}"


def _report_lines(content: CheckedContent, new_measurements: int, *, scores_are_new: bool) -> Iterator[str]:
    """Yield the lines that tell the user what was imported, and what the imported numbers lack."""
    if content.measurements:
        yield imported_line(new_measurements, len(content.measurements))
    without_ranks = sum(measurement.imported.ranks is None for measurement in content.measurements)
    if without_ranks:
        yield (
            f"{without_ranks} without ranks: intervals with them cover the scatter between models, not that between "
            "documents"
        )
    without_s = sum(measurement.row.non_embedding_params is None for measurement in content.measurements)
    if without_s:
        yield f"{without_s} without non_embedding_params: laws in size leave them out"
    if len(content.scores):
        yield f"{counted(len(content.scores), 'score')} {'imported' if scores_are_new else 'already in the store'}"
    yield from content.notes


def _make_record(measurement: CheckedMeasurement, importer: str, file: str) -> Record:
    """Make the record of an imported measurement. Its fingerprint depends on what was measured, not on the numbers."""
    row = measurement.row
    imported = measurement.imported
    metrics = _row_metrics(row)
    curve = list(row.rbp.items())
    if imported.ranks is not None:
        histogram = imported.ranks.histogram()
        metrics |= numbers(histogram, imported.ranks.document_counts(list(row.rbp)))
        curve = rbp_curve(histogram)
    # The identity has the model's name in the file, because two repositories may have the same family and size.
    identity = {"imported": importer} | {name: str(value) for name, value in row.conditions.items()}
    model = f"{row.family}-{row.size}" if row.size else row.family
    values = row.model_dump(include=set(IMPORTABLE)) | {
        "model": model,
        "repo": imported.repo,
        "fingerprint": fingerprint(identity),
        "imported": importer,
        "imported_from": file,
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
    """Return all numbers of a row as metrics, with rbp_<k> and standard errors."""
    columns = row.model_dump(exclude_none=True)
    names = [name for name in IMPORTABLE if BY_NAME[name].place is Place.METRIC and name != Metric.NON_EMBEDDING_PARAMS]
    metrics = {name: float(columns[name]) for name in names if name in columns}
    metrics |= row.model_extra or {}
    if row.non_embedding_params is not None:
        metrics |= size_metrics(row.non_embedding_params)
    return metrics
