"""Reads the rows of data files. Only named columns are read, and the cells of CSV files are read as texts.

`datasets` is not used for CSV and JSON files, because it guesses a type for each column. It reads None and NA as
missing, 007 as 7 and 2020-01-01 as a time, and fails if a later row does not have the guessed type.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import zstandard

from rbptrack.sources.pin import file_ending, file_format

ID_KEY = "__rbptrack_id__"
"""The key under which `read_rows` adds an ID to a row: the file's name and, except for text files, the row's number."""

_CELLS_AS_TEXT: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}  # for pandas.read_csv
_ROWS_PER_PIECE = 1000
_MAX_SEARCHED_ROWS = 10_000  # rows of a JSON file that `find_columns` reads

Row = dict[str, Any]


def read_rows(files: Sequence[str], columns: Collection[str], csv_options: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of files. A row holds its ID, and the values of those named columns that it has.

    Args:
        files: paths, or addresses that `datasets` can open, such as hf://datasets/org/name@commit/train.jsonl.zst.
        columns: the columns to read.
        csv_options: options of `pandas.read_csv` for the CSV files, such as `sep`.

    Raises:
        ValueError, OSError, EOFError: a file is damaged. If the line is known, the message names it.

    """
    for file in files:
        name = file.rpartition("/")[2]
        is_text = file_format(file) == "text"
        for number, row in enumerate(_rows_of_file(file, columns, csv_options)):
            cells = {column: row[column] for column in columns if column in row}
            yield {ID_KEY: name if is_text else f"{name}:{number}", **cells}


def find_columns(file: str, named_columns: Collection[str], csv_options: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's columns.

    A JSON file has no list of columns. Its rows are read until all named columns have appeared, at most 10,000 rows.
    """
    format_ = file_format(file)
    if format_ == "parquet":
        import pyarrow.parquet as pq

        with _open(file) as data:
            return list(pq.read_schema(data).names)
    if format_ == "csv":
        import pandas as pd

        with _open(file) as data:
            return list(map(str, pd.read_csv(data, **_pandas_options(file, csv_options) | {"nrows": 0}).columns))
    columns: dict[str, None] = {}
    for number, row in enumerate(_rows_of_file(file, named_columns, csv_options)):
        columns |= dict.fromkeys(row)
        if number == _MAX_SEARCHED_ROWS or columns.keys() >= set(named_columns):
            break
    return list(columns)


def _rows_of_file(file: str, columns: Collection[str], csv_options: Mapping[str, Any]) -> Iterator[Row]:
    format_ = file_format(file)
    with _open(file) as data:
        if format_ == "text":
            with io.TextIOWrapper(data, encoding="utf-8-sig", newline="") as text:  # newline="" keeps carriage returns
                yield {"text": text.read()}
        elif format_ == "json":
            yield from _json_rows(data)
        elif format_ == "csv":
            yield from _csv_rows(data, _pandas_options(file, csv_options))
        else:
            yield from _parquet_rows(data, columns)


def _json_rows(data: IO[bytes]) -> Iterator[Row]:
    """Yield the rows of a JSON file that holds an object per line, one array, or one object.

    Raises ValueError if the file is not JSON, or a row is not an object.
    """
    is_first = True
    for number, line in enumerate(data, start=1):
        text = line.decode("utf-8-sig" if is_first else "utf-8")
        if not text.strip():
            continue
        if is_first and text.lstrip().startswith("["):
            yield from _rows_of_one_value(text, data, number)
            return
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            if is_first and error.pos >= len(text.rstrip()):  # the object continues on the next line
                yield from _rows_of_one_value(text, data, number)
                return
            raise ValueError(f"line {number:,} is not JSON ({error.msg}, column {error.colno:,})") from error
        is_first = False
        yield _require_object(row, f"line {number:,}")


def _rows_of_one_value(beginning: str, data: IO[bytes], number: int) -> Iterator[Row]:
    """Yield the rows of a JSON file that holds one array or one object.

    `beginning` is the text that was already read, up to the end of line `number`. `data` is the rest of the file.
    """
    try:
        value = json.loads(beginning + data.read().decode())
    except json.JSONDecodeError as error:
        line = number + error.lineno - 1
        raise ValueError(f"line {line:,} is not JSON ({error.msg}, column {error.colno:,})") from error
    if not isinstance(value, list):
        yield _require_object(value, "the file")
        return
    for position, row in enumerate(value):
        yield {"text": row} if isinstance(row, str) else _require_object(row, f"element {position:,} of the array")


def _require_object(row: object, place: str) -> Row:
    if not isinstance(row, dict):
        raise ValueError(f"{place} is {json.dumps(row)[:40]}, not an object {{...}}")
    return row


def _pandas_options(file: str, csv_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `pandas.read_csv` for a file: `csv_options`, and those that rbptrack sets."""
    separator = {"sep": "\t"} if file_ending(file).startswith(".tsv") else {}
    encoding = {"encoding": csv_options.get("encoding") or "utf-8-sig"}
    return {**separator, **csv_options, **encoding, **_CELLS_AS_TEXT, "chunksize": None}


def _csv_rows(data: IO[bytes], pandas_options: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of a CSV file. Raises ValueError if its rows have more cells than its first line."""
    import pandas as pd

    with pd.read_csv(data, **pandas_options | {"chunksize": _ROWS_PER_PIECE}) as pieces:
        for piece in pieces:
            if not isinstance(piece.index, pd.RangeIndex):  # pandas took the first cells as names of rows
                raise ValueError("its rows have more cells than its first line has names")
            for row in piece.to_dict("records"):
                yield {str(name): value for name, value in row.items()}


def _parquet_rows(data: IO[bytes], columns: Collection[str]) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(data) as file:
        present_columns = [column for column in columns if column in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_PER_PIECE, columns=present_columns):
            yield from batch.to_pylist()


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    """Open a local file or an address, and decompress it if its name ends in .gz or .zst."""
    with ExitStack() as stack:
        if "://" in file:
            from datasets.utils.file_utils import xopen  # tries again if the connection breaks

            data = stack.enter_context(xopen(file, "rb"))
        else:
            data = stack.enter_context(open(file, "rb"))  # noqa: PTH123
        if file.lower().endswith(".gz"):
            data = stack.enter_context(gzip.open(data))
        elif file.lower().endswith(".zst"):
            frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            data = stack.enter_context(io.BufferedReader(frames))
        yield data
