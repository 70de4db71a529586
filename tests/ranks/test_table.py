"""Tests of `RankTable` and `RankHistogram`: ranks, metrics, missing columns, sums by document, and files."""

from __future__ import annotations

import itertools
import math
import re
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
from rbptrack.ranks.columns import token_totals
from tests.rank_tables import rank_table


def small_table(
    greater: list[int], *, ties: list[int] | None = None, document: npt.ArrayLike = 0, vocab_size: int = 50
) -> RankTable:
    """Make a table by hand. ln p of its tokens is -0.5, -1.0, -1.5 and so on."""
    tokens = len(greater)
    columns: dict[str, Any] = {"document": np.broadcast_to(document, tokens), "ties": ties or [0] * tokens}
    logprob = -0.5 * np.arange(1, tokens + 1)
    return rank_table(np.array(greater) + 1, vocab_size=vocab_size, logprob=logprob, **columns)


def random_table(documents: npt.ArrayLike, *, strict: bool = False) -> RankTable:
    """Make a table with |V| = 4,096, random ranks and ties. Its rows belong to the given documents, (tokens,)."""
    draw = np.random.default_rng(0)
    tokens = np.size(documents)
    columns: dict[str, Any] = {
        "document": documents,
        "ties": draw.integers(2, size=tokens),
        "logprob": -draw.exponential(size=tokens),
    }
    return replace(rank_table(1 + draw.integers(4000, size=tokens), vocab_size=4096, **columns), strict=strict)


def table_with_reference() -> RankTable:
    """Make a table of 3 tokens with all columns of a reference. It has no columns `entropy` and `token`."""
    columns: dict[str, Any] = {
        "document": [0, 0, 0],
        "position": [0, 1, 2],
        "greater": [0, 1, 2],
        "ties": [0, 0, 1],
        "logprob": [-1, -2, -3],
        "kl": [0.5, 0, 1],
        "accept": [0.5, 0.5, 0.5],
        "top": [1, 2, 3],
        "reference_top": [1, 5, 3],
        "reference_rank": [1, 2, 2],  # another entry ties with the last one
    }
    return RankTable.from_arrays(vocab_size=9, **columns)


def test_rank_counts_ties_and_strict_rank_does_not() -> None:
    table = small_table([0, 0, 4, 9], ties=[0, 2, 0, 0])
    assert table.rank.tolist() == [1, 3, 5, 10]
    assert table.strict_rank.tolist() == [1, 1, 5, 10]
    assert replace(table, strict=True).rank.tolist() == [1, 1, 5, 10]


def test_rank_table_has_known_metrics() -> None:
    table = small_table([0, 0, 4, 9], ties=[0, 2, 0, 0])
    assert [table.rbp(k) for k in (1, 3, 5, 9, 10, 50)] == [0.25, 0.5, 0.75, 0.75, 1.0, 1.0]
    assert table.ce == pytest.approx((0.5 + 1.0 + 1.5 + 2.0) / 4)
    assert table.num_tokens == 4


def test_all_metrics_of_a_strict_table_use_the_strict_rank() -> None:
    table = replace(small_table([0, 0, 4, 9], ties=[0, 2, 0, 0]), strict=True)
    assert [table.rbp(k) for k in (1, 3, 5)] == [0.5, 0.5, 0.75]
    assert table.document_counts([1, 3, 5]).hits.tolist() == [[2, 2, 3]]
    histogram = table.histogram()
    assert histogram.rank.tolist() == [1, 5, 10]
    assert histogram.count.tolist() == [2, 1, 1]
    assert histogram.logprob.tolist() == [-1.5, -1.5, -2.0]


def test_histogram_has_the_metrics_of_its_table() -> None:
    table = random_table(np.repeat(np.arange(5), 80))
    histogram = table.histogram()
    assert histogram.num_tokens == len(table)
    assert histogram.ce == pytest.approx(table.ce, rel=1e-12)
    assert [histogram.rbp(k) for k in (1, 77, 4096)] == [table.rbp(k) for k in (1, 77, 4096)]


def test_histogram_is_read_as_it_was_written(tmp_path: Path) -> None:
    histogram = random_table(np.repeat(np.arange(5), 80)).histogram()
    histogram.write(tmp_path / "h.parquet")
    copy = RankHistogram.read(tmp_path / "h.parquet")
    assert copy.vocab_size == 4096
    for name in ("rank", "count", "logprob"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(histogram, name))


def test_histograms_of_two_parts_add_up_to_that_of_the_table() -> None:
    table = random_table(np.repeat(np.arange(5), 80))
    first = replace(table, table=table.table.slice(0, 100)).histogram()
    second = replace(table, table=table.table.slice(100, 300)).histogram()
    total = first + second
    np.testing.assert_array_equal(total.count, table.histogram().count)
    np.testing.assert_allclose(total.logprob, table.histogram().logprob)


def test_histograms_of_different_vocabularies_cannot_be_added() -> None:
    with pytest.raises(RbptrackError, match="50 and 4096"):
        small_table([1], vocab_size=50).histogram() + small_table([1], vocab_size=4096).histogram()


@pytest.mark.parametrize("k", [0, -1, 51])
def test_rbp_refuses_k_outside_the_vocabulary(k: int) -> None:
    table = small_table([1], vocab_size=50)
    with pytest.raises(BadInput, match=str(k)):
        table.rbp(k)
    with pytest.raises(BadInput, match=str(k)):
        table.histogram().rbp(k)


@pytest.mark.parametrize("name", ["entropy", "kl"])
def test_column_that_the_table_lacks_is_refused(name: str) -> None:
    with pytest.raises(MissingColumn, match=name):
        small_table([0, 4, 9]).column(name)


def test_has_reference_is_true_only_with_the_columns_of_a_reference() -> None:
    assert not small_table([0, 4, 9]).has_reference
    assert table_with_reference().has_reference


def test_token_totals_are_those_of_ties_kl_accept_and_equal_tops() -> None:
    totals = token_totals(table_with_reference())
    assert totals == {"tie_rate": 1, "kl": 1.5, "acceptance": 1.5, "same_top": 2}


def test_read_returns_the_table_that_was_written(tmp_path: Path) -> None:
    table = table_with_reference()
    table.write(tmp_path / "r.parquet")
    assert RankTable.read(tmp_path / "r.parquet").table.equals(table.table)


def test_read_of_some_columns_returns_those_that_the_file_has(tmp_path: Path) -> None:
    table_with_reference().write(tmp_path / "r.parquet")
    table = RankTable.read(tmp_path / "r.parquet", ["rank", "kl", "entropy"])
    assert table.table.column_names == ["greater", "ties", "kl"]
    assert table.rank.tolist() == [1, 2, 4]


@pytest.mark.parametrize("column", ["rank", "greater", "ties"])
def test_read_of_a_column_of_ranks_gives_ranks_with_ties(column: str, tmp_path: Path) -> None:
    small_table([0, 0, 4], ties=[0, 2, 0]).write(tmp_path / "r.parquet")
    assert RankTable.read(tmp_path / "r.parquet", [column]).rank.tolist() == [1, 3, 5]


def test_to_pandas_adds_the_rank() -> None:
    assert table_with_reference().to_pandas()["rank"].tolist() == [1, 2, 4]


def test_rank_is_known_if_ties_are_unknown(tmp_path: Path) -> None:
    imported = RankTable.from_arrays(vocab_size=9, document=[0, 0], greater=[0, 3], logprob=[-1, -2])
    path = tmp_path / "r.parquet"
    imported.write(path)
    for table in (imported, RankTable.read(path), RankTable.read(path, ["rank"])):
        assert table.rank.tolist() == [1, 4]
        assert not table.ties_known


def test_greater_ties_and_strict_rank_are_refused_if_ties_are_unknown(tmp_path: Path) -> None:
    imported = RankTable.from_arrays(vocab_size=9, document=[0, 0], greater=[0, 3], logprob=[-1, -2])
    path = tmp_path / "r.parquet"
    imported.write(path)
    for table in (imported, RankTable.read(path), RankTable.read(path, ["rank"])):
        for name in ("greater", "ties"):
            with pytest.raises(MissingColumn, match=name):
                table.column(name)
        with pytest.raises(MissingColumn):
            _ = table.strict_rank


def test_to_pandas_leaves_greater_out_if_ties_are_unknown() -> None:
    imported = RankTable.from_arrays(vocab_size=9, document=[0, 0], greater=[0, 3], logprob=[-1, -2])
    assert "greater" not in imported.to_pandas()


def test_concatenate_joins_tables_in_order() -> None:
    joined = RankTable.concatenate([small_table([0, 4]), small_table([9])])
    assert joined.column("greater").tolist() == [0, 4, 9]


@pytest.mark.parametrize("other", [small_table([1], vocab_size=60), replace(small_table([1]), strict=True)])
def test_concatenate_refuses_tables_of_another_vocabulary_or_kind_of_rank(other: RankTable) -> None:
    with pytest.raises(RbptrackError, match="cannot be joined"):
        RankTable.concatenate([small_table([1]), other])


@pytest.mark.parametrize("document", [[3, 3, 5, 9, 9], [5, 3, 9, 3, 9]])
def test_documents_are_the_numbers_of_documents_and_an_index_for_each_token(document: list[int]) -> None:
    numbers, index = small_table([0, 1, 2, 3, 4], document=document).documents
    assert numbers.tolist() == [3, 5, 9]
    assert numbers[index].tolist() == document


def test_sum_by_document_sums_tokens_in_any_order() -> None:
    table = small_table([0, 1, 2, 3, 4], document=[5, 3, 9, 3, 9])
    assert table.sum_by_document([1.0, 2.0, 3.0, 4.0, 5.0]).tolist() == [6, 1, 8]
    assert table.sum_by_document().tolist() == [2, 1, 2]


def test_document_counts_of_tokens_in_any_order_are_known() -> None:
    counts = small_table([0, 1, 2, 3, 4], document=[5, 3, 9, 3, 9]).document_counts([1, 4])
    assert counts.tokens.tolist() == [2, 1, 2]
    assert counts.hits.tolist() == [[0, 2], [1, 1], [0, 1]]


@given(
    documents_and_ranks=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), min_size=1),
    ks=st.lists(st.integers(1, 30), min_size=1),
)
def test_document_counts_equal_counts_by_definition(documents_and_ranks: list[tuple[int, int]], ks: list[int]) -> None:
    document, rank = np.array(documents_and_ranks).T
    counts = rank_table(rank, vocab_size=20, document=document).document_counts(ks)
    for row, number in enumerate(counts.document):
        ranks_of_document = rank[document == number]
        assert counts.tokens[row] == len(ranks_of_document)
        assert counts.nats[row] == len(ranks_of_document)  # `rank_table` gives each token 1 nat
        assert counts.hits[row].tolist() == [(ranks_of_document <= k).sum() for k in ks]


def write_row_groups(table: RankTable, path: Path, *, groups: int) -> None:
    """Write a table to a Parquet file with row groups of equal size. They may end inside a document."""
    edges = np.linspace(0, len(table), groups + 1).astype(int)
    pieces = [replace(table, table=table.table.slice(low, high - low)) for low, high in itertools.pairwise(edges)]
    with RankTable.writing(path) as append:
        for piece in pieces:
            append(piece)


@pytest.fixture(params=[False, True], ids=["paper", "strict"])
def long_table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankTable:
    """A table of 40 documents with 1 to 59 tokens each. The file `ranks.parquet` holds it in 12 row groups.

    A piece that is read has about 100 rows.
    """
    monkeypatch.setattr("rbptrack.base.parquet._BATCH_ROWS", 100)
    lengths = np.random.default_rng(0).integers(1, 60, 40)
    table = random_table(np.repeat(np.arange(40), lengths), strict=request.param)
    write_row_groups(table, tmp_path / "ranks.parquet", groups=12)
    return table


@pytest.mark.parametrize("values", [[[0], [1]], ["0", "1"], [0.0, 1.0], [True, False]])
def test_read_pieces_refuses_a_column_of_another_type(values: list[Any], tmp_path: Path) -> None:
    table = rank_table([1, 2]).table
    column = table.schema.get_field_index("document")
    metadata = {"rbptrack.vocab_size": "10"}
    wrong = table.set_column(column, "document", pa.array(values)).replace_schema_metadata(metadata)
    write_table(tmp_path / "ranks.parquet", wrong)
    with pytest.raises(RbptrackError, match="document"):
        list(RankTable.read_pieces(tmp_path / "ranks.parquet"))


def test_read_pieces_yields_the_table_in_whole_documents(long_table: RankTable, tmp_path: Path) -> None:
    pieces = list(RankTable.read_pieces(tmp_path / "ranks.parquet"))
    assert len(pieces) > 8
    assert max(len(piece) for piece in pieces) < len(long_table) / 4
    for piece in pieces:
        assert (piece.vocab_size, piece.strict) == (4096, long_table.strict)
    for before, after in itertools.pairwise(pieces):
        assert before.column("document")[-1] < after.column("document")[0]
    assert RankTable.concatenate(pieces).table.equals(long_table.table)


def test_read_pieces_gives_the_document_counts_of_the_table(long_table: RankTable, tmp_path: Path) -> None:
    pieces = RankTable.read_pieces(tmp_path / "ranks.parquet")
    counts = DocumentCounts.concatenate([piece.document_counts((1, 7, 200)) for piece in pieces])
    expected = long_table.document_counts((1, 7, 200))
    for name in ("document", "tokens", "nats", "hits"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(expected, name))


def test_read_pieces_of_some_columns_adds_the_document(long_table: RankTable, tmp_path: Path) -> None:
    pieces = list(RankTable.read_pieces(tmp_path / "ranks.parquet", ["logprob"]))
    assert pieces[0].table.column_names == ["document", "logprob"]


def test_read_joins_row_groups(long_table: RankTable, tmp_path: Path) -> None:
    assert RankTable.read(tmp_path / "ranks.parquet").table.equals(long_table.table)


def test_read_documents_returns_the_rows_of_the_documents_that_exist(long_table: RankTable, tmp_path: Path) -> None:
    table = RankTable.read_documents(tmp_path / "ranks.parquet", [3, 39, 17, 4_000])
    selected = np.isin(long_table.column("document"), [3, 17, 39])
    assert table.table.equals(long_table.table.filter(selected))
    assert (table.vocab_size, table.strict) == (4096, long_table.strict)


def test_read_documents_of_an_empty_list_is_empty(long_table: RankTable, tmp_path: Path) -> None:
    assert len(RankTable.read_documents(tmp_path / "ranks.parquet", [])) == 0


def test_read_pieces_yields_one_document_in_one_piece(tmp_path: Path) -> None:
    table = random_table([3] * 90)
    write_row_groups(table, tmp_path / "r.parquet", groups=5)
    (piece,) = RankTable.read_pieces(tmp_path / "r.parquet")
    assert piece.table.equals(table.table)


def test_read_pieces_refuses_documents_out_of_order(tmp_path: Path) -> None:
    write_row_groups(random_table([1] * 30 + [0] * 30), tmp_path / "r.parquet", groups=5)
    with pytest.raises(RbptrackError, match="out of order"):
        list(RankTable.read_pieces(tmp_path / "r.parquet"))


@pytest.mark.parametrize("metadata", [{}, {"rbptrack.vocab_size": "9"}])
def test_read_refuses_files_that_are_not_rank_tables(metadata: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_table(path, pa.table({"x": [1]}).replace_schema_metadata(metadata))
    with pytest.raises(RbptrackError, match=re.escape(str(path))):
        RankTable.read(path)
    with pytest.raises(RbptrackError, match=re.escape(str(path))):
        RankHistogram.read(path)


@pytest.mark.parametrize("column", [["1", "2"], [[1], [2]], [1.0, 2.0], [None, 2]])
def test_read_refuses_a_histogram_with_ranks_of_another_type(column: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    table = pa.table({"rank": column, "count": [3, 4], "logprob": [-1.0, -2.0]})
    write_table(path, table.replace_schema_metadata({"rbptrack.vocab_size": "9"}))
    with pytest.raises(RbptrackError, match=re.escape(str(path))):
        RankHistogram.read(path)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("rank", [0, 2]),
        ("rank", [2, 2]),
        ("rank", [2, 10]),
        ("rank", [-(2**62), 2**62]),
        ("count", [0, 4]),
        ("count", [-3, 4]),
        ("logprob", [-1.0, math.nan]),
        ("logprob", [-math.inf, -1.0]),
    ],
)
def test_read_refuses_a_histogram_with_impossible_values(column: str, values: list[float], tmp_path: Path) -> None:
    path = tmp_path / "h.parquet"
    table = pa.table({"rank": [1, 9], "count": [3, 4], "logprob": [-1.0, -2.0]} | {column: values})
    write_table(path, table.replace_schema_metadata({"rbptrack.vocab_size": "9"}))
    with pytest.raises(RbptrackError, match=re.escape(str(path))):
        RankHistogram.read(path)


def test_read_of_a_file_that_does_not_exist_raises_missing_artifact(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact):
        RankTable.read(tmp_path / "z.parquet")
