"""Files of ranks that were cut or left unfinished, or that others wrote; flipped bits: test_flipped_bits.py."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.base import parquet
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import RankHistogram, RankTable


def ranks(tokens: int = 400) -> RankTable:
    draw = np.random.default_rng(0)
    return RankTable.from_arrays(
        vocab_size=4096,
        strict=True,
        document=np.sort(draw.integers(5, size=tokens)),
        position=np.arange(tokens),
        field=np.zeros(tokens),
        token=draw.integers(4096, size=tokens),
        greater=draw.integers(4000, size=tokens),
        ties=draw.integers(2, size=tokens),
        logprob=-draw.exponential(size=tokens).astype(np.float32),
    )


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "ranks.parquet"
    ranks().write(path)
    whole = path.read_bytes()
    for kept in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(parquet.Damaged, match=r"ranks\.parquet is damaged .*measure again with force=true"):
            RankTable.read(path)


def test_pieces_have_the_checksum_of_the_whole(tmp_path: Path) -> None:
    table = ranks().described()
    with parquet.TableWriter(tmp_path / "pieces.parquet", table.schema) as file:
        for low in (0, 100, 150):
            file.add(table.slice(low, {0: 100, 100: 50, 150: 250}[low]))
    parquet.write(table, tmp_path / "whole.parquet")
    pieces, whole = (pq.read_metadata(tmp_path / f"{name}.parquet") for name in ("pieces", "whole"))
    assert pieces.num_row_groups == 3
    assert pieces.metadata[b"rbptrack.sha256"] == whole.metadata[b"rbptrack.sha256"]
    assert parquet.read(tmp_path / "pieces.parquet").equals(table)


def test_an_unfinished_file_leaves_nothing(tmp_path: Path) -> None:
    table = ranks().described()

    def interrupted() -> None:
        with parquet.TableWriter(tmp_path / "x.parquet", table.schema) as file:
            file.add(table)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_files_of_earlier_versions_and_other_programs_are_read(tmp_path: Path) -> None:
    table = ranks()
    pq.write_table(table.described(), tmp_path / "old.parquet", compression="zstd")
    assert RankTable.read(tmp_path / "old.parquet").table.equals(table.table)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    for read in (RankTable.read, RankHistogram.read):
        with pytest.raises(RbptrackError, match=r"other\.parquet does not hold ranks of rbptrack"):
            read(tmp_path / "other.parquet")


def test_a_file_that_was_read_whole_is_checked_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, checks = tmp_path / "ranks.parquet", list[int]()
    whole = parquet._Digest.hex
    monkeypatch.setattr(parquet._Digest, "hex", lambda digest: (checks.append(1), whole(digest))[1])

    def write(tokens: int, *, age: float) -> None:
        ranks(tokens).write(path)
        os.utime(path, ns=(0, time.time_ns() - round(age * 1e9)))
        checks.clear()

    def read() -> int:
        return sum(table.num_rows for table in parquet.read_groups(path))

    write(400, age=60)
    assert (read(), read(), len(checks)) == (400, 400, 1), "once for all readings"
    write(401, age=50)
    assert (read(), len(checks)) == (401, 1)
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "_SETTLED_NS", 10**15)
        write(402, age=0)
        assert (read(), read(), len(checks)) == (402, 402, 2), "a file that may change within its clock's tick"
    with monkeypatch.context() as patch:
        patch.setattr(parquet._Digest, "hex", lambda _: "0" * 64)
        write(402, age=40)
    for _ in range(2):
        with pytest.raises(parquet.Damaged, match="does not match its checksum"):
            read()
