from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rbptrack.base import parquet
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.ranks import LacksColumn, RankTable, is_rbp_column, log_grid, parse_rbp_name, rbp_ks, rbp_name, se_name
from tests.synthetic import ranked, with_columns


def table(
    greater: list[int], *, ties: list[int] | None = None, document: list[int] | None = None, v: int = 50
) -> RankTable:
    n = len(greater)
    columns = {"document": document or [0] * n, "ties": ties or [0] * n, "logprob": -0.5 * np.arange(1, n + 1)}
    return ranked(np.array(greater) + 1, vocab_size=v, **columns)


def test_the_two_ranks_and_every_metric_by_hand() -> None:
    t = table([0, 0, 4, 9], ties=[0, 2, 0, 0])
    assert t.rank.tolist() == [1, 3, 5, 10]
    assert t.strict_rank.tolist() == [1, 1, 5, 10]
    assert [t.rbp(k) for k in (1, 3, 5, 9, 10, 50)] == [0.25, 0.5, 0.75, 0.75, 1.0, 1.0]
    assert t.ce == pytest.approx((0.5 + 1.0 + 1.5 + 2.0) / 4)
    assert t.tie_rate == 0.25


def test_names_of_rbp_go_there_and_back() -> None:
    assert [parse_rbp_name(rbp_name(k)) for k in (1, 10, 3000)] == [1, 10, 3000]
    others = ["ce", "rbp_", "rbp_0", "rbp_01", "rbp_x", "rbp_curve", "neg_log_rbp_1", "RBP_1", se_name(rbp_name(10))]
    assert [parse_rbp_name(name) for name in others] == [None] * len(others)
    assert rbp_ks(["rbp_100", "model", "rbp_3", "rbp_3_se"]) == [3, 100]
    assert [is_rbp_column(n) for n in ("rbp_3", "rbp_3_se", "ce_se", "rbp_curve")] == [True, True, False, False]


def newer(t: RankTable) -> RankTable:
    return with_columns(t, entropy=[1.5] * len(t), top=[3] * len(t), top_logprob=[-0.25] * len(t))


def test_a_table_may_grow(tmp_path: Path) -> None:
    """Old and new files are read, and those of versions to come, whose columns are not known yet."""
    old, path = table([0, 4, 9], document=[0, 0, 1]), tmp_path / "ranks.parquet"
    new = newer(old)
    assert (old.version, new.version) == (1, 2)
    old.write(path)
    assert b"rbptrack.table" not in pq.read_schema(path).metadata  # byte for byte what it always was
    assert RankTable.read(path).table.equals(old.table)
    new.write(path)
    assert pq.read_schema(path).metadata[b"rbptrack.table"] == b"2"
    assert RankTable.read(path).table.equals(new.table)
    later = new.described().append_column("kl", pa.array([0.5] * 3, pa.float32()))
    parquet.write(later, path)
    for read in (RankTable.read(path), RankTable.concatenate(RankTable.read_pieces(path))):
        assert read.table.equals(new.table)
    assert new.column("top").dtype == np.int32
    assert new.column("entropy").tolist() == [1.5] * 3
    with pytest.raises(RbptrackError, match=r"no column entropy: .*again=columns") as caught:
        old.column("entropy")
    assert isinstance(caught.value, LacksColumn)


def test_tables_of_two_versions_are_joined_as_the_older() -> None:
    old, new = table([0, 4]), newer(table([9, 9], document=[1, 1]))
    joined = RankTable.concatenate([new, old])
    assert joined.version == 1
    assert joined.column("greater").tolist() == [9, 9, 0, 4]
    assert RankTable.concatenate([new, new]).version == 2
    for t in (old, new):
        assert t.histogram().count.sum() == t.document_counts([1]).tokens.sum() == 2


@pytest.mark.parametrize("k", [0, -1, 51])
def test_k_outside_the_vocabulary(k: int) -> None:
    with pytest.raises(BadInput, match=f"k must be between 1 and 50, the vocabulary's size; got {k}"):
        table([1]).rbp(k)


def test_different_vocabularies_do_not_mix() -> None:
    with pytest.raises(RbptrackError, match="vocabularies"):
        RankTable.concatenate([table([1]), table([1], v=60)])
    with pytest.raises(RbptrackError, match="50 and 60"):
        table([1]).histogram() + table([1], v=60).histogram()


def test_log_grid() -> None:
    grid = log_grid(50_304)
    assert grid[0] == 1
    assert grid[-1] == 50_304
    assert np.all(np.diff(grid) > 0)
    assert len(grid) < 60
    assert log_grid(1).tolist() == [1]


def test_documents_in_any_order() -> None:
    for document in ([3, 3, 5, 9, 9], [5, 3, 9, 3, 9]):
        present, place = table([*range(5)], document=document).documents
        assert present.tolist() == [3, 5, 9]
        assert present[place].tolist() == document
    counts = table([*range(5)], document=[5, 3, 9, 3, 9]).document_counts([1, 4])
    assert counts.tokens.tolist() == [2, 1, 2]
    assert counts.hits.tolist() == [[0, 2], [1, 1], [0, 1]]
