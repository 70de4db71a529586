"""Tests of the cache of tables: a table is made once, and again only if its file is damaged or cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from rbptrack.sources.cache import cached_table, root
from tests.conftest import block_reading

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture
def make_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], pa.Table]:
    """Use an empty cache. Returns a function that makes a table with the numbers of its calls: [0], [0, 1], ..."""
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    calls: list[int] = []

    def table_of_calls() -> pa.Table:
        calls.append(len(calls))
        return pa.table({"a": calls})

    return table_of_calls


def test_cached_table_makes_a_table_once(make_table: Callable[[], pa.Table]) -> None:
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0]
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0]


def test_cached_table_makes_a_table_again_if_its_file_was_cut(make_table: Callable[[], pa.Table]) -> None:
    cached_table("documents/x", SCHEMA, make_table)
    path = root() / "documents/x.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0, 1]
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0, 1]


def test_cached_table_makes_a_table_again_if_its_file_has_another_schema(make_table: Callable[[], pa.Table]) -> None:
    cached_table("documents/x", SCHEMA, make_table)
    path = root() / "documents/x.parquet"
    # The column's name stands in the schema at the end of the file, which no checksum covers.
    damaged = path.read_bytes().replace(b"\x18\x01a", b"\x18\x01b")
    path.write_bytes(damaged)
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0, 1]


def test_cached_table_makes_a_table_again_if_its_file_cannot_be_opened(make_table: Callable[[], pa.Table]) -> None:
    cached_table("documents/x", SCHEMA, make_table)
    block_reading(root() / "documents/x.parquet")
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0, 1]


def test_cached_table_makes_a_table_at_each_call_if_the_cache_cannot_be_written(
    make_table: Callable[[], pa.Table], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file in place of the folder")
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0]
    assert cached_table("documents/x", SCHEMA, make_table)["a"].to_pylist() == [0, 1]
