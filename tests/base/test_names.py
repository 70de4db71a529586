"""Tests of the order of names, of patterns, and of lists in texts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.names import matches_patterns, natural_key, split_list

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]


def test_natural_key_sorts_sizes_by_their_number() -> None:
    shuffled = PYTHIA.copy()
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=natural_key) == PYTHIA


@pytest.mark.parametrize(
    ("names", "in_order"),
    [
        (["xl", "small", "large", "medium"], ["small", "medium", "large", "xl"]),
        (["hf", "14m", "small"], ["14m", "small", "hf"]),
        (["6k-step1024", "6k-step64"], ["6k-step64", "6k-step1024"]),
        (["step1000", "step256"], ["step256", "step1000"]),
        (["seed10 step1", "seed2 step1000", "seed2 step64"], ["seed2 step64", "seed2 step1000", "seed10 step1"]),
        (["doc10.txt", "doc2.txt"], ["doc2.txt", "doc10.txt"]),
    ],
)
def test_natural_key_sorts_words_for_sizes_and_numbers_of_steps(names: list[str], in_order: list[str]) -> None:
    assert sorted(names, key=natural_key) == in_order


@given(st.lists(st.text("0123456789kmb.-/ax", max_size=8)))
def test_natural_key_sorts_any_names(names: list[str]) -> None:
    in_order = sorted(names, key=natural_key)
    assert sorted(in_order, key=natural_key) == in_order


@pytest.mark.parametrize(
    ("names", "patterns", "expected"),
    [
        (["pythia-1b", "pythia/1b"], ["pythia/*"], True),
        (["gpt2"], [], True),
        (["gpt2"], ["!pythia*"], True),
        (["pythia-12b"], ["pythia*", "!*12b"], False),
        (["gpt2"], ["pythia*"], False),
    ],
)
def test_matches_patterns_if_a_name_matches_and_no_name_is_excluded(
    names: list[str], patterns: list[str], expected: bool
) -> None:
    assert matches_patterns(names, patterns) == expected


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("[a, 'b c',\"d\"]", ["a", "b c", "d"]),
        ("a,,b", ["a", "b"]),
        ("['a,b', c]", ["a,b", "c"]),
        ("it's,b", ["it's", "b"]),
    ],
)
def test_split_list_splits_at_commas_outside_quotes(text: str, elements: list[str]) -> None:
    assert split_list(text) == elements
