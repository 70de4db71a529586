"""Tests of the order of names and of the names that patterns select."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import matches_patterns, natural_key, select_names, sizes_by_family, split_list

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]
NAMES = [*(f"pythia/{size}" for size in PYTHIA), "gpt2/small", "hf", "default"]


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


def test_select_names_leaves_out_names_after_an_exclamation_mark() -> None:
    chosen = select_names("model", ["pythia/*", "!pythia/12b", "!pythia/?b"], NAMES)
    assert chosen == [f"pythia/{size}" for size in ("14m", "31m", "70m", "160m", "410m", "1.4b", "2.8b", "6.9b")]


def test_select_names_leaves_out_names_if_the_exclusion_comes_first() -> None:
    assert select_names("model", ["!pythia/*", "**"], NAMES) == ["gpt2/small"]


def test_select_names_keeps_the_order_of_the_elements_and_each_name_once() -> None:
    assert select_names("model", ["gpt2/small", "pythia/1b", "gpt2/*"], NAMES) == ["gpt2/small", "pythia/1b"]


def test_select_names_matches_one_folder_with_a_star() -> None:
    assert select_names("model", ["*/small"], NAMES) == ["gpt2/small"]


def test_select_names_refuses_a_star_that_matches_only_names_in_folders() -> None:
    with pytest.raises(BadInput):
        select_names("model", ["*"], NAMES)


def test_select_names_matches_all_folders_with_two_stars_but_not_hf_and_default() -> None:
    assert set(select_names("model", ["**"], NAMES)) == set(NAMES) - {"hf", "default"}


@pytest.mark.parametrize(
    ("elements", "suggestion"),
    [
        (["pythia"], "pythia/14m"),
        (["pythia/71m"], "pythia/70m"),
        (["gpt2/smal"], "Did you mean gpt2/small? "),
        (["phytia/70m"], "pythia/70m"),
        (["gpt2-small"], "gpt2/small"),
        (["pithia/*"], "pythia/*"),
        (["pythia/1b", "!pythia/*"], "pythia/1b"),
        (["pythia/*", "!pythia"], "'!pythia/*' to leave out"),
        (["pythia/*", "!pythia/7m"], "pythia/70m"),
        (["gpt2/124m"], "gpt2/124m. Options"),
    ],
)
def test_select_names_suggests_names_if_an_element_matches_nothing(elements: list[str], suggestion: str) -> None:
    with pytest.raises(BadInput, match=re.escape(suggestion)) as caught:
        select_names("model", elements, NAMES)
    assert len(str(caught.value).splitlines()) <= 2


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


def test_sizes_by_family_are_in_ascending_order() -> None:
    assert sizes_by_family(["b/2m", "b/1k", "x", "a/1"]) == {"a": ["1"], "b": ["1k", "2m"]}
