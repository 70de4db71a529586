"""Rows of data files: cells of text files are text as written, and columns that nobody named are not read.

`datasets` would guess a type for every column of a CSV or JSON file. It reads None and NA as missing, 007 as 7 and
2020-01-01 as a time, and fails if the guess for any column does not fit a later row.
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
"""Key of the document ID that `read_rows` gives to a row: the file's name and the row's number."""

_CSV: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_filter": False}
_ROWS_OF_A_PIECE = 1000
_MAX_SEARCHED = 10_000  # rows in which a column of a JSON file must appear

Row = dict[str, Any]


def read_rows(files: Sequence[str], columns: Collection[str], csv: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of files, each with the named columns that it has and its ID.

    Args:
        files: paths, or addresses that `datasets` can open, such as hf://datasets/org/name@commit/train.jsonl.zst.
        columns: the columns that are read.
        csv: options of `pandas.read_csv` for the CSV files, such as `sep`.

    Raises:
        ValueError, OSError, EOFError: a file is damaged. The message has the place, where it is known.

    """
    for file in files:
        kind = FILE_KINDS[file_kind(file)]
        name = file.rpartition("/")[2]
        for number, row in enumerate(_rows_of_file(file, columns, csv)):
            wanted = {column: row[column] for column in columns if column in row}
            yield {ID: name if kind == "text" else f"{name}:{number}", **wanted}


def columns_of(file: str, wanted: Collection[str], csv: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's columns.

    A JSON file has no list of them. Its rows are read until all wanted columns have appeared, at most 10,000.
    """
    kind = FILE_KINDS[file_kind(file)]
    if kind == "parquet":
        import pyarrow.parquet as pq

        with _opened(file) as data:
            return list(pq.read_schema(data).names)
    if kind == "csv":
        import pandas as pd

        with _opened(file) as data:
            return list(map(str, pd.read_csv(data, **_csv_options(file, csv) | {"nrows": 0}).columns))
    found: dict[str, None] = {}
    for number, row in enumerate(_rows_of_file(file, wanted, csv)):
        found |= dict.fromkeys(row)
        if number == _MAX_SEARCHED or found.keys() >= set(wanted):
            break
    return list(found)


def _rows_of_file(file: str, columns: Collection[str], csv: Mapping[str, Any]) -> Iterator[Row]:
    kind = FILE_KINDS[file_kind(file)]
    with _opened(file) as data:
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
    """Yield the objects of JSON lines, the elements of one array, or the only object of a file."""
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
            if first and error.pos >= len(text.rstrip()):  # an object over several lines
                yield from _whole_json(text, data, number)
                return
            raise ValueError(f"line {number:,} is not JSON ({error.msg}, column {error.colno:,})") from error
        first = False
        yield _object(row, f"line {number:,}")


def _whole_json(begins: str, data: IO[bytes], number: int) -> Iterator[Row]:
    """Yield the rows of a file that holds one array or one object, of which line `number` was read."""
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
    """Return the arguments for pandas: a separator by the file's name, what is given, and that all cells are text."""
    separator = {"sep": "\t"} if file_kind(file).startswith(".tsv") else {}
    encoding = {"encoding": csv.get("encoding") or "utf-8-sig"}
    return {**separator, **csv, **encoding, **_CSV, "chunksize": None}


def _csv_rows(data: IO[bytes], options: dict[str, Any]) -> Iterator[Row]:
    import pandas as pd

    with pd.read_csv(data, **options | {"chunksize": _ROWS_OF_A_PIECE}) as pieces:
        for piece in pieces:
            if not isinstance(piece.index, pd.RangeIndex):  # pandas takes the first cells for names of rows
                raise ValueError("its rows have more cells than its first line has names")
            for row in piece.to_dict("records"):
                yield {str(name): value for name, value in row.items()}


def _parquet_rows(data: IO[bytes], columns: Collection[str]) -> Iterator[Row]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(data) as file:
        present = [column for column in columns if column in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_OF_A_PIECE, columns=present):
            yield from batch.to_pylist()


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Open a file of this machine or an address, and decompress it if its name says that it is compressed."""
    with ExitStack() as stack:
        if "://" in file:
            from datasets.utils.file_utils import xopen  # tries again where a connection breaks

            data = stack.enter_context(xopen(file, "rb"))
        else:
            data = stack.enter_context(open(file, "rb"))  # noqa: PTH123
        if file.lower().endswith(".gz"):
            data = stack.enter_context(gzip.open(data))
        elif file.lower().endswith(".zst"):
            frames = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            data = stack.enter_context(io.BufferedReader(frames))
        yield data
