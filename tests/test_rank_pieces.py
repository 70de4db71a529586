"""Rank tables that are read in pieces of whole documents: the same numbers, and never the whole table at once."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from rbptrack.base import parquet
from rbptrack.base.parquet import Damaged
from rbptrack.ranks import DocumentCounts, RankTable

KS = (1, 7, 200)


def table(documents: list[int], *, strict: bool = False) -> RankTable:
    """Tokens of these documents, in this order, with numbers of their own."""
    n, rng = len(documents), np.random.default_rng(len(documents))
    rank = rng.integers(1, 300, n)
    return RankTable.from_arrays(
        vocab_size=300,
        strict=strict,
        document=documents,
        position=np.arange(n),
        field=np.zeros(n),
        token=np.zeros(n),
        greater=rank - 1,
        ties=np.zeros(n),
        logprob=-rng.exponential(size=n),
    )


def written(whole: RankTable, path: Path, *, groups: int) -> Path:
    """The table in a file of so many row groups."""
    edges = np.linspace(0, len(whole), groups + 1).astype(int)
    described = whole.described()
    with parquet.TableWriter(path, described.schema) as file:
        for low, high in itertools.pairwise(edges):
            file.add(described.slice(low, high - low))
    return path


@pytest.mark.parametrize("strict", [False, True])
def test_pieces_hold_whole_documents_and_count_the_same(tmp_path: Path, strict: bool) -> None:
    documents = np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 60, 40)).tolist()
    whole = table(documents, strict=strict)
    path = written(whole, tmp_path / "ranks.parquet", groups=12)
    pieces = list(RankTable.read_pieces(path))
    assert len(pieces) > 8
    assert max(map(len, pieces)) < len(whole) / 4
    assert {(p.vocab_size, p.strict) for p in pieces} == {(300, strict)}
    assert RankTable.concatenate(pieces).table.equals(whole.table)
    for before, after in itertools.pairwise(pieces):
        assert before.column("document")[-1] < after.column("document")[0]
    counts = DocumentCounts.concatenate([piece.document_counts(KS) for piece in pieces])
    wanted = whole.document_counts(KS)
    for name in ("document", "tokens", "nats", "hits"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(wanted, name))


def test_one_document_or_documents_out_of_order_are_one_piece(tmp_path: Path) -> None:
    for documents in ([3] * 90, [1] * 30 + [0] * 30 + [1] * 30, [0] * 30 + [1] * 30 + [0] * 30):
        path = written(table(documents), tmp_path / "ranks.parquet", groups=5)
        (piece,) = RankTable.read_pieces(path)
        assert piece.table.equals(table(documents).table)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = written(table(list(np.repeat(np.arange(50), 40))), tmp_path / "ranks.parquet", groups=6)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match="restore it from a copy"):
        list(RankTable.read_pieces(path))


def test_a_file_with_another_checksum_is_found(tmp_path: Path) -> None:
    """Groups that are each as they were written, but not this file's."""
    one, other = table([0, 0, 1, 1]), table([0, 0, 1, 1, 2])
    path = tmp_path / "ranks.parquet"
    writer = parquet.TableWriter(path, one.described().schema)
    with writer as file:
        file.add(one.described())
        file._digest.update(other.described())
    with pytest.raises(Damaged, match="does not match its checksum"):
        list(RankTable.read_pieces(path))
