"""Numbers in sentences read as what they are."""

from __future__ import annotations

from rbptrack.analysis import counted, listed, spread


def test_counts_agree_with_their_noun() -> None:
    assert [counted(n, "size") for n in (0, 1, 2, 1200)] == ["0 sizes", "1 size", "2 sizes", "1,200 sizes"]


def test_two_values_are_not_an_interval() -> None:
    assert spread([0.157, 0.112], ".3f") == "0.112 and 0.157"
    assert spread([0.157, 0.1571], ".3f") == "0.157"
    assert spread([0.3, 0.1, 0.2], ".1f") == "from 0.1 to 0.3 (3 values)"


def test_lists_end_with_and() -> None:
    assert [listed(w) for w in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
