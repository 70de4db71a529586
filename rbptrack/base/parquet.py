"""Parquet files that are verified when they are read: damaged bytes are an error and never other numbers.

Two checks stand in each file. Every page has the checksum of the Parquet format (CRC-32), which any reader can verify.
The footer holds a SHA-256 over names, types and values of the columns and over the file's own metadata, because the
pages' checksums cover neither headers nor footer. A file without it (of an earlier version, or of another program) is
read without the second check. A process that reads a file in groups several times makes the second check once, unless
the file has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.files import put

_KEY = b"rbptrack.sha256"
_SETTLED_NS = 2_000_000_000  # a file that changed so lately may change again within its clock's tick
_FEW_ROWS = 100_000  # that one thread reads in less time than several
_verified_files: set[tuple[int, int, int, int]] = set()  # device, inode, size and time of change


class Damaged(RbptrackError):
    """A file's content has changed since it was written."""


class TableWriter:
    """Writes a table in pieces, one row group each; the file is there whole or not at all. A context manager.

    Args:
        path: the file.
        schema: flat columns of fixed width without nulls, and the metadata to keep.
        durable: whether the file is on the disk at the end, because something relies on it after a power cut.

    """

    def __init__(self, path: Path, schema: pa.Schema, *, durable: bool = False) -> None:
        self._path = path
        self._unfinished = path.with_name(path.name + ".tmp")
        self._durable = durable
        self._metadata = schema.metadata or {}
        self._digest = _Digest(schema)
        floats = {field.name for field in schema if pa.types.is_floating(field.type)}  # hardly two are the same
        self._file = pq.ParquetWriter(
            self._unfinished,
            schema,
            compression={name: "none" if name in floats else "zstd" for name in schema.names},
            use_dictionary=[name for name in schema.names if name not in floats],
            write_page_checksum=True,
            store_schema=False,  # Arrow's copy of schema and metadata would hide the metadata added at the end
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._file.add_key_value_metadata({**self._metadata, _KEY: self._digest.hex()})
            self._file.close()
            if error is None:
                put(self._unfinished, self._path, durable=self._durable)
        finally:
            self._unfinished.unlink(missing_ok=True)

    def add(self, table: pa.Table) -> None:
        """Append a row group."""
        self._digest.update(table)
        self._file.write_table(table)


def write(table: pa.Table, path: Path, *, durable: bool = False) -> None:
    """Write a table as one file, whole or not at all; see `TableWriter`."""
    with TableWriter(path, table.schema, durable=durable) as file:
        file.add(table)


def read(path: Path) -> pa.Table:
    """Read a table, its metadata included.

    Raises:
        Damaged: the bytes are not those that were written.
        OSError: the file does not exist or cannot be opened.

    """
    with path.open("rb") as file:  # outside the try: a file that cannot be opened is not damaged
        try:
            return _verified(pq.read_table(file, page_checksum_verification=True))
        except Exception as error:  # damaged bytes make Arrow raise exceptions of every kind
            raise _damaged(path, error) from error


def read_groups(
    path: Path, *, ascending: str = "", columns: Sequence[str] | None = None
) -> Iterator[tuple[pa.Table, bool]]:
    """Read a table one row group at a time, each with the file's metadata; and whether more are to come.

    Args:
        path: the file.
        ascending: a column; where its values do not rise from group to group, the whole comes as one.
        columns: those that are needed, by default all; while a file is verified, all are read and returned.

    Raises:
        Damaged: the bytes are not those that were written; of some damage this is known after the last group only.
        OSError: the file does not exist or cannot be opened.

    """
    with path.open("rb") as file:
        try:
            opened = pq.ParquetFile(file, page_checksum_verification=True)
            metadata = dict(opened.schema_arrow.metadata or {})
            expected = metadata.pop(_KEY, None)
            identity = _identity(file.fileno())
            check = expected is not None and identity not in _verified_files
            digest = _Digest(opened.schema_arrow.with_metadata(metadata or None))
            groups = [[number] for number in range(opened.num_row_groups)]
            if ascending and not _ascending(opened, ascending):
                groups = [[number for group in groups for number in group]]
            threads = opened.metadata.num_rows > _FEW_ROWS
            for group in groups:
                table = opened.read_row_groups(group, columns=None if check else columns, use_threads=threads)
                table = table.replace_schema_metadata(metadata or None)
                if check:
                    digest.update(table)
                yield table, group is not groups[-1]
            if check and digest.hex() != expected.decode():
                raise ValueError("its content does not match its checksum")
            if time.time_ns() - identity[3] > _SETTLED_NS:
                _verified_files.add(identity)
        except GeneratorExit:
            raise
        except Exception as error:
            raise _damaged(path, error) from error


def _identity(descriptor: int) -> tuple[int, int, int, int]:
    """Return a value that changes when an open file changes."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _ascending(file: pq.ParquetFile, column: str) -> bool:
    """Return whether no row group has a value below one of an earlier group's in this column; False where it is not
    known.
    """
    place = file.schema_arrow.get_field_index(column)
    groups = range(file.num_row_groups)
    statistics = [file.metadata.row_group(number).column(place).statistics for number in groups]
    if not all(group is not None and group.has_min_max for group in statistics):
        return len(statistics) == 1
    return all(before.max <= after.min for before, after in pairwise(statistics))


def _damaged(path: Path, error: Exception) -> Damaged:
    return Damaged(f"{path} is damaged ({first_line(error)}): restore it from a copy, or measure again with force=true")


def _verified(table: pa.Table) -> pa.Table:
    """Return the table without its checksum; ValueError if that does not match."""
    metadata = dict(table.schema.metadata or {})
    expected = metadata.pop(_KEY, None)
    table = table.replace_schema_metadata(metadata or None)
    digest = _Digest(table.schema)
    if expected is not None:
        digest.update(table)
        if digest.hex() != expected.decode():
            raise ValueError("its content does not match its checksum")
    return table


class _Digest:
    """SHA-256 of a table that arrives in pieces; how it was cut does not change the result."""

    def __init__(self, schema: pa.Schema) -> None:
        metadata = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items()}
        columns = [(field.name, str(field.type)) for field in schema]
        self._head = json.dumps([metadata, columns], sort_keys=True).encode()
        self._columns = {field.name: hashlib.sha256() for field in schema}

    def update(self, table: pa.Table) -> None:
        for name, total in self._columns.items():
            for chunk in table.column(name).chunks:
                total.update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)).data)

    def hex(self) -> str:
        whole = hashlib.sha256(self._head)
        for column in self._columns.values():
            whole.update(column.digest())
        return whole.hexdigest()
