"""The rank table: both ranks and every metric by hand, files in pieces, columns that are there or not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.base.parquet import write_table
from rbptrack.ranks import DocumentCounts, MissingColumn, RankHistogram, RankTable
from tests.rank_tables import rank_table


def table(greater: list[int], *, ties: list[int] | None = None, document: npt.ArrayLike = 0, v: int = 50) -> RankTable:
    n = len(greater)
    columns: dict[str, Any] = {"document": np.broadcast_to(document, n), "ties": ties or [0] * n}
    return rank_table(np.array(greater) + 1, vocab_size=v, logprob=-0.5 * np.arange(1, n + 1), **columns)


def random_table(documents: npt.ArrayLike, *, strict: bool = False) -> RankTable:
    draw = np.random.default_rng(0)
    n = np.size(documents)
    columns: dict[str, Any] = {
        "document": documents,
        "ties": draw.integers(2, size=n),
        "logprob": -draw.exponential(size=n),
    }
    return replace(rank_table(1 + draw.integers(4000, size=n), vocab_size=4096, **columns), strict=strict)


def test_rank_table_has_known_ranks_and_metrics() -> None:
    t = table([0, 0, 4, 9], ties=[0, 2, 0, 0])
    assert t.rank.tolist() == [1, 3, 5, 10]
    assert t.strict_rank.tolist() == [1, 1, 5, 10]
    assert replace(t, strict=True).rank.tolist() == [1, 1, 5, 10]
    assert [t.rbp(k) for k in (1, 3, 5, 9, 10, 50)] == [0.25, 0.5, 0.75, 0.75, 1.0, 1.0]
    assert t.ce == pytest.approx((0.5 + 1.0 + 1.5 + 2.0) / 4)
    assert t.tie_rate == 0.25
    assert t.num_tokens == 4


def test_histogram_has_the_metrics_of_its_table(tmp_path: Path) -> None:
    t = random_table(np.repeat(np.arange(5), 80))
    histogram = t.histogram()
    assert histogram.num_tokens == len(t)
    assert histogram.ce == pytest.approx(t.ce, rel=1e-12)
    assert [histogram.rbp(k) for k in (1, 77, 4096)] == [t.rbp(k) for k in (1, 77, 4096)]
    histogram.write(tmp_path / "h.parquet")
    read = RankHistogram.read(tmp_path / "h.parquet")
    assert read.vocab_size == 4096
    for name in ("rank", "count", "logprob"):
        np.testing.assert_array_equal(getattr(read, name), getattr(histogram, name))
    halves = [replace(t, table=t.table.slice(a, b)).histogram() for a, b in ((0, 100), (100, 300))]
    both = halves[0] + halves[1]
    np.testing.assert_array_equal(both.count, histogram.count)
    np.testing.assert_allclose(both.logprob, histogram.logprob)
    with pytest.raises(RbptrackError, match="50 and 4096"):
        table([1]).histogram() + histogram


@pytest.mark.parametrize("k", [0, -1, 51])
def test_rbp_refuses_k_outside_the_vocabulary(k: int) -> None:
    for measured in (table([1]), table([1]).histogram()):
        with pytest.raises(BadInput):
            measured.rbp(k)


def test_column_of_an_absent_name_is_refused(tmp_path: Path) -> None:
    t = table([0, 4, 9])
    for name in ("entropy", "kl"):
        with pytest.raises(MissingColumn):
            t.column(name)
    assert not t.compared
    n: dict[str, Any] = {
        "document": [0] * 3,
        "position": [0, 1, 2],
        "greater": [0, 1, 2],
        "ties": [0, 0, 1],
        "logprob": [-1, -2, -3],
    }
    compared: dict[str, Any] = {"kl": [0.5, 0, 1], "accept": [0.5] * 3, "top": [1, 2, 3], "reference_top": [1, 5, 3]}
    full = RankTable.from_arrays(vocab_size=9, **n, **compared, reference_rank=[1, 2, 1])
    assert full.compared
    assert full.compared_sums().tolist() == [1.5, 1.5, 2]
    full.write(tmp_path / "r.parquet")
    assert RankTable.read(tmp_path / "r.parquet").table.equals(full.table)
    some = RankTable.read(tmp_path / "r.parquet", ["rank", "kl", "entropy"])
    assert some.table.column_names == ["greater", "ties", "kl"]
    assert some.rank.tolist() == [1, 2, 4]
    assert full.to_pandas()["rank"].tolist() == [1, 2, 4]


def test_rank_is_known_if_ties_are_unknown(tmp_path: Path) -> None:
    whole = RankTable.from_arrays(vocab_size=9, document=[0, 0], greater=[0, 3], logprob=[-1, -2])
    whole.write(tmp_path / "r.parquet")
    for t in (whole, RankTable.read(tmp_path / "r.parquet"), RankTable.read(tmp_path / "r.parquet", ["rank"])):
        assert t.rank.tolist() == [1, 4]
        assert not t.ties_known
        for name in ("greater", "ties"):
            with pytest.raises(MissingColumn):
                t.column(name)
        with pytest.raises(MissingColumn):
            _ = t.strict_rank
    assert "greater" not in whole.to_pandas()


def test_concatenate_refuses_tables_of_another_vocabulary_or_rank() -> None:
    for other in (table([1], v=60), replace(table([1]), strict=True)):
        with pytest.raises(RbptrackError, match="cannot be joined"):
            RankTable.concatenate([table([1]), other])
    joined = RankTable.concatenate([table([0, 4]), table([9])])
    assert joined.column("greater").tolist() == [0, 4, 9]


def test_documents_are_counted_in_any_order() -> None:
    for document in ([3, 3, 5, 9, 9], [5, 3, 9, 3, 9]):
        present, index = table([*range(5)], document=document).documents
        assert present.tolist() == [3, 5, 9]
        assert present[index].tolist() == document
    shuffled = table([*range(5)], document=[5, 3, 9, 3, 9])
    assert shuffled.sum_by_document([1.0, 2.0, 3.0, 4.0, 5.0]).tolist() == [6, 1, 8]
    assert shuffled.sum_by_document().tolist() == [2, 1, 2]
    counts = shuffled.document_counts([1, 4])
    assert counts.tokens.tolist() == [2, 1, 2]
    assert counts.hits.tolist() == [[0, 2], [1, 1], [0, 1]]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), min_size=1), st.lists(st.integers(1, 30), min_size=1))
def test_document_counts_equal_counts_by_definition(tokens: list[tuple[int, int]], ks: list[int]) -> None:
    document, rank = np.array(tokens).T
    counts = rank_table(rank, vocab_size=20, document=document).document_counts(ks)
    for row, number in enumerate(counts.document):
        of_it = rank[document == number]
        assert counts.tokens[row] == len(of_it)
        assert counts.nats[row] == len(of_it)
        assert counts.hits[row].tolist() == [(of_it <= k).sum() for k in ks]


def in_pieces(whole: RankTable, path: Path, *, groups: int) -> Path:
    edges = np.linspace(0, len(whole), groups + 1).astype(int)
    pieces = (replace(whole, table=whole.table.slice(low, high - low)) for low, high in itertools.pairwise(edges))
    RankTable.write_pieces(path, pieces)
    return path


@pytest.mark.parametrize("strict", [False, True])
def test_read_pieces_yields_whole_documents_with_the_same_counts(
    tmp_path: Path, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.base.parquet._ROWS", 100)
    whole = random_table(np.repeat(np.arange(40), np.random.default_rng(0).integers(1, 60, 40)), strict=strict)
    path = in_pieces(whole, tmp_path / "ranks.parquet", groups=12)
    pieces = list(RankTable.read_pieces(path))
    assert len(pieces) > 8
    assert max(map(len, pieces)) < len(whole) / 4
    assert {(piece.vocab_size, piece.strict) for piece in pieces} == {(4096, strict)}
    assert RankTable.concatenate(pieces).table.equals(whole.table)
    assert RankTable.read(path).table.equals(whole.table)
    for before, after in itertools.pairwise(pieces):
        assert before.column("document")[-1] < after.column("document")[0]
    counts = DocumentCounts.concatenate([piece.document_counts((1, 7, 200)) for piece in pieces])
    wanted = whole.document_counts((1, 7, 200))
    for name in ("document", "tokens", "nats", "hits"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(wanted, name))
    some = RankTable.read_documents(path, [3, 39, 17, 4_000])
    assert some.table.equals(whole.table.filter(np.isin(whole.column("document"), [3, 17, 39])))
    assert (some.vocab_size, some.strict) == (4096, strict)
    assert not len(RankTable.read_documents(path, []))
    narrow = list(RankTable.read_pieces(path, ["logprob"]))
    assert narrow[0].table.column_names == ["document", "logprob"]


def test_read_pieces_yields_one_document_whole_and_refuses_documents_out_of_order(tmp_path: Path) -> None:
    whole = random_table([3] * 90)
    (piece,) = RankTable.read_pieces(in_pieces(whole, tmp_path / "one.parquet", groups=5))
    assert piece.table.equals(whole.table)
    path = in_pieces(random_table([1] * 30 + [0] * 30), tmp_path / "other.parquet", groups=5)
    with pytest.raises(RbptrackError, match="out of order"):
        list(RankTable.read_pieces(path))


def test_read_refuses_files_that_are_not_rank_tables(tmp_path: Path) -> None:
    write_table(tmp_path / "x.parquet", pa.table({"x": [1]}))
    write_table(tmp_path / "y.parquet", pa.table({"x": [1]}).replace_schema_metadata({"rbptrack.vocab_size": "9"}))
    for name in ("x", "y"):
        for read in (RankTable.read, RankHistogram.read):
            with pytest.raises(RbptrackError):
                read(tmp_path / f"{name}.parquet")
    with pytest.raises(MissingArtifact):
        RankTable.read(tmp_path / "z.parquet")
