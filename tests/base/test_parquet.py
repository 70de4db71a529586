"""Tests of Parquet files: a file is written completely or not at all, and damage is an error, never a wrong number."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.base.errors import FileAccessError, MissingArtifact
from rbptrack.base.parquet import read_batches, read_table, write_table, writing_table
from tests.conftest import block_reading


@pytest.fixture
def table() -> pa.Table:
    """Return 3,000 rows with whole numbers, float32 and texts, and one entry of metadata."""
    rng = np.random.default_rng(0)
    columns = {
        "token": pa.array(rng.integers(4096, size=3000), pa.int32()),
        "logprob": pa.array(-rng.exponential(size=3000), pa.float32()),
        "id": pa.array([f"text {i}" for i in range(3000)]),
    }
    return pa.table(columns).replace_schema_metadata({"format": "1"})


def test_read_table_returns_the_table_that_write_table_wrote(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    read = read_table(path)
    assert read.equals(table)
    assert read.schema.metadata[b"format"] == b"1"


def test_read_table_leaves_out_columns_that_the_file_lacks(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    assert read_table(path, ["id", "nothing"]).column_names == ["id"]


def test_read_batches_yields_batches_of_equal_length(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.base.parquet._BATCH_ROWS", 1500)
    path = tmp_path / "t.parquet"
    with writing_table(path, table.schema) as writer:
        writer.write_table(table.slice(0, 1000))
        assert not path.exists()
        writer.write_table(table.slice(1000))
    batches = list(read_batches(path))
    assert [len(batch) for batch in batches] == [1500, 1500]
    assert pa.concat_tables(batches).equals(table)


def test_read_batches_reads_only_the_columns_asked_for(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.base.parquet._BATCH_ROWS", 1500)
    path = tmp_path / "t.parquet"
    with writing_table(path, table.schema) as writer:
        writer.write_table(table)
    assert [batch.column_names for batch in read_batches(path, ["token"])] == [["token"], ["token"]]


def test_writing_table_leaves_no_file_after_an_interrupt(tmp_path: Path, table: pa.Table) -> None:
    def write() -> None:
        with writing_table(tmp_path / "t.parquet", table.schema) as writer:
            writer.write_table(table)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_read_table_reports_a_file_that_was_cut_in_one_line(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    content = path.read_bytes()
    for size in (0, 3, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(MissingArtifact) as caught:
            read_table(path)
        assert "\n" not in str(caught.value)


def test_read_table_reports_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact):
        read_table(tmp_path / "t.parquet")


def test_read_table_refuses_a_fifo_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.parquet")
    with pytest.raises(MissingArtifact):
        read_table(tmp_path / "t.parquet")


def test_read_batches_reports_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact):
        list(read_batches(tmp_path / "t.parquet"))


def test_read_table_reports_why_the_system_cannot_open_a_file(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    block_reading(path)
    with pytest.raises(FileAccessError, match=os.strerror(errno.ELOOP)):
        read_table(path)


@contextmanager
def no_file_can_be_opened() -> Iterator[None]:
    """Forbid this process to open another file while a block runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_read_table_reports_too_many_open_files(tmp_path: Path) -> None:
    with no_file_can_be_opened(), pytest.raises(FileAccessError, match=os.strerror(errno.EMFILE)):
        read_table(tmp_path / "t.parquet")


def test_read_table_never_returns_another_number_after_a_flipped_bit(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    content = path.read_bytes()
    footer_bytes = 4 + int.from_bytes(content[-8:-4], "little") + 8  # with its checksum
    rng = np.random.default_rng(1)
    errors = 0
    for offset in rng.integers(4, len(content) - footer_bytes, size=200):
        damaged = bytearray(content)
        damaged[offset] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            # A bit of a page's header that no reader needs may be flipped without an error.
            assert read_table(path).equals(table)
        except MissingArtifact:
            errors += 1
    assert errors > 180


def test_read_table_notices_every_flipped_bit_of_the_footer(tmp_path: Path, table: pa.Table) -> None:
    """The footer holds names and types of columns. A renamed column must not look like a file without this column."""
    path = tmp_path / "t.parquet"
    write_table(path, table)
    content = path.read_bytes()
    footer_bytes = 4 + int.from_bytes(content[-8:-4], "little") + 8  # with its checksum
    for offset in range(len(content) - footer_bytes, len(content)):
        damaged = bytearray(content)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with pytest.raises(MissingArtifact):
            read_table(path, ["id"])


def test_other_readers_of_parquet_read_a_file_with_a_checksum_of_its_footer(tmp_path: Path, table: pa.Table) -> None:
    write_table(tmp_path / "t.parquet", table)
    assert pq.read_table(tmp_path / "t.parquet").equals(table)
    assert pq.read_metadata(tmp_path / "t.parquet").num_rows == len(table)
