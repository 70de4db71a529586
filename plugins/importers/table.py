"""Plain tables of results: one measurement per row of a CSV or Parquet file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.analysis import BadInput
from rbptrack.analysis.importing import Fault, Imported, ImportedMeasurement, Importer, Peek, first_line, limits
from rbptrack.base.words import from_spreadsheet
from rbptrack.ranks import is_rbp_column

_TAKEN = (
    "dataset", "model", "family", "size", "non_embedding_params", "total_params", "training_tokens", "vocab_size",
    "seq_len", "context", "num_documents", "num_tokens", "dtype", "sequence", "ce", "bits_per_byte", "tie_rate",
)  # fmt: skip
_IDENTITY = ("dataset", "model", "family", "size", "dtype", "sequence", "seq_len", "context", "training_tokens")
"""Two rows that agree in these are the same measurement twice."""

Row = tuple[str, dict[str, Any]]  # its place, and column -> value of the cells that are not empty


@dataclass(kw_only=True)
class Table(Importer):
    """A CSV or Parquet table with a row per measurement: model, dataset, ce or rbp_<k>, non_embedding_params, ...

    Family, size, num_tokens, vocab_size, seq_len, context, num_documents, total_params, training_tokens, bits_per_byte,
    tie_rate, dtype, sequence and standard errors (`<metric>_se`) are taken where present. An empty cell is missing.

    Attributes:
        dataset: of every row, where the table has no such column.

    """

    name: ClassVar[str] = "table"
    dataset: str = ""

    def takes(self, file: Peek) -> bool:
        """Return a table that is none of scores."""
        is_of_scores = {"task", "score"} <= set(file.columns)
        return file.suffix in (".csv", ".parquet") and not is_of_scores

    def read(self, path: Path) -> Iterator[Imported]:
        """Yield a measurement per row."""
        problems = list[Fault]()
        columns, rows = rows_of_table(path, problems)
        taken = self._taken(path, columns)
        measured: dict[tuple[object, ...], str] = {}
        for place, cells in rows:
            if not cells:
                problems.append(Fault(place, "the row is empty"))
                continue
            row = {column: value for column, value in cells.items() if column in taken}
            if self.dataset:
                row["dataset"] = self.dataset
            identity = tuple(row.get(name) for name in _IDENTITY)
            if identity in measured:
                text = f"is the same measurement as {measured[identity]}: {row.get('model')} on {row.get('dataset')}"
                problems.append(Fault(place, text))
            measured.setdefault(identity, place)
            yield ImportedMeasurement(columns=row, place=place)
        if not measured and not len(problems):
            raise BadInput(f"{path} holds no row: nothing to import")
        yield from problems

    def _taken(self, path: Path, columns: Sequence[str]) -> set[str]:
        """Return the columns that are read; BadInput where one that is needed is missing, or one is there twice."""
        taken = {name for name in columns if name in _TAKEN or _is_result(name) or name.startswith("rbp_")}
        needed = ["model"] if self.dataset else ["model", "dataset"]
        lacking = [name for name in needed if name not in taken]
        if not any(map(_is_result, taken)):
            lacking.append("ce or rbp_<k>")
        if lacking:
            listed = ", ".join(columns)[:300] or "none"
            remedy = "; dataset=NAME gives the dataset of every row" if "dataset" in lacking else ""
            raise BadInput(f"{path} lacks the column {', '.join(lacking)}; it has {listed}{remedy}")
        if self.dataset and "dataset" in taken:
            raise BadInput(f"{path} has a column dataset: leave out dataset={self.dataset}")
        check_once(path, columns, taken)
        return taken


def check_once(path: Path, columns: Sequence[str], taken: Iterable[str]) -> None:
    """Raise BadInput where a column that is read stands in a table more than once."""
    if twice := sorted({name for name in taken if columns.count(name) > 1}):
        raise BadInput(f"{path} has the column {', '.join(twice)} more than once")


def rows_of_table(path: Path, problems: list[Fault]) -> tuple[list[str], Iterator[Row]]:
    """Read a CSV or Parquet table: its columns, and its rows with their places; columns of lists are not read.

    Raises:
        BadInput: it is none, or larger than tables may be; that is known before a row is read.

    """
    columns, rows = (_parquet if path.suffix.lower() == ".parquet" else _csv)(path, problems)
    if long := next((name for name in columns if len(name) > limits.COLUMN_NAME), ""):
        raise BadInput(f"{path} has a column whose name has {len(long)} characters ({long[:40]}...)")
    return columns, rows


def _is_result(column: str) -> bool:
    return column.removesuffix("_se") == "ce" or is_rbp_column(column.removesuffix("_se"))


def _csv(path: Path, problems: list[Fault]) -> tuple[list[str], Iterator[Row]]:
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
                problems.append(Fault(place, f"is not CSV: {error}"))
                return
            if number >= limits.ROWS_OF_TABLE:
                raise BadInput(f"{path} has more than {limits.ROWS_OF_TABLE:,} rows")
            if any(len(cell) > limits.CELL for cell in cells):
                problems.append(Fault(place, f"a cell has at most {limits.CELL:,} characters"))
            elif cells and len(cells) != len(columns):
                problems.append(Fault(place, f"has {len(cells)} cells for {len(columns)} columns"))
            elif cells:  # a line without anything is no row
                yield place, {c: from_spreadsheet(v) for c, v in zip(columns, cells, strict=True) if v.strip()}

    return columns, rows()


def _longest(column: pa.ChunkedArray) -> int:
    """Return the most bytes of a text of a column; 0 where it holds none."""
    kept = [chunk.dictionary for chunk in column.chunks if pa.types.is_dictionary(chunk.type)]
    return max((pc.max(pc.binary_length(texts)).as_py() or 0 for texts in kept if len(texts)), default=0)


def _parquet(path: Path, problems: list[Fault]) -> tuple[list[str], Iterator[Row]]:
    try:
        if limits.check_parquet(path, most=limits.BYTES_OF_TABLE).num_rows > limits.ROWS_OF_TABLE:
            raise BadInput(f"{path} has more than {limits.ROWS_OF_TABLE:,} rows")
        names = [field.name for field in pq.read_schema(path) if not pa.types.is_nested(field.type)]
        with pq.ParquetFile(path, read_dictionary=names) as file:  # one long text may stand in every row
            table = file.read(columns=names)
        if long := next((n for n in names if _longest(table.column(n)) > limits.CELL), ""):
            raise BadInput(f"{path}, column {long}: a cell has at most {limits.CELL:,} characters")
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read as a table: {first_line(error)[:200]}") from error

    def rows() -> Iterator[Row]:
        for number, cells in enumerate(table.to_pylist(), start=1):
            yield f"row {number}", {c: v for c, v in cells.items() if v is not None and v == v and v != ""}

    return list(table.column_names), rows()
