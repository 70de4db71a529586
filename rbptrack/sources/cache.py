"""Caches tables and lines that take long to compute, in the user's cache folder."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
from filelock import FileLock
from platformdirs import user_cache_path

from rbptrack.base.errors import BadInput, MissingArtifact
from rbptrack.base.files import write_whole
from rbptrack.base.parquet import read_table, write_table


def folder() -> Path:
    """Return rbptrack's cache folder: RBPTRACK_CACHE if it is set, otherwise the operating system's cache folder."""
    return Path(os.environ.get("RBPTRACK_CACHE") or user_cache_path("rbptrack")).absolute()


@functools.cache
def writable(folder: Path) -> Path:
    """Create a folder if it is missing, and return it.

    If the folder cannot be written, return a temporary folder instead. It is removed when the process ends.
    """
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    temporary = tempfile.mkdtemp(prefix="rbptrack-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def cached_table(name: str, schema: pa.Schema, make: Callable[[], pa.Table]) -> pa.Table:
    """Return the table that is cached under a name. If it is missing or damaged, make and cache it first.

    If several processes need the table, one makes it and the others wait. If the folder cannot be written, the table
    is made at every call.

    Args:
        name: the name of the table in the cache. It must change with everything that the table depends on.
        schema: the table's columns and types. The cached file is checked against them, because Parquet's checksums do
            not cover them.
        make: the function that makes the table.

    """
    path = folder() / f"{name}.parquet"
    with suppress(MissingArtifact):
        return _read(path, schema)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_suffix(".lock")))
        except OSError:
            return make()
        with suppress(MissingArtifact):
            return _read(path, schema)
        table = make()
        with suppress(OSError):
            write_table(path, table)
        return table


def cached_line(name: str, find_out: Callable[[], str]) -> str:
    """Return the line that is cached under a name. If it is missing or damaged, compute and cache it first.

    Args:
        name: the name of the line in the cache. It must change with everything that the line depends on.
        find_out: the function that computes the line.

    """
    path = folder() / f"{name}.txt"
    with suppress(OSError, ValueError):
        line, checksum = path.read_text("utf-8").split("\n")
        if checksum == _checksum(line):
            return line
    line = find_out()
    with suppress(OSError, BadInput):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{line}\n{_checksum(line)}")
    return line


def _checksum(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    table = read_table(path)
    if not table.schema.equals(schema):
        raise MissingArtifact(f"{path} is damaged: its columns are {table.schema.names}")
    return table
