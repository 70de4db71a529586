"""Read and write Parquet files with checksums, which are verified on reading.

Every page has a CRC-32, as the format provides. The footer has one, too, in the four bytes before it, where other
readers of Parquet do not look. The footer holds the names and types of the columns and the statistics of row groups.
Without its checksum, a flipped bit in the name of an optional column would look like a file without this column.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rbptrack.base.errors import MissingArtifact, first_line
from rbptrack.base.files import replacing

_CHECKSUM_BYTES = 4
_ROWS = 2**17  # rows that are read at once; each of their columns takes about 1 MB


class TableWriter:
    """A context manager that writes a table in pieces, one row group each.

    When the block ends, the whole file is on the disk. If the block raises an exception, no file is written.

    Args:
        path: the file.
        schema: the columns, and metadata to store in the file.

    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        floats = {
            field.name for field in self._schema if pa.types.is_floating(field.type)
        }  # their values rarely repeat
        temporary = self._resources.enter_context(replacing(self._path))
        self._resources.enter_context(_checked_footer(temporary))
        self._file = self._resources.enter_context(
            pq.ParquetWriter(
                temporary,
                self._schema,
                compression={name: "none" if name in floats else "zstd" for name in self._schema.names},
                use_dictionary=[name for name in self._schema.names if name not in floats],
                write_page_checksum=True,
            )
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.__exit__(kind, error, trace)

    def add(self, table: pa.Table) -> None:
        """Append a row group."""
        self._file.write_table(table)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table as one file, completely or not at all. It is on the disk when the function returns."""
    with TableWriter(path, table.schema) as file:
        file.add(table)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table with its metadata. If `columns` is given, read only those of them that the file has.

    Raises:
        MissingArtifact: the file does not exist or is damaged.

    """
    with _open_checked(path) as file:
        return file.read(columns=_present(file, columns))


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a table in batches of rows, each with the file's metadata.

    Raises MissingArtifact if the file does not exist or is damaged.
    """
    with _open_checked(path) as file:
        wanted = _present(file, columns)
        for batch in file.iter_batches(batch_size=_ROWS, columns=wanted):
            yield pa.Table.from_batches([batch])


def read_rows(path: Path, column: str, values: Collection[int]) -> pa.Table:
    """Read the rows in which a column of whole numbers has one of the given values.

    Row groups that the file's statistics rule out are not read. Raises MissingArtifact if the file does not exist or is
    damaged.
    """
    ascending = np.unique(np.fromiter(values, np.int64))
    wanted = pa.array(ascending)
    with _open_checked(path) as file:
        place = file.schema_arrow.names.index(column)
        pieces = [file.schema_arrow.empty_table()]
        for group in range(file.num_row_groups):
            ends = file.metadata.row_group(group).column(place).statistics
            if ends is not None and ends.has_min_max:
                if not ((ascending >= ends.min) & (ascending <= ends.max)).any():
                    continue
            for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group]):
                rows = pa.Table.from_batches([batch])
                chosen = pc.is_in(rows.column(column).cast(pa.int64()), value_set=wanted)
                pieces.append(rows.filter(chosen))
        return pa.concat_tables(pieces).combine_chunks()


@contextmanager
def _open_checked(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as raw:
            footer = _footer(raw)
            raw.seek(-len(footer) - _CHECKSUM_BYTES, os.SEEK_END)
            if raw.read(_CHECKSUM_BYTES) != _checksum(footer):
                raise ValueError("the checksum of its footer is wrong")
            yield pq.ParquetFile(raw, page_checksum_verification=True)
    except GeneratorExit:
        raise
    except FileNotFoundError as error:
        raise MissingArtifact(f"{path} does not exist") from error
    except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
        raise MissingArtifact(
            f"{path} is damaged or cannot be read ({first_line(error)}): restore it from a copy, or measure again "
            "with force=true"
        ) from error


@contextmanager
def _checked_footer(path: Path) -> Iterator[None]:
    """Put the checksum of the footer before the footer of the Parquet file that the block writes."""
    yield
    with path.open("r+b") as file:
        footer = _footer(file)
        file.seek(-len(footer), os.SEEK_END)
        file.write(_checksum(footer) + footer)


def _footer(file: BinaryIO) -> bytes:
    """Return the end of a Parquet file: the footer, its length (4 bytes, little-endian) and the magic number (4)."""
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-length - 8, os.SEEK_END)
    return file.read()


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _present(file: Any, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    names = file.schema_arrow.names
    return [name for name in columns if name in names]
