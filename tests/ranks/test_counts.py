"""Tests of sums by document."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pytest

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import DocumentCounts, IntArray
from rbptrack.ranks.counts import DocumentSums


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


def test_merge_refuses_counts_with_different_k() -> None:
    parts = [document_counts([0], [1], ks=(1, 10)), document_counts([0], [1], ks=(1, 5))]
    with pytest.raises(RbptrackError):
        DocumentCounts.merge(parts)


def test_add_refuses_sums_of_other_documents() -> None:
    @dataclass(frozen=True)
    class Tokens(DocumentSums):
        LABELS = ("document",)
        SUMMED = ("tokens",)

        document: IntArray
        tokens: IntArray

    counts = Tokens(np.array([0, 1]), np.array([10, 20]))
    assert (counts + counts).tokens.tolist() == [20, 40]
    for other in (Tokens(np.array([0, 2]), np.array([10, 20])), Tokens(np.array([0]), np.array([10]))):
        with pytest.raises(RbptrackError):
            counts + other


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
    for first, second in ((by_group, by_document), (by_document, by_group)):
        with pytest.raises(RbptrackError):
            first + second


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


def test_in_groups_refuses_another_number_of_groups_than_documents() -> None:
    with pytest.raises(ValueError, match="2"):
        document_counts([0, 1, 2], [5, 6, 7]).in_groups(["a", "b"])
