"""Limits of files from others, in one table: larger ones are refused before they are unpacked.

Ours are far below. A bomb is small and unpacks to more than the memory or the disk holds; the limits are of what an
import may take of both, whatever a file says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pyarrow.parquet as pq

from rbptrack.base.errors import BadInput

ENTRIES = 100_000  # files of a bundle
ENTRIES_OF_ONE = 32  # of one measurement of a bundle
BYTES = {"json": 16 << 20, "png": 16 << 20, "parquet": 8 << 30}  # of a bundle's file, unpacked, by its kind
BYTES_OF_BUNDLE = 1 << 40  # of all its files, unpacked
BYTES_OF_TABLE = 64 << 20  # of results.csv or .parquet, unpacked
BYTES_OF_AUTHORS = {"metrics.json": 16 << 20, "ranks.json": 1 << 30}  # in memory JSON takes some eight times as much
BYTES_OF_ANSWER = 256 << 20  # of a serving engine's, to one request
IDS = 1 << 31  # of tokens
RATIO = 200  # times its size that a file may unpack to: Parquet is compressed already; JSON and PNG shrink less
RATIO_COUNTS_ABOVE = 1 << 20  # bytes, unpacked
ROWS_OF_TABLE = 100_000
ROWS_OF_RANKS = 1 << 31
RANKS_PER_BYTE = 10  # of a rank table; ours has about 0.2
COLUMN_NAME = 100  # characters
CELL = 8_000  # characters of a table's
TOKEN = 10_000  # characters
PIXELS = 50_000_000  # of a figure
TIME = 4102444800  # seconds since 1970: the year 2100


def out_of_proportion(unpacked: int, packed: int) -> bool:
    """Return whether something would unpack to more than it may for its size."""
    return unpacked > RATIO_COUNTS_ABOVE and unpacked > RATIO * max(packed, 1)


def check_parquet(path: Path, *, most: int) -> pq.FileMetaData:
    """Return the footer of a Parquet file that may be unpacked.

    Raises:
        BadInput: it would unpack to more than `most` bytes, or out of proportion to its size, or it is nested.
        Exception: of every kind, for damaged bytes.

    """
    about = pq.read_metadata(path)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(group.num_columns)]
    unpacked = sum(max(0, column.total_uncompressed_size) for column in columns)
    packed = min(path.stat().st_size, sum(max(0, column.total_compressed_size) for column in columns))
    unpacked = max(unpacked, _unpacked(path, columns))
    if unpacked > most:
        raise BadInput(f"{path.name} would unpack to {unpacked:,} bytes; at most {most:,} are allowed")
    if out_of_proportion(unpacked, packed):
        raise BadInput(f"{path.name} would unpack to {unpacked // max(packed, 1):,} times its size")
    return about


def _unpacked(path: Path, columns: Iterable[pq.ColumnChunkMetaData]) -> int:
    """Return bytes that a file's pages unpack to, by what stands before each: a footer may say less."""
    total = 0
    with path.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        for column in columns:
            at = column.dictionary_page_offset or column.data_page_offset
            end = at + column.total_compressed_size
            while at < end:
                try:
                    header, at = _structure(content, at)
                    unpacked = header[_UNPACKED]
                    packed = header[_PACKED]
                except (IndexError, KeyError, RecursionError) as error:
                    raise ValueError("a page's header is damaged") from error
                total = total + unpacked
                at = at + max(packed, 0)
    return total


_UNPACKED, _PACKED = 2, 3  # fields of a page's header in the Parquet format


def _structure(content: mmap, at: int) -> tuple[dict[int, int], int]:
    """Return the whole numbers of a structure in Thrift's compact protocol, by field, and where it ends."""
    fields = dict[int, int]()
    field = 0
    while byte := content[at]:
        at += 1
        if byte >> 4:
            field += byte >> 4
        else:
            field, at = _number(content, at)
        value, at = _value(content, at, byte & 15)
        fields[field] = value
    return fields, at + 1


def _value(content: mmap, at: int, kind: int) -> tuple[int, int]:
    """Return a value of a kind of Thrift's, if it is a whole number (else 0), and where it ends."""
    if kind in (1, 2):  # true, false
        return 0, at
    if kind in (4, 5, 6):
        return _number(content, at)
    if kind == 8:  # text
        length, at = _number(content, at, signed=False)
        return 0, at + length
    if kind == 12:
        return 0, _structure(content, at)[1]
    raise ValueError(f"no page's header holds a value of kind {kind}")


def _number(content: mmap, at: int, *, signed: bool = True) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at = at + 1
        value = value | (byte & 127) << shift
        shift = shift + 7
        if byte < 128:
            return (value >> 1 ^ -(value & 1)) if signed else value, at
        if shift > 63:
            raise ValueError("a number of a page's header does not end")
