"""Tests of the configs that patterns select."""

from __future__ import annotations

import re

import pytest

from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import select_names, sizes_by_family

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]
NAMES = [*(f"pythia/{size}" for size in PYTHIA), "gpt2/small", "hf", "default"]


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


def test_sizes_by_family_are_in_ascending_order() -> None:
    assert sizes_by_family(["b/2m", "b/1k", "x", "a/1"]) == {"a": ["1"], "b": ["1k", "2m"]}
