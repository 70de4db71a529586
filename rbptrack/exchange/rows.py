"""Plain tables of results: one measurement per row of a CSV or Parquet file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from rbptrack.base.errors import BadInput, first_line
from rbptrack.base.words import from_spreadsheet
from rbptrack.exchange.faults import Faults
from rbptrack.exchange.imported import KnownModels, record_of
from rbptrack.tracking import limits
from rbptrack.tracking.record import Record
from rbptrack.tracking.rules import MeasurementRow, faults
from rbptrack.tracking.schema import is_result

_NEEDED = ("model", "dataset")
_IDENTITY = ("dataset", "model", "family", "size", "dtype", "sequence", "seq_len", "context", "training_tokens")
"""Two rows that agree in these are the same measurement twice."""

Row = tuple[str, dict[str, Any]]  # its place, and column -> value of the cells that are not empty


def read(path: Path, models: KnownModels, rules: type[MeasurementRow]) -> list[Record]:
    """Read one record per row of a CSV or Parquet table, all of it checked.

    Columns: model, dataset, and ce or rbp_<k> are needed, and non_embedding_params with most rules; family, size,
    num_tokens, vocab_size, seq_len, context, num_documents, total_params, training_tokens, bits_per_byte, tie_rate,
    dtype, sequence and standard errors (`<metric>_se`) are taken where present. An empty cell is missing.

    Raises:
        BadInput: the file is no such table, or values cannot be; names rows and columns.

    """
    problems = Faults(path)
    columns, rows = (_parquet if path.suffix == ".parquet" else _csv)(path, problems)
    taken = _taken(path, columns, rules)
    records, places = list[Record](), dict[tuple[object, ...], str]()
    for place, cells in rows:
        if not cells:
            problems.add(place, "the row is empty")
            continue
        try:
            row = rules.of(_named({c: v for c, v in cells.items() if c in taken}, models))
        except ValidationError as error:
            problems.extend(place, faults(error))
            continue
        identity = tuple(getattr(row, name) for name in _IDENTITY)
        if identity in places:
            problems.add(place, f"is the same measurement as {places[identity]}: {row.model} on {row.dataset}")
        places.setdefault(identity, place)
        records.append(record_of(row, kind="table", source=path))
    if not records and not len(problems):
        raise BadInput(f"{path} holds no row: nothing to import")
    problems.refuse()
    return records


def _taken(path: Path, columns: Sequence[str], rules: type[MeasurementRow]) -> set[str]:
    """The columns that are read; BadInput where one that is needed is missing, or one is there twice."""
    if long := next((c for c in columns if len(c) > limits.COLUMN_NAME), ""):
        raise BadInput(f"{path} has a column whose name has {len(long)} characters, {long[:40]}...; none has that many")
    fields = set(rules.model_fields) - {"rbp", "errors"}
    taken = {c for c in columns if c in fields or is_result(c) or c.startswith("rbp_")}
    lacking = [c for c in _NEEDED if c not in taken] + ([] if any(map(is_result, taken)) else ["ce or rbp_<k>"])
    if lacking:
        listed = ", ".join(columns)
        raise BadInput(f"{path} lacks the column {', '.join(lacking)}; it has {listed[:300] or 'none'}")
    twice = sorted({c for c in taken if columns.count(c) > 1})
    if twice:
        raise BadInput(f"{path} has the column {', '.join(twice)} more than once")
    return taken


def _named(cells: Mapping[str, Any], models: KnownModels) -> dict[str, Any]:
    """The cells, with family and size read off the model where the table does not give them."""
    family, size = models.split(str(cells.get("model", "")))
    return {"family": family or None, "size": size, **cells}


def _csv(path: Path, problems: Faults) -> tuple[list[str], Iterator[Row]]:
    if (size := path.stat().st_size) > limits.BYTES_OF_TABLE:
        raise BadInput(f"{path} has {size:,} bytes; a table has at most {limits.BYTES_OF_TABLE:,}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start:,}): save it as UTF-8") from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = [cell.strip() for cell in next(reader, [])]
    except csv.Error as error:
        raise BadInput(f"{path}, line 1: is not CSV: {error}") from error
    if not columns:
        raise BadInput(f"{path} is empty: expected a line of column names, then a row per measurement")

    def rows() -> Iterator[Row]:
        for number in count():
            place = f"line {reader.line_num + 1}"
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                problems.add(place, f"is not CSV: {error}")
                return
            if number >= limits.ROWS_OF_TABLE:
                raise BadInput(f"{path} has more than {limits.ROWS_OF_TABLE:,} rows")
            if cells and len(cells) != len(columns):
                problems.add(place, f"has {len(cells)} cells, but there are {len(columns)} columns")
            elif cells:  # a line without anything is no row
                yield place, {c: from_spreadsheet(v) for c, v in zip(columns, cells, strict=True) if v.strip()}

    return columns, rows()


def _longest(column: pa.ChunkedArray) -> int:
    """The most bytes of a text of a column; 0 where it holds none."""
    kept = [chunk.dictionary for chunk in column.chunks if pa.types.is_dictionary(chunk.type)]
    return max((pc.max(pc.binary_length(texts)).as_py() or 0 for texts in kept if len(texts)), default=0)


def _parquet(path: Path, problems: Faults) -> tuple[list[str], Iterator[Row]]:
    try:
        if limits.check_parquet(path, most=limits.BYTES_OF_TABLE).num_rows > limits.ROWS_OF_TABLE:
            raise BadInput(f"{path} has more than {limits.ROWS_OF_TABLE:,} rows")
        names = pq.read_schema(path).names
        with pq.ParquetFile(path, read_dictionary=names) as file:  # one long text may stand in every row
            table = file.read()
        if long := next((n for n in names if _longest(table.column(n)) > limits.CELL), ""):
            raise BadInput(f"{path}, column {long}: a cell has at most {limits.CELL:,} characters")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a table: {first_line(error)[:200]}") from error

    def rows() -> Iterator[Row]:
        for number, cells in enumerate(table.to_pylist(), start=1):
            yield f"row {number}", {c: v for c, v in cells.items() if v is not None and v == v and v != ""}

    return list(table.column_names), rows()
