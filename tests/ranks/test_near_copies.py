"""Tests of the search for near copies of documents."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.ranks.near_copies import near_copies_in, near_copy_groups, near_copy_names
from tests.rank_tables import rank_table

VOCABULARY = 30_000


def groups_of(documents: list[np.ndarray]) -> list[int]:
    lengths = np.array([len(document) for document in documents])
    return near_copy_groups(np.concatenate(documents).astype(np.int32), lengths).tolist()


def changed(document: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a copy of which a share of the tokens, at random places, is replaced."""
    replaced = rng.random(len(document)) < share
    return np.where(replaced, rng.integers(VOCABULARY, size=len(document)), document)


@pytest.mark.parametrize("length", [60, 500, 20_000])
def test_near_copies_are_one_group_and_other_documents_are_not(length: int) -> None:
    rng = np.random.default_rng(length)
    originals = rng.integers(VOCABULARY, size=(10, length))
    documents = [changed(original, 0.1, rng) for _ in range(12) for original in originals]
    assert groups_of(documents) == [i % 10 for i in range(120)]


def test_documents_that_share_a_licence_are_not_copies() -> None:
    rng = np.random.default_rng(0)
    licence = rng.integers(VOCABULARY, size=150)
    documents = [np.append(rng.integers(VOCABULARY, size=10 + i), licence) for i in range(2)]
    documents += [np.concatenate([[i], licence, rng.integers(VOCABULARY, size=600)]) for i in range(200)]
    assert groups_of(documents)[2:] == list(range(2, 202))
    assert groups_of(documents)[:2] == [0, 0]  # they hold hardly more than the licence


def test_instructions_that_begin_all_documents_are_ignored() -> None:
    rng = np.random.default_rng(0)
    instructions = rng.integers(VOCABULARY, size=500)
    documents = [np.concatenate([instructions, rng.integers(VOCABULARY, size=20), [7, 8]]) for _ in range(50)]
    assert groups_of(documents) == list(range(50))


def test_instructions_are_ignored_if_some_documents_are_too_short_to_be_copies() -> None:
    rng = np.random.default_rng(0)
    instructions = rng.integers(VOCABULARY, size=300)
    documents = [np.concatenate([instructions, rng.integers(VOCABULARY, size=100)]) for _ in range(30)]
    documents += [np.zeros(0, np.int64), rng.integers(VOCABULARY, size=1), rng.integers(VOCABULARY, size=10)]
    assert groups_of(documents) == list(range(33))


def test_near_copies_are_found_among_many_short_documents() -> None:
    rng = np.random.default_rng(0)
    beginning = rng.integers(VOCABULARY, size=200)
    documents = [np.append(beginning, rng.integers(VOCABULARY, size=100)) for _ in range(2)]
    documents += list(rng.integers(VOCABULARY, size=(20, 5)))
    assert groups_of(documents) == [0, 0, *range(2, 22)]


def test_short_documents_are_copies_only_if_they_are_equal() -> None:
    documents = [[5000, 2], [5000, 2], [5000, 3], [5000, 2, 1, 4, 5], [5000, 2, 1, 4, 6], []]
    assert groups_of([np.array(document) for document in documents]) == [0, 0, 2, 3, 4, 5]


def test_texts_of_bytes_share_many_triples_and_are_no_copies() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(97, 123, size=(300, 5))
    documents = [words[rng.integers(300, size=4000)].ravel() for _ in range(20)]
    assert groups_of(documents) == list(range(20))


@given(st.lists(st.lists(st.integers(0, 3000), max_size=40), max_size=12), st.randoms())
def test_groups_do_not_depend_on_the_order_of_documents(documents: list[list[int]], random: Random) -> None:
    documents += documents[:3]
    order = list(range(len(documents)))
    random.shuffle(order)
    token = np.array([token for document in documents for token in document], np.int32)
    groups = near_copy_groups(token, np.array([len(document) for document in documents], np.int64))
    shuffled = [documents[i] for i in order]
    token = np.array([token for document in shuffled for token in document], np.int32)
    other = near_copy_groups(token, np.array([len(document) for document in shuffled], np.int64))
    together = {(order[i], order[j]) for i in range(len(order)) for j in range(len(order)) if other[i] == other[j]}
    assert together == {(i, j) for i in range(len(order)) for j in range(len(order)) if groups[i] == groups[j]}


def test_names_are_empty_without_copies() -> None:
    assert near_copy_names(np.arange(30), np.array([10, 20])) == []
    assert near_copy_names(np.array([3, 4, 3, 4]), np.array([2, 2])) == ["document 0", "document 0"]


def test_ranks_without_ids_of_tokens_have_no_known_copies() -> None:
    assert near_copies_in(rank_table([1, 2, 1, 2], documents=2, token=[-1, -1, -1, -1])) == []
    assert near_copies_in(rank_table([1, 2, 1, 2], documents=2, token=[4, 5, 4, 5])) == ["document 0", "document 0"]
