"""Names in their order, and what patterns choose among them."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput
from rbptrack.config.patterns import choose, families, natural_key, passes, split_list

PYTHIA = ["14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b"]
NAMES = [*(f"pythia/{size}" for size in PYTHIA), "gpt2/small", "hf", "default"]


def test_sizes_sort_by_what_they_mean() -> None:
    shuffled = PYTHIA.copy()
    random.Random(0).shuffle(shuffled)
    assert sorted(shuffled, key=natural_key) == PYTHIA
    assert sorted(["xl", "small", "large", "medium"], key=natural_key) == ["small", "medium", "large", "xl"]
    assert sorted(["hf", "14m", "small"], key=natural_key) == ["14m", "small", "hf"]
    assert sorted(["6k-step1024", "6k-step64"], key=natural_key) == ["6k-step64", "6k-step1024"]
    assert sorted(["step1000", "step256"], key=natural_key) == ["step256", "step1000"]


@given(st.lists(st.text("0123456789kmb.-/ax", max_size=8)))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    once = sorted(names, key=natural_key)
    assert sorted(once, key=natural_key) == once


def test_exclusions_and_order() -> None:
    chosen = choose("model", ["pythia/*", "!pythia/12b", "!pythia/?b"], NAMES)
    assert chosen == [f"pythia/{size}" for size in ("14m", "31m", "70m", "160m", "410m", "1.4b", "2.8b", "6.9b")]
    assert choose("model", ["!pythia/*", "**"], NAMES) == ["gpt2/small"]
    assert choose("model", ["gpt2/small", "pythia/1b", "gpt2/*"], NAMES) == ["gpt2/small", "pythia/1b"]


def test_a_star_stays_in_its_folder() -> None:
    assert choose("model", ["*/small"], NAMES) == ["gpt2/small"]
    with pytest.raises(BadInput):
        choose("model", ["*"], NAMES)
    assert set(choose("model", ["**"], NAMES)) == set(NAMES) - {"hf", "default"}  # chosen by their name only


@pytest.mark.parametrize(
    ("elements", "meant"),
    [
        (["pythia"], "pythia/14m"),
        (["pythia/71m"], "Did you mean pythia/70m? "),
        (["pythia/0.9b"], "Did you mean pythia/1b? "),
        (["gpt2/smal"], "Did you mean gpt2/small? "),
        (["phytia/70m"], "pythia/70m"),
        (["gpt2-small"], "gpt2/small"),
        (["pithia/*"], "pythia/*"),
        (["pythia/1b", "!pythia/*"], "pythia/1b"),
        (["pythia/*", "!pythia"], "'!pythia/*' to leave out"),
        (["pythia/*", "!pythia/7m"], "pythia/70m"),
        (["pythia/7m"], "pythia/7m. Options"),
        (["gpt2/124m"], "gpt2/124m. Options"),
    ],
)
def test_what_matches_nothing_names_the_nearest(elements: list[str], meant: str) -> None:
    with pytest.raises(BadInput, match=re.escape(meant)) as caught:
        choose("model", elements, NAMES)
    assert len(str(caught.value).splitlines()) <= 2


def test_a_pattern_of_many_stars_is_answered() -> None:
    """A search that tries every way to match them would not end."""
    with pytest.raises(BadInput):
        choose("model", ["*a" * 30 + "/b"], ["a" * 60 + "/c", *NAMES])
    assert not passes(["a" * 200], ["*a" * 40 + "b"])


def test_filters_over_names() -> None:
    assert passes(["pythia-1b", "pythia/1b"], ["pythia/*"])
    assert passes(["gpt2"], [])
    assert passes(["gpt2"], ["!pythia*"])
    assert not passes(["pythia-12b"], ["pythia*", "!*12b"])
    assert not passes(["gpt2"], ["pythia*"])


def test_lists_are_split_at_commas() -> None:
    assert split_list("[a, 'b c',\"d\"]") == ["a", "b c", "d"]
    assert split_list("a,,b") == ["a", "b"]
    assert split_list("['a,b', c]") == ["a,b", "c"]
    assert split_list("it's,b") == ["it's", "b"]


def test_families_are_folders_with_their_sizes_in_order() -> None:
    assert families(["b/2m", "b/1k", "x", "a/1"]) == {"a": ["1"], "b": ["1k", "2m"]}
