"""Files of ranks: cut, left unfinished, written by others, read in pieces; flipped bits: test_flipped_bits.py."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.base import parquet
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable
from tests.synthetic import ranked

FIVE = np.repeat(np.arange(5), 80)


def ranks(documents: npt.ArrayLike = FIVE, *, strict: bool = True) -> RankTable:
    """Tokens of these documents, in this order, with numbers of their own."""
    tokens, draw = np.size(documents), np.random.default_rng(0)
    columns = {"document": documents, "token": draw.integers(4096, size=tokens)}
    columns |= {"ties": draw.integers(2, size=tokens), "logprob": -draw.exponential(size=tokens).astype(np.float32)}
    return ranked(1 + draw.integers(4000, size=tokens), vocab_size=4096, strict=strict, **columns)


def written(whole: RankTable, path: Path, *, groups: int) -> Path:
    """The table in a file of so many row groups."""
    described = whole.described()
    with parquet.TableWriter(path, described.schema) as file:
        for low, high in itertools.pairwise(np.linspace(0, len(whole), groups + 1).astype(int)):
            file.add(described.slice(low, high - low))
    return path


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
    files = [written(ranks(), tmp_path / f"{groups}.parquet", groups=groups) for groups in (1, 3)]
    whole, pieces = map(pq.read_metadata, files)
    assert (whole.num_row_groups, pieces.num_row_groups) == (1, 3)
    assert pieces.metadata[b"rbptrack.sha256"] == whole.metadata[b"rbptrack.sha256"]
    assert parquet.read(files[1]).equals(table)


@pytest.mark.parametrize("strict", [False, True])
def test_pieces_hold_whole_documents_and_count_the_same(tmp_path: Path, strict: bool) -> None:
    whole = ranks(np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 60, 40)), strict=strict)
    path = written(whole, tmp_path / "ranks.parquet", groups=12)
    pieces = list(RankTable.read_pieces(path))
    assert len(pieces) > 8
    assert max(map(len, pieces)) < len(whole) / 4
    assert {(p.vocab_size, p.strict) for p in pieces} == {(4096, strict)}
    assert RankTable.concatenate(pieces).table.equals(whole.table)
    for before, after in itertools.pairwise(pieces):
        assert before.column("document")[-1] < after.column("document")[0]
    counts = DocumentCounts.concatenate([piece.document_counts((1, 7, 200)) for piece in pieces])
    wanted = whole.document_counts((1, 7, 200))
    for name in ("document", "tokens", "nats", "hits"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(wanted, name))


def test_one_document_or_documents_out_of_order_are_one_piece(tmp_path: Path) -> None:
    for documents in ([3] * 90, [1] * 30 + [0] * 30 + [1] * 30, [0] * 30 + [1] * 30 + [0] * 30):
        path = written(ranks(documents), tmp_path / "ranks.parquet", groups=5)
        (piece,) = RankTable.read_pieces(path)
        assert piece.table.equals(ranks(documents).table)


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


def test_a_file_that_was_read_whole_is_checked_again_when_it_has_changed(tmp_path: Path) -> None:
    path, aged = tmp_path / "ranks.parquet", time.time_ns() - 60 * 10**9
    ranks().write(path)
    os.utime(path, ns=(0, aged))
    for _ in range(2):
        assert RankTable.concatenate(RankTable.read_pieces(path)).table.equals(ranks().table)
    checksum = {b"rbptrack.sha256": pq.read_metadata(path).metadata[b"rbptrack.sha256"]}
    other = ranks(FIVE[:-1]).described()
    pq.write_table(other.replace_schema_metadata({**other.schema.metadata, **checksum}), path)
    os.utime(path, ns=(0, aged + 1))
    for _ in range(2):
        with pytest.raises(parquet.Damaged, match="does not match its checksum"):
            list(RankTable.read_pieces(path))


def test_the_columns_of_version_1_are_read_alone_once_the_whole_file_was_verified(tmp_path: Path) -> None:
    later = {"entropy": np.ones(90), "top": np.arange(90), "top_logprob": -np.ones(90)}
    first = {name: ranks([0] * 45 + [1] * 45).column(name) for name in ranks().table.column_names[:7]}
    whole = RankTable.from_arrays(vocab_size=4096, **first, **later)
    path = written(whole, tmp_path / "ranks.parquet", groups=2)
    os.utime(path, ns=(0, time.time_ns() - 60 * 10**9))
    for _ in range(2):
        pieces = RankTable.concatenate(RankTable.read_pieces(path, version=1))
        assert pieces.table.equals(whole.of_version(1).table)
        assert RankTable.concatenate(RankTable.read_pieces(path)).table.equals(whole.table)
    (group, _), *_ = parquet.read_groups(path, columns=["document"])
    assert group.column_names == ["document"]
    other = RankTable.from_arrays(vocab_size=4096, **first, **{**later, "top": np.zeros(90)}).described()
    checksum = {b"rbptrack.sha256": pq.read_metadata(path).metadata[b"rbptrack.sha256"]}
    pq.write_table(other.replace_schema_metadata({**other.schema.metadata, **checksum}), path)
    for _ in range(2):
        with pytest.raises(parquet.Damaged, match="does not match its checksum"):
            list(RankTable.read_pieces(path, version=1))
