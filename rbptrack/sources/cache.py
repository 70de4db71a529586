"""Cache tables and lines of text that take long to compute, in rbptrack's cache folder."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
from filelock import FileLock
from platformdirs import user_cache_path

from rbptrack.base.errors import BadInput, FileAccessError, MissingArtifact
from rbptrack.base.files import write_whole
from rbptrack.base.parquet import read_table, write_table


def root() -> Path:
    """Return rbptrack's cache folder: RBPTRACK_CACHE, or else a folder in the operating system's cache of the user."""
    return Path(os.environ.get("RBPTRACK_CACHE") or user_cache_path("rbptrack")).absolute()


@functools.cache
def writable_folder(folder: Path) -> Path:
    """Return a folder, which is created if it is missing.

    If the folder cannot be written, return a temporary folder instead, which is removed when the process ends.
    """
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK):
        return folder
    temporary = tempfile.mkdtemp(prefix="rbptrack-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def cached_table(name: str, schema: pa.Schema, compute: Callable[[], pa.Table]) -> pa.Table:
    """Return the table that is cached under a name. If it cannot be read, compute and cache it first.

    If several processes need the table, one computes it and the others wait. If the cache folder cannot be written,
    the table is computed at every call.

    Args:
        name: the name of the table in the cache. It must change with everything that the table depends on.
        schema: the table's columns and types. The cached file is checked against them, because Parquet's checksums do
            not cover them.
        compute: the function that computes the table.

    """
    path = root() / f"{name}.parquet"
    with suppress(MissingArtifact, FileAccessError):
        return _read_checked(path, schema)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_suffix(".lock")))
        except OSError:
            return compute()
        with suppress(MissingArtifact, FileAccessError):  # another process may have computed it while this one waited
            return _read_checked(path, schema)
        table = compute()
        with suppress(OSError, BadInput):
            write_table(path, table)
        return table


def cached_line(name: str, compute: Callable[[], str]) -> str:
    """Return the line of text that is cached under a name. If it is missing or damaged, compute and cache it first.

    The name must change with everything that the line depends on.
    """
    line = find_line(name)
    if line:
        return line
    path = root() / f"{name}.txt"
    line = compute()
    with suppress(OSError, BadInput):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{line}\n{_checksum(line)}")
    return line


def find_line(name: str) -> str:
    """Return the line of text that is cached under a name; an empty text if it is missing or damaged."""
    with suppress(OSError, ValueError):
        line, checksum = (root() / f"{name}.txt").read_text("utf-8").split("\n")
        if checksum == _checksum(line):
            return line
    return ""


def hash_settings(settings: Mapping[str, object]) -> str:
    """Return the SHA-256 (hex) of settings by name. Their order does not matter."""
    text = json.dumps(dict(settings), sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()


def _read_checked(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a cached table. Raises MissingArtifact if it does not exist, is damaged, or has another schema."""
    table = read_table(path)
    if not table.schema.equals(schema):
        raise MissingArtifact(f"{path} is damaged: its columns are {table.schema.names}")
    return table
