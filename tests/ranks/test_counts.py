"""Sums by document: pooled, selected, taken by group; names and grids of k."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import (
    DocumentCounts,
    is_rbp_column,
    log_grid,
    metric_label,
    parse_rbp_name,
    rbp_ks,
    rbp_name,
    se_name,
)


def counts(document: list[int], tokens: list[int], *, ks: tuple[int, ...] = (1, 10)) -> DocumentCounts:
    values = np.array(tokens)
    return DocumentCounts(ks, np.array(document), values, values * 2.0, np.column_stack([values // 2, values]))


def test_merge_adds_the_sums_of_shared_documents() -> None:
    """The sums equal those of adding one piece after the other, and the dtype of the hits stays."""
    rng = np.random.default_rng(0)
    parts = [counts([i, i + 1, 99], [10, 20, 30 + i]) for i in range(12)]
    parts = [replace(part, nats=rng.random(3), hits=part.hits.astype(np.int32)) for part in parts]
    merged = DocumentCounts.merge(parts)
    added = reduce(add, parts)
    assert merged.tokens.tolist() == added.tokens.tolist() == [10, *[30] * 11, 20, 30 * 12 + 66]
    assert merged.nats.tolist() == added.nats.tolist()
    assert merged.hits.tolist() == added.hits.tolist()
    assert merged.hits.dtype == np.int32
    with pytest.raises(RbptrackError, match="cannot be added"):
        counts([0], [1]) + counts([0], [1], ks=(1, 5))


def test_in_groups_sums_the_documents_of_a_group() -> None:
    grouped = counts([0, 1, 2], [10, 20, 30]).in_groups(["b", "a", "b"])
    assert grouped.grouped
    assert grouped.tokens.tolist() == [20, 40]
    assert grouped.nats.tolist() == [40, 80]
    assert len(grouped.document) == 2


def test_add_refuses_counts_by_group_with_counts_by_document() -> None:
    by_document = counts([0, 1, 2], [10, 20, 30])
    by_group = by_document.in_groups(["a", "b", "a"])
    assert (by_group + by_group).tokens.tolist() == [80, 40]
    assert (by_group + by_group).grouped
    for one, other in ((by_group, by_document), (by_document, by_group)):
        with pytest.raises(RbptrackError, match="by group and counts by document cannot be added"):
            one + other


def test_take_and_select_keep_some_documents_and_some_k() -> None:
    some = counts([0, 1, 2], [10, 20, 30]).take(np.array([True, False, True])).select((10,))
    assert some.tokens.tolist() == [10, 30]
    assert some.ks == (10,)
    assert some.sums.tolist() == [[10, 20, 10], [30, 60, 30]]
    joined = DocumentCounts.concatenate([some, some])
    assert joined.tokens.tolist() == [10, 30, 10, 30]


def test_parse_rbp_name_inverts_rbp_name() -> None:
    assert [parse_rbp_name(rbp_name(k)) for k in (1, 10, 3000)] == [1, 10, 3000]
    others = ["ce", "rbp_", "rbp_0", "rbp_01", "rbp_x", "rbp_curve", "neg_log_rbp_1", "RBP_1", se_name(rbp_name(10))]
    assert [parse_rbp_name(name) for name in others] == [None] * len(others)
    assert rbp_ks(["rbp_100", "model", "rbp_3", "rbp_3_se"]) == [3, 100]
    assert [is_rbp_column(name) for name in ("rbp_3", "rbp_3_se", "ce_se", "rbp_curve")] == [True, True, False, False]
    assert metric_label("rbp_10") == "RBP_10"


def test_log_grid_rises_from_1_to_the_vocabulary() -> None:
    grid = log_grid(50_304)
    assert grid[0] == 1
    assert grid[-1] == 50_304
    assert np.all(np.diff(grid) > 0)
    assert len(grid) < 60
    assert log_grid(1).tolist() == [1]
