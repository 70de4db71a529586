"""Parquet files: whole or not there, and damage in their pages is an error, never another number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rbptrack.base.errors import MissingArtifact
from rbptrack.base.parquet import TableWriter, read_batches, read_table, write_table


@pytest.fixture
def table() -> pa.Table:
    draw = np.random.default_rng(0)
    columns = {
        "token": pa.array(draw.integers(4096, size=3000), pa.int32()),
        "logprob": pa.array(-draw.exponential(size=3000), pa.float32()),
        "id": pa.array([f"text {i}" for i in range(3000)]),
    }
    return pa.table(columns).replace_schema_metadata({"about": "it"})


def test_read_table_returns_what_write_table_wrote(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    read = read_table(path)
    assert read.equals(table)
    assert read.schema.metadata[b"about"] == b"it"
    assert read_table(path, ["id", "nothing"]).column_names == ["id"]


def test_read_batches_yields_batches_of_equal_length(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.base.parquet._ROWS", 1500)
    path = tmp_path / "t.parquet"
    with TableWriter(path, table.schema) as file:
        file.add(table.slice(0, 1000))
        assert not path.exists()
        file.add(table.slice(1000))
    batches = list(read_batches(path))
    assert [len(batch) for batch in batches] == [1500, 1500]
    assert pa.concat_tables(batches).equals(table)
    assert [batch.column_names for batch in read_batches(path, ["token"])] == [["token"], ["token"]]


def test_table_writer_leaves_no_file_after_an_interrupt(tmp_path: Path, table: pa.Table) -> None:
    def write() -> None:
        with TableWriter(tmp_path / "t.parquet", table.schema) as file:
            file.add(table)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_read_table_reports_a_cut_or_missing_file_in_one_line(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(MissingArtifact) as caught:
            read_table(path)
        assert "\n" not in str(caught.value)
    path.unlink()
    for read in (read_table, lambda p: list(read_batches(p))):
        with pytest.raises(MissingArtifact):
            read(path)


def test_read_table_never_returns_another_number_after_a_flipped_bit(tmp_path: Path, table: pa.Table) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, table)
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    draw = np.random.default_rng(1)
    noticed = 0
    for at in draw.integers(4, len(whole) - footer, size=200):
        changed = bytearray(whole)
        changed[at] ^= 1 << int(draw.integers(8))
        path.write_bytes(changed)
        try:
            assert read_table(path).equals(table)  # a bit of a page's header that no reader needs
        except MissingArtifact:
            noticed += 1
    assert noticed > 180
