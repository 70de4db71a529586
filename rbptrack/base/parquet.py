"""Read and write Parquet files with checksums, which are verified on reading.

Each page of data has a CRC-32, which is a part of the Parquet format. rbptrack also writes a CRC-32 of the footer into
the four bytes before it, which other readers of Parquet ignore. The footer holds the names and types of the columns and
the statistics of row groups. Without its checksum, a file in which a bit of an optional column's name has flipped would
be read as a file without this column.

Arrow reads without threads of its own. They would take more processor time than they save.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.base.errors import BadInput, MissingArtifact, file_access_error
from rbptrack.base.files import open_regular, replacing

_CHECKSUM_BYTES = 4
_BATCH_ROWS = 2**17  # rows that are read at once; each column of a batch takes about 1 MB


@contextmanager
def writing_table(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Yield a writer for a table. Each call of the writer's `write_table` adds a row group.

    When the block ends, the whole file is on the disk. If the block raises an exception, no file is written. The file
    also stores the metadata of the schema.
    """
    # Values of float columns rarely repeat, so a dictionary or compression would not make them smaller. If the bytes of
    # whole numbers are split into streams, zstd takes a third less time than with dictionaries, and 0 to 8% less space.
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    integers = [field.name for field in schema if pa.types.is_integer(field.type)]
    with replacing(path) as temporary:
        with pq.ParquetWriter(
            temporary,
            schema,
            compression={name: "none" if name in floats else "zstd" for name in schema.names},
            use_dictionary=[name for name in schema.names if name not in floats and name not in integers],
            column_encoding=dict.fromkeys(integers, "BYTE_STREAM_SPLIT"),
            write_page_checksum=True,
        ) as writer:
            yield writer
        with temporary.open("r+b") as file:
            footer = _read_footer(file)
            file.seek(-len(footer), os.SEEK_END)
            file.write(_checksum(footer) + footer)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as one file, completely or not at all. It is on the disk when the function returns."""
    with writing_table(path, table.schema) as writer:
        writer.write_table(table)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read some columns of a table, or all columns, with its metadata.

    Columns that the file does not have are left out.

    Raises:
        MissingArtifact: the file does not exist or is damaged.
        FileAccessError: the operating system cannot open or read the file.

    """
    with _open_checked(path) as file:
        return file.read(columns=_present_columns(file, columns), use_threads=False)


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield some columns of a table, or all columns, in batches of rows, each with the file's metadata.

    Columns that the file does not have are left out.

    Raises:
        MissingArtifact: the file does not exist or is damaged.
        FileAccessError: the operating system cannot open or read the file.

    """
    with _open_checked(path) as file:
        present = _present_columns(file, columns)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=present, use_threads=False):
            yield pa.Table.from_batches([batch])


def read_rows(path: Path, column: str, values: Collection[int]) -> pa.Table:
    """Read the rows in which a column of whole numbers has one of the given values, with all columns.

    A row group is not read if, by the file's statistics, it cannot hold any of the values.

    Raises:
        MissingArtifact: the file does not exist or is damaged.
        FileAccessError: the operating system cannot open or read the file.

    """
    wanted_values = np.unique(np.fromiter(values, np.int64))
    value_set = pa.array(wanted_values)
    with _open_checked(path) as file:
        column_number = file.schema_arrow.names.index(column)
        tables = [file.schema_arrow.empty_table()]
        for group in range(file.num_row_groups):
            statistics = file.metadata.row_group(group).column(column_number).statistics
            if statistics is not None and statistics.has_min_max:
                if not ((wanted_values >= statistics.min) & (wanted_values <= statistics.max)).any():
                    continue
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group], use_threads=False):
                rows = pa.Table.from_batches([batch])
                has_value = pc.is_in(rows.column(column).cast(pa.int64()), value_set=value_set)
                tables.append(rows.filter(has_value))
        return pa.concat_tables(tables).combine_chunks()


@contextmanager
def _open_checked(path: Path) -> Iterator[Any]:
    """Open a Parquet file for a block.

    Raises:
        MissingArtifact: the file does not exist, or the block finds damage.
        FileAccessError: the operating system cannot open or read the file.

    """
    try:
        with open_regular(path) as file:
            footer = _read_footer(file)
            file.seek(-len(footer) - _CHECKSUM_BYTES, os.SEEK_END)
            if file.read(_CHECKSUM_BYTES) != _checksum(footer):
                raise ValueError("the checksum of its footer is wrong")
            yield pq.ParquetFile(file, page_checksum_verification=True)
    except GeneratorExit:
        raise
    except FileNotFoundError as error:
        raise MissingArtifact(f"{path} does not exist") from error
    except BadInput as error:  # it is not a regular file
        raise MissingArtifact(f"{error}: restore it from a copy") from error
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise file_access_error(error, path) or MissingArtifact(
            f"{path} is damaged: restore it from a copy, or measure again with force=true"
        ) from error


def _read_footer(file: BinaryIO) -> bytes:
    """Read the end of a Parquet file: the footer, its length (4 bytes, little-endian) and the magic number (4)."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-length - 8, os.SEEK_END)
    return file.read()


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _present_columns(file: Any, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    return [name for name in columns if name in file.schema_arrow.names]
