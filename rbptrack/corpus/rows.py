"""Read the rows of data files. Only named columns are read, and the cells of CSV files are read as texts."""

from __future__ import annotations

import gzip
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import IO, Any

import zstandard

from rbptrack.base.tables import (
    Row,
    csv_columns,
    csv_rows,
    find_separator,
    json_rows,
    parquet_columns,
    parquet_rows,
    read_text,
)
from rbptrack.sources.pin import file_ending, file_format

ID_KEY = "__rbptrack_id__"
"""The key under which `read_rows` adds an ID to a row: the file's name and, except for text files, the row's number."""

_MAX_SEARCHED_ROWS = 10_000  # rows of a JSON file that `find_columns` reads


def read_rows(files: Sequence[str], columns: Collection[str], csv_options: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of files. A row holds its ID, and the values of those named columns that it has.

    Args:
        files: paths, or addresses that `datasets` can open, such as hf://datasets/org/name@commit/train.jsonl.zst.
        columns: the columns to read.
        csv_options: options of `csv_rows` for the CSV files, and `separator`.

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
        return parquet_columns(partial(_open, file))
    if format_ == "csv":
        separator, options = _csv_arguments(file, csv_options)
        return csv_columns(partial(_open, file), separator, options)
    columns: dict[str, None] = {}
    for number, row in enumerate(_rows_of_file(file, named_columns, csv_options)):
        columns |= dict.fromkeys(row)
        if number == _MAX_SEARCHED_ROWS or columns.keys() >= set(named_columns):
            break
    return list(columns)


def _rows_of_file(file: str, columns: Collection[str], csv_options: Mapping[str, Any]) -> Iterator[Row]:
    format_ = file_format(file)
    open_file = partial(_open, file)
    if format_ == "text":
        yield {"text": read_text(open_file)}
        return
    if format_ == "json":
        placed_rows = json_rows(open_file)
    elif format_ == "csv":
        separator, options = _csv_arguments(file, csv_options)
        placed_rows = csv_rows(open_file, separator, columns, options)
    else:
        placed_rows = parquet_rows(open_file, columns)
    for _, row in placed_rows:
        yield row


def _csv_arguments(file: str, csv_options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the separator of a CSV file, and the other options of `csv_rows`."""
    options = dict(csv_options)
    default = "\t" if file_ending(file).startswith(".tsv") else ","
    return options.pop("separator", "") or find_separator(partial(_open, file), default), options


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
