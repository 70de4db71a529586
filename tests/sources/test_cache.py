"""A cached table is made once; a damaged one again; without a folder to write in, each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rbptrack.sources.cache import cached_table, folder

SCHEMA = pa.schema({"a": pa.int64()})


def test_a_table_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    made: list[int] = []

    def make() -> pa.Table:
        made.append(len(made))
        return pa.table({"a": made})

    assert cached_table("documents/x", SCHEMA, make).equals(cached_table("documents/x", SCHEMA, make))
    assert made == [0]
    path = folder() / "documents/x.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert cached_table("documents/x", SCHEMA, make)["a"].to_pylist() == [0, 1]
    assert cached_table("documents/x", SCHEMA, make)["a"].to_pylist() == [0, 1]
    path.write_bytes(path.read_bytes().replace(b"\x18\x01a", b"\x18\x01b"))  # the column's name, in the file's end
    assert cached_table("documents/x", SCHEMA, make)["a"].to_pylist() == [0, 1, 2]


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where the folder belongs")
    monkeypatch.setenv("RBPTRACK_CACHE", str(tmp_path / "cache"))
    for number in (1, 2):
        assert cached_table("documents/x", SCHEMA, lambda n=number: pa.table({"a": [n]}))["a"].to_pylist() == [number]  # type: ignore[misc]
