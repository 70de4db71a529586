"""Reads rows of data files. It reads only the named columns, and reads cells of CSV files as they are written.

`datasets` would guess a type for each column of a CSV or JSON file. It reads None and NA as missing, 007 as 7 and
2020-01-01 as a time, and fails if a later row contradicts the guess for any column.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import zstandard

from rbptrack.sources.pin import FILE_KINDS, file_kind

ID = "__rbptrack_id__"
"""The key under which `read_rows` adds a document ID to a row. The ID is the file's name and the row's number."""

_CSV: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}
_ROWS_PER_PIECE = 1000
_MAX_SEARCHED = 10_000  # rows of a JSON file; a column must appear in one of them

Row = dict[str, Any]


def read_rows(files: Sequence[str], columns: Collection[str], csv: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of files. A row holds its ID and the named columns that the file has for it.

    Args:
        files: paths, or addresses that `datasets` can open, such as hf://datasets/org/name@commit/train.jsonl.zst.
        columns: the columns to read.
        csv: options of `pandas.read_csv` for the CSV files, such as `sep`.

    Raises:
        ValueError, OSError, EOFError: a file is damaged. The message names the line, if it is known.

    """
    for file in files:
        kind = FILE_KINDS[file_kind(file)]
        name = file.rpartition("/")[2]
        for number, row in enumerate(_rows_of_file(file, columns, csv)):
            cells = {column: row[column] for column in columns if column in row}
            yield {ID: name if kind == "text" else f"{name}:{number}", **cells}


def columns_of(file: str, requested: Collection[str], csv: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's columns.

    A JSON file has no list of columns. Its rows are read until all wanted columns have appeared, but at most 10,000.
    """
    kind = FILE_KINDS[file_kind(file)]
    if kind == "parquet":
        import pyarrow.parquet as pq

        with _open(file) as data:
            return list(pq.read_schema(data).names)
    if kind == "csv":
        import pandas as pd

        with _open(file) as data:
            return list(map(str, pd.read_csv(data, **_csv_options(file, csv) | {"nrows": 0}).columns))
    columns: dict[str, None] = {}
    for number, row in enumerate(_rows_of_file(file, requested, csv)):
        columns |= dict.fromkeys(row)
        if number == _MAX_SEARCHED or columns.keys() >= set(requested):
            break
    return list(columns)


def _rows_of_file(file: str, columns: Collection[str], csv: Mapping[str, Any]) -> Iterator[Row]:
    kind = FILE_KINDS[file_kind(file)]
    with _open(file) as data:
        if kind == "text":
            with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:  # keeps carriage returns
                yield {"text": text.read()}
        elif kind == "json":
            yield from _json_rows(data)
        elif kind == "csv":
            yield from _csv_rows(data, _csv_options(file, csv))
        else:
            yield from _parquet_rows(data, columns)


def _json_rows(data: IO[bytes]) -> Iterator[Row]:
    """Yield the rows of a JSON file that holds an object per line, one array, or one object."""
    first = True
    for number, line in enumerate(data, start=1):
        text = line.decode("utf-8-sig" if first else "utf-8")
        if not text.strip():
            continue
        if first and text.lstrip().startswith("["):
            yield from _whole_json(text, data, number)
            return
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            if first and error.pos >= len(text.rstrip()):  # the object continues on the next line
                yield from _whole_json(text, data, number)
                return
            raise ValueError(f"line {number:,} is not JSON ({error.msg}, column {error.colno:,})") from error
        first = False
        yield _object(row, f"line {number:,}")


def _whole_json(begins: str, data: IO[bytes], number: int) -> Iterator[Row]:
    """Yield the rows of a JSON file that holds one array or one object.

    Args:
        begins: the text that was read already.
        data: the open file, after that text.
        number: the number of the last line that was read, from 1.

    """
    try:
        whole = json.loads(begins + data.read().decode())
    except json.JSONDecodeError as error:
        place = f"line {number + error.lineno - 1:,}"
        raise ValueError(f"{place} is not JSON ({error.msg}, column {error.colno:,})") from error
    if not isinstance(whole, list):
        yield _object(whole, "the file")
        return
    for position, row in enumerate(whole):
        yield {"text": row} if isinstance(row, str) else _object(row, f"element {position:,} of the array")


def _object(row: object, place: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"{place} is {json.dumps(row)[:40]}, not an object {{...}}")
    return row


def _csv_options(file: str, csv: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `pandas.read_csv`: a separator that the file's name implies, `csv`, and cells as text."""
    separator = {"sep": "\t"} if file_kind(file).startswith(".tsv") else {}
    encoding = {"encoding": csv.get("encoding") or "utf-8-sig"}
    return {**separator, **csv, **encoding, **_CSV, "chunksize": None}


def _csv_rows(data: IO[bytes], options: dict[str, Any]) -> Iterator[Row]:
    import pandas as pd

    with pd.read_csv(data, **options | {"chunksize": _ROWS_PER_PIECE}) as pieces:
        for piece in pieces:
            if not isinstance(piece.index, pd.RangeIndex):  # pandas took the first cells as names of rows
                raise ValueError("its rows have more cells than its first line has names")
            for row in piece.to_dict("records"):
                yield {str(name): value for name, value in row.items()}


def _parquet_rows(data: IO[bytes], columns: Collection[str]) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(data) as file:
        present = [column for column in columns if column in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_PER_PIECE, columns=present):
            yield from batch.to_pylist()


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    """Open a local file or an address, and decompress it if its name ends in .gz or .zst."""
    with ExitStack() as stack:
        if "://" in file:
            from datasets.utils.file_utils import xopen  # it tries again if a connection breaks

            data = stack.enter_context(xopen(file, "rb"))
        else:
            data = stack.enter_context(open(file, "rb"))  # noqa: PTH123
        if file.lower().endswith(".gz"):
            data = stack.enter_context(gzip.open(data))
        elif file.lower().endswith(".zst"):
            frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            data = stack.enter_context(io.BufferedReader(frames))
        yield data
