"""Import tables of results, with a row for each measurement, from .csv, .tsv, .parquet, .json or .jsonl files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rbptrack.analysis import (
    IMPORTABLE_COLUMNS,
    BadInput,
    Imported,
    ImportedMeasurement,
    Importer,
    ImportNote,
    MissingKey,
    column_names,
    counted,
    listed,
    read_rows,
)
from rbptrack.ranks import parse_rbp_name

_ALIASES = {"revision": "checkpoint"}  # the word of the Hub
_KNOWN_COLUMNS = {"model", *IMPORTABLE_COLUMNS, *_ALIASES}


class Table(Importer):
    """A table with a row for each measurement.

    The columns model, dataset, and one of ce, ce_rank, ce_rest and rbp_<k> are required. non_embedding_params is needed
    for a law in size. Optional columns are family, size, seed, checkpoint (or revision), architecture, total_params,
    training_tokens, weights, dtype, engine, vocab_size, sequence, seq_len, context, candidates, rank, scoring,
    chat_template, documents, documents_hash, num_tokens, bits_per_byte, tie_rate, ce_se and rbp_<k>_se. The names of
    columns may be in upper or lower case. Other columns are not read. An empty cell counts as missing.
    """

    dataset: str = ""
    """name of the dataset of all rows, if the table has no column dataset"""

    def takes(self, path: Path) -> bool:
        columns = column_names(path)
        return "model" in columns and ("dataset" in columns or any(_is_metric(name) for name in columns))

    def read(self, path: Path) -> Iterator[Imported]:
        rows = read_rows(path)
        if not rows:
            raise BadInput(f"{path} holds no row, so there is nothing to import")
        present = {name for _, row in rows for name in row}
        if self.dataset and "dataset" in present:
            raise BadInput(f"{path} has a column dataset: leave out dataset={self.dataset}")
        for alias, name in _ALIASES.items():
            if {alias, name} <= present:
                raise BadInput(f"{path} has the columns {name} and {alias}, which mean the same: remove one of them")
        required = {"model"} if self.dataset else {"model", "dataset"}
        missing = required - present
        present_columns = ", ".join(sorted(present))[:300]
        if missing:
            remedy = "; dataset=NAME sets the dataset of all rows" if "dataset" in missing else ""
            raise MissingKey(f"{path} lacks the column {', '.join(sorted(missing))}; it has {present_columns}{remedy}")
        if not any(_is_metric(name) for name in present):
            raise MissingKey(f"{path} lacks a column ce, ce_rank, ce_rest or rbp_<k>; it has {present_columns}")
        unread = sorted(name for name in present if not _is_read(name))
        if unread:
            names = listed([name or "(without a name)" for name in unread])
            yield ImportNote(
                f"not imported: {counted(len(unread), 'column')} that rbptrack does not know: {names[:300]}"
            )
        for place, row in rows:
            columns = {_ALIASES.get(name, name): value for name, value in row.items() if _is_read(name)}
            if self.dataset:
                columns["dataset"] = self.dataset
            yield ImportedMeasurement(columns, place)


def _is_metric(column: str) -> bool:
    """Return whether a column holds one of the metrics of which a table must have at least one."""
    return column in ("ce", "ce_rank", "ce_rest") or parse_rbp_name(column) is not None


def _is_read(column: str) -> bool:
    """Return whether a column is read. A column such as `rbp_x` is read too, and then refused with an error."""
    metric = column.removesuffix("_se")
    return metric in _KNOWN_COLUMNS or metric.startswith("rbp_")
