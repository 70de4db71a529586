"""Numbers in sentences read as what they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rbptrack.base.words import at_least, be, counted, listed, number, p_in_words, spread
from rbptrack.console.output import say_wrapped
from rbptrack.reporting.typeset import typeset, unmarked


def test_counts_agree_with_their_noun() -> None:
    assert [counted(n, "size") for n in (0, 1, 2, 1200)] == ["0 sizes", "1 size", "2 sizes", "1,200 sizes"]


def test_two_values_are_not_an_interval() -> None:
    assert spread([0.157, 0.112], ".3f") == "0.157 and 0.112"
    assert spread([0.157, 0.112], ".3f", ["code", "prose"]) == "0.157 (code) and 0.112 (prose)"
    assert spread([0.157, 0.1571], ".3f", ["code", "prose"]) == "0.157"
    assert spread([0.3, 0.1, 0.2, 0.2], ".1f") == "between 0.1 and 0.3 (4 values)"


def test_zero_has_no_sign_of_its_own_and_bounds_are_rounded_to_their_safe_side() -> None:
    assert [number(v, f) for v, f in ((-0.0004, ".1%"), (-0.0004, "+.3f"), (-0.04, ".1f"), (-0.06, ".1f"))] == [
        "0.0%",
        "+0.000",
        "0.0",
        "-0.1",
    ]
    assert spread([-0.0004, -0.0001], ".0%") == "0%"
    assert [at_least(v, 3) for v in (0.99996, 1.0, 0.9876)] == ["0.999", "1.000", "0.987"]
    assert [p_in_words(p) for p in (0.0, 0.004, 0.16, 1.0)] == ["p < 0.001", "p = 0.004", "p = 0.16", "p > 0.99"]
    assert [be(n) for n in (0, 1, 2)] == ["are", "is", "are"]


def test_a_unit_stands_with_its_number() -> None:
    assert spread([11.2, 28.2, 12, 13], ".1f", unit="decades") == "between 11.2 and 28.2 decades (4 values)"
    assert spread([0.03], "+.2f", unit="nats") == "+0.03 nats"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "plugins").glob("*.py")), ids=lambda path: path.stem
)
def test_no_analyzer_can_print_a_negative_zero(path: Path) -> None:
    """A signed number or a share is printed with `z` in its form: Python's own way to say 0 without a sign."""
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"\{[^{}\n]*:\+\.\d[^{}\n]*\}", text)


def test_a_sentence_that_is_cut_leaves_no_parenthesis_open(capsys: pytest.CaptureFixture[str]) -> None:
    say_wrapped(
        "a sentence that is long " * 5 + "(with a parenthesis that does not end on these lines " * 2 + "at all)",
        lines=2,
    )
    said = capsys.readouterr().out
    assert said.count("(") == said.count(")") == 0
    assert said.endswith("long ...\n")


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


def test_attributes_have_subscripts_without_markup() -> None:
    assert unmarked("alpha of RBP_100 < 1") == "α of RBP₁₀₀ < 1"
