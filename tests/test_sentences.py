"""Numbers in sentences read as what they are."""

from __future__ import annotations

import pytest

from rbptrack.analysis import counted, listed, spread
from rbptrack.reporting.typeset import typeset


def test_counts_agree_with_their_noun() -> None:
    assert [counted(n, "size") for n in (0, 1, 2, 1200)] == ["0 sizes", "1 size", "2 sizes", "1,200 sizes"]


def test_two_values_are_not_an_interval() -> None:
    assert spread([0.157, 0.112], ".3f") == "0.157 and 0.112"
    assert spread([0.157, 0.112], ".3f", ["code", "prose"]) == "0.157 (code) and 0.112 (prose)"
    assert spread([0.157, 0.1571], ".3f", ["code", "prose"]) == "0.157"
    assert spread([0.3, 0.1, 0.2, 0.2], ".1f") == "between 0.1 and 0.3 (4 values)"


def test_lists_end_with_and() -> None:
    assert [listed(w) for w in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("-ln RBP_10 = A S^-alpha, R^2", "−ln RBP<sub>10</sub> = A S<sup>−α</sup>, R²".replace("R²", "R<sup>2</sup>")),
        ("Alpha_N is <b> & R <= k", "α<sub>N</sub> is &lt;b&gt; &amp; R ≤ k"),
        ("from -0.3 to 0.4 at step-by-step-1", "from −0.3 to 0.4 at step-by-step-1"),
        ("R^2. 2^(beta/alpha), alpha_without", "R<sup>2</sup>. 2<sup>β/α</sup>, α_without"),
        ("betamax and alphabet, tables/rbp_10.csv", "betamax and alphabet, tables/rbp_10.csv"),
    ],
)
def test_formulas_are_set_as_in_a_paper(plain: str, shown: str) -> None:
    assert str(typeset(plain)) == shown
