"""Add the checked measurements and scores of an importer to a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.base.formatting import counted
from rbptrack.base.parquet import write_table
from rbptrack.exchange.checks import CheckedContent
from rbptrack.measurement.build import compute_histogram
from rbptrack.measurement.files import DOCUMENTS_FILE, HISTOGRAM_FILE, RANKS_FILE
from rbptrack.measurement.record import MeasurementRecord
from rbptrack.ranks import RankTable
from rbptrack.ranks.near_copies import near_copies_in
from rbptrack.tracking import Outbox, Store

_MAX_REPLACED = 10  # the most replaced scores that are named


def import_content(importer: str, content: CheckedContent, path: Path, store: Store) -> list[str]:
    """Add the checked measurements and scores of a file or folder that the store does not have yet.

    If an earlier import of a measurement had other numbers, the new numbers replace them. `importer` is the name of the
    importer that read the file or folder. The store gets all measurements or none, as `Outbox.delivering_together`
    says; the scores follow.

    Returns:
        Lines about the import for the user.

    Raises:
        StoreAway: the store does not answer. If measurements wait in mlruns/cells, the message says how many.

    """
    num_new = 0
    with Outbox(store).delivering_together() as folder_of_import:
        for checked in content.measurements:
            measurement = checked.measurement.updated({"imported": importer, "imported_from": path.name})
            record = MeasurementRecord(measurement=measurement)
            if store.find_equivalent(record):
                continue
            folder = folder_of_import / record.fingerprint
            folder.mkdir()
            if checked.ranks is not None:
                checked.ranks.write(folder / RANKS_FILE)
                compute_histogram(folder / RANKS_FILE).write(folder / HISTOGRAM_FILE)
                if checked.measurement.groups:
                    write_table(folder / DOCUMENTS_FILE, _documents(checked.ranks))
            record.write(folder)
            num_new += 1
    earlier_scores = store.save_scores(content.scores, path.name) if len(content.scores) else None
    return list(_summary_lines(content, num_new, earlier_scores))


def _documents(ranks: RankTable) -> pa.Table:
    """Return the table of the documents of imported ranks, with their groups of near copies."""
    documents, index = ranks.documents
    ids = [f"document {number}" for number in documents.tolist()]
    groups = near_copies_in(ranks)
    return pa.table({"document": documents, "id": ids, "tokens": np.bincount(index), "group": groups})


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
    num_without_ranks = sum(checked.ranks is None for checked in content.measurements)
    if num_without_ranks:
        yield (
            f"{num_without_ranks} without ranks: their intervals do not include the error from the choice of documents"
        )
    num_without_size = sum(checked.measurement.non_embedding_params is None for checked in content.measurements)
    if num_without_size:
        yield f"{num_without_size} without non_embedding_params: laws in size leave them out"
    if len(content.scores):
        outcome = "already in the store" if earlier_scores is None else "imported"
        yield f"{counted(len(content.scores), 'score')} {outcome}"
    if earlier_scores is not None:
        yield from _replaced_scores(earlier_scores, content.scores)
    yield from content.notes


def _replaced_scores(earlier: pd.DataFrame, imported: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each imported score that replaces another value or another number of items.

    Args:
        earlier: the scores of the store before the import, with the columns of `Runs.scores()`.
        imported: the imported scores, with the same columns.

    """
    keys = ["model", "revision", "task"]
    pairs = imported.merge(earlier, on=keys, suffixes=("", "_before"))
    n, n_before = (pd.to_numeric(pairs[name], errors="coerce").fillna(0) for name in ("n", "n_before"))
    is_same = np.isclose(pairs["score"].astype(float), pairs["score_before"].astype(float), rtol=1e-9, atol=0)
    replaced = pairs[~is_same | (n != n_before)]
    for pair in replaced.head(_MAX_REPLACED).to_dict("records"):
        after = _score_and_n(pair["score"], pair["n"])
        before = _score_and_n(pair["score_before"], pair["n_before"])
        model = "@".join(filter(None, [pair["model"], pair["revision"]]))
        yield f"replaced: {pair['task']} of {model} was {before} and is now {after}"
    if len(replaced) > _MAX_REPLACED:
        yield f"replaced: {len(replaced) - _MAX_REPLACED:,} more scores"


def _score_and_n(score: Any, n: Any) -> str:
    number = pd.to_numeric(n, errors="coerce")
    return f"{float(score):.6g} (n = {'unknown' if pd.isna(number) else f'{int(number):,}'})"
