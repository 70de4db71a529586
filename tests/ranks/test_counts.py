"""Tests of `DocumentCounts`, of the names of RBP metrics, and of `log_grid`."""

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


def document_counts(documents: list[int], tokens: list[int], *, ks: tuple[int, int] = (1, 10)) -> DocumentCounts:
    """Make counts of documents with the given numbers of tokens.

    The sum of nats is twice the number of tokens. Half of the tokens have a rank up to the first k, and all tokens have
    a rank up to the second k.
    """
    counts = np.array(tokens)
    return DocumentCounts(ks, np.array(documents), counts, counts * 2.0, np.column_stack([counts // 2, counts]))


def test_merge_equals_the_sum_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for i in range(12):
        part = document_counts([i, i + 1, 99], [10, 20, 30 + i])
        parts.append(replace(part, nats=rng.random(3), hits=part.hits.astype(np.int32)))
    merged = DocumentCounts.merge(parts)
    total = reduce(add, parts)
    assert merged.tokens.tolist() == total.tokens.tolist() == [10, *[30] * 11, 20, 30 * 12 + 66]
    assert merged.nats.tolist() == total.nats.tolist()
    assert merged.hits.tolist() == total.hits.tolist()
    assert merged.hits.dtype == np.int32


def test_merge_adds_the_two_parts_of_a_document() -> None:
    merged = DocumentCounts.merge([document_counts([0, 1], [10, 20]), document_counts([1, 2], [6, 30])])
    assert merged.document.tolist() == [0, 1, 2]
    assert merged.tokens.tolist() == [10, 26, 30]
    assert merged.nats.tolist() == [20, 52, 60]
    assert merged.hits.tolist() == [[5, 10], [13, 26], [15, 30]]


def test_select_returns_the_hits_in_the_order_of_the_given_ks() -> None:
    selected = document_counts([0, 1], [10, 20]).select([10, 1])
    assert selected.ks == (10, 1)
    assert selected.hits.tolist() == [[10, 5], [20, 10]]


def test_add_refuses_counts_with_different_k() -> None:
    with pytest.raises(RbptrackError, match="cannot be added"):
        document_counts([0], [1], ks=(1, 10)) + document_counts([0], [1], ks=(1, 5))


def test_in_groups_sums_the_documents_of_a_group() -> None:
    counts = document_counts([0, 1, 2], [10, 20, 30]).in_groups(["b", "a", "b"])
    assert counts.grouped
    assert counts.tokens.tolist() == [40, 20]
    assert counts.nats.tolist() == [80, 40]
    assert counts.document.tolist() == [0, 1]  # the first documents of b and a


def test_other_groups_of_the_same_number_have_other_documents() -> None:
    counts = document_counts([0, 1, 2, 3], [10, 20, 30, 40])
    first, second = counts.in_groups(["a", "a", "b", "c"]), counts.in_groups(["a", "b", "b", "c"])
    assert first.document.tolist() == [0, 2, 3]
    assert second.document.tolist() == [0, 1, 3]


def test_add_sums_counts_by_group() -> None:
    by_group = document_counts([0, 1, 2], [10, 20, 30]).in_groups(["a", "b", "a"])
    assert (by_group + by_group).tokens.tolist() == [80, 40]
    assert (by_group + by_group).grouped


def test_add_refuses_counts_by_group_with_counts_by_document() -> None:
    by_document = document_counts([0, 1, 2], [10, 20, 30])
    by_group = by_document.in_groups(["a", "b", "a"])
    with pytest.raises(RbptrackError, match="by group and counts by document"):
        by_group + by_document
    with pytest.raises(RbptrackError, match="by group and counts by document"):
        by_document + by_group


def test_take_keeps_the_selected_documents() -> None:
    counts = document_counts([0, 1, 2], [10, 20, 30]).take(np.array([True, False, True]))
    assert counts.tokens.tolist() == [10, 30]


def test_select_keeps_the_hits_of_the_selected_k() -> None:
    counts = document_counts([0, 2], [10, 30]).select((10,))
    assert counts.ks == (10,)
    assert counts.tokens.tolist() == [10, 30]
    assert counts.sums.tolist() == [[10, 20, 10], [30, 60, 30]]  # tokens, nats and hits of each document


def test_concatenate_puts_documents_after_each_other() -> None:
    counts = document_counts([0, 2], [10, 30])
    assert DocumentCounts.concatenate([counts, counts]).tokens.tolist() == [10, 30, 10, 30]


def test_parse_rbp_name_returns_the_k_of_rbp_name() -> None:
    assert [parse_rbp_name(rbp_name(k)) for k in (1, 10, 3000)] == [1, 10, 3000]


@pytest.mark.parametrize(
    "name",
    ["ce", "rbp_", "rbp_0", "rbp_01", "rbp_x", "rbp_curve", "neg_log_rbp_1", "RBP_1", se_name(rbp_name(10))],
)
def test_parse_rbp_name_returns_none_for_other_names(name: str) -> None:
    assert parse_rbp_name(name) is None


def test_in_groups_refuses_another_number_of_groups_than_documents() -> None:
    with pytest.raises(ValueError, match="2"):
        document_counts([0, 1, 2], [5, 6, 7]).in_groups(["a", "b"])


def test_rbp_ks_are_the_k_of_rbp_names_in_ascending_order() -> None:
    assert rbp_ks(["rbp_100", "model", "rbp_3", "rbp_3_se"]) == [3, 100]


@pytest.mark.parametrize(
    ("name", "expected"), [("rbp_3", True), ("rbp_3_se", True), ("ce_se", False), ("rbp_curve", False)]
)
def test_is_rbp_column_is_true_for_an_rbp_and_its_standard_error(name: str, expected: bool) -> None:
    assert is_rbp_column(name) is expected


def test_metric_label_of_an_rbp_is_in_capitals() -> None:
    assert metric_label("rbp_10") == "RBP_10"


def test_log_grid_rises_from_1_to_the_vocabulary() -> None:
    grid = log_grid(50_304)
    assert grid[0] == 1
    assert grid[-1] == 50_304
    assert np.all(np.diff(grid) > 0)
    assert len(grid) < 60


def test_log_grid_of_1_has_one_point() -> None:
    assert log_grid(1).tolist() == [1]
