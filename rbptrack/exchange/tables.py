"""Plain tables of results: one measurement per row of a CSV or Parquet file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from rbptrack.errors import BadInput
from rbptrack.exchange.imported import Imported, KnownModels, count, number
from rbptrack.ranks import parse_rbp_name
from rbptrack.tracking.record import Record
from rbptrack.tracking.schema import MeasurementParams, Metric, is_result

_NEEDED = ("model", "dataset")
_COUNTS = ("non_embedding_params", "vocab_size", "seq_len", "num_documents")
_TEXTS = ("dtype", "sequence")


def read(path: Path, models: KnownModels) -> list[Record]:
    """Read one record per row of a CSV or Parquet table.

    Columns: model, dataset, and ce or rbp_<k> are needed; family, size, non_embedding_params, num_tokens, vocab_size,
    seq_len, num_documents, dtype, sequence and standard errors (`<metric>_se`) are taken where present. An empty cell
    is missing.

    Args:
        path: the table.
        models: give family and size where the table does not.

    Raises:
        BadInput: a column is missing, or a value cannot be; names row and column.

    """
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a table: {' '.join(str(error).split())[:200]}") from error
    columns = [str(column) for column in frame.columns]
    lacking = [c for c in _NEEDED if c not in columns] + ([] if any(map(is_result, columns)) else ["ce or rbp_<k>"])
    if lacking:
        raise BadInput(f"{path} lacks the column {', '.join(lacking)}; it has {', '.join(columns)}")
    rows = [{str(k): v for k, v in row.items() if not pd.isna(v)} for row in frame.to_dict("records")]
    return [_record(path, line, row, models) for line, row in enumerate(rows, start=2)]


def _record(path: Path, line: int, row: Mapping[str, Any], models: KnownModels) -> Record:
    """The record of a row, of which empty cells are left out."""

    def where(column: str) -> str:
        return f"{path}, line {line}, column {column}"

    model = str(row.get("model", ""))
    family, size = models.split(model)
    params: dict[str, Any] = {c: count(row[c], where(c)) for c in _COUNTS if c in row}
    params |= {c: str(row[c]) for c in _TEXTS if c in row}
    shares = [c for c in row if parse_rbp_name(c) is not None or c == Metric.TIE_RATE]
    return Imported(
        kind="table",
        source=path,
        family=str(row.get("family", family)),
        size=str(row.get("size", size)),
        model=model,
        dataset=str(row.get("dataset", "")),
        params=replace(MeasurementParams.unknown(), **params),
        metrics={c: number(row[c], where(c), share=c in shares) for c in row if is_result(c)},
    ).record()
