from __future__ import annotations

import numpy as np
import pytest
from rbptrack.plugins.tokens import Tokens
from rbptrack.plugins.tokens.classes import ClassCounts, class_weights, frequency_bins, mix_and_within, starts_word

from rbptrack.analysis import Report, Runs
from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from rbptrack.stats.token_kinds import KINDS, kind_of
from tests.synthetic import changed, ranked, runs_of_tables

SIZES = np.geomspace(1e4, 1e7, 6)
TEXTS = {0: " the", 1: "ing", 2: "42", 3: "):", 4: "\n    ", 5: " self_x"}
ALPHAS = np.array([0.1, 0.3, 0.2, 0.2, 0.2, 0.2])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" the", "word"), ("don't", "word"), ("Größe", "word"), ("camelCase", "identifier"), ("x_1", "identifier"),
        ("_", "punctuation"), ("3.14", "number"), (" ==", "punctuation"), ("\n   ", "white space"), ("", "other"),
        ("\ufffd", "other"),
    ],
)  # fmt: skip
def test_kinds(text: str, kind: str) -> None:
    assert KINDS[kind_of(text)] == kind


def test_word_starts_and_frequencies() -> None:
    assert [starts_word(t) for t in (" a", "a", "")] == [True, False, False]
    place, names = frequency_bins(np.array([9000, 995, 5]))
    assert [names[p] for p in place] == ["1e-2 and more", "1e-2 and more", "1e-4 to 1e-3"]


def table(seed: int, s: float, *, documents: int = 40, length: int = 600) -> RankTable:
    """Six kinds of token in equal shares; -ln RBP_1 = 2 (S/1e4)^-alpha of the kind; other ranks fall as 1/R."""
    rng = np.random.default_rng(seed)
    n = documents * length
    token = np.random.default_rng(0).integers(0, 6, n)  # the same text for every size
    p = np.exp(-2 * (s / 1e4) ** -ALPHAS[token])
    below = np.rint(np.exp(rng.uniform(np.log(2), np.log(900), n))).astype(int)
    rank = np.where(rng.random(n) < p, 1, below)
    logprob = -np.full(n, 2 * (s / 1e4) ** -0.2)
    return ranked(rank, documents=documents, vocab_size=1000, token=token, logprob=logprob)


def test_class_counts_by_hand() -> None:
    one = table(1, 1e5, documents=2, length=50)
    token = one.column("token")
    counts = ClassCounts.of(one, token, [TEXTS[i] for i in range(6)], [1, 10])
    np.testing.assert_array_equal(counts.tokens.sum(axis=0), np.bincount(token, minlength=6))
    assert counts.hits[:, :, 0].sum() == (one.rank == 1).sum()
    y = counts.values(np.ones((1, 2)))[0]
    assert y[3, 2] == pytest.approx(-np.log((one.rank[token == 3] <= 10).mean()))
    assert (counts + counts).values(np.ones((1, 2)))[0, 3, 2] == pytest.approx(y[3, 2])


def test_the_exponent_is_the_weighted_sum_of_the_classes() -> None:
    share, y, alpha = np.array([0.2, 0.5, 0.3]), np.array([1.5, 0.4, 0.1]), np.array([0.1, 0.2, 0.4])

    def whole(x: float) -> float:
        return float(np.log(-np.log(share @ np.exp(-y * np.exp(-alpha * x)))))

    slope = -(whole(1e-5) - whole(-1e-5)) / 2e-5
    assert class_weights(share, y) @ alpha == pytest.approx(slope, rel=1e-6)


def test_mix_and_within_add_up() -> None:
    first, second = (np.array([0.3, 0.7]), np.array([0.1, 0.2])), (np.array([0.6, 0.4]), np.array([0.1, 0.5]))
    mix, within = mix_and_within(first, second)
    assert mix.sum() + within.sum() == pytest.approx(second[0] @ second[1] - first[0] @ first[1])
    assert within[0] == 0
    assert mix_and_within(first, (second[0], first[1]))[1].sum() == 0


@pytest.fixture(scope="module")
def runs() -> Runs:
    tables = {f"r{i}": table(i, s) for i, s in enumerate(SIZES)}
    return changed(runs_of_tables(SIZES, tables), token_texts=lambda _: TEXTS)


def test_exponents_of_classes_are_found(runs: Runs) -> None:
    report = Tokens(ks=[1, 10], shown=1, replicates=200).analyze(runs)
    laws = report.tables["laws"].frame.query("by == 'kind of token' and metric == 'RBP_1'").set_index("class")
    assert set(laws.index) == {"word", "number", "punctuation", "white space", "identifier"}
    for name, alpha in (("number", 0.2), ("identifier", 0.2)):
        assert laws.loc[name, "alpha_low"] <= alpha <= laws.loc[name, "alpha_high"]
    assert laws["share"].sum() == pytest.approx(1)
    assert laws["gain"].sum() == pytest.approx(1)
    start = report.tables["laws"].frame.query("by == 'place in the word' and metric == 'RBP_1'").set_index("class")
    assert set(start.index) == {"begins a word", "inside a word"}
    change = report.tables["exponents"].frame
    np.testing.assert_allclose(change["mix"] + change["within"], change["change"])
    said = sentences_of(report.findings)
    assert "The exponent of RBP_1 differs between classes of tokens in" in said[0]
    assert any("by kind of token: alpha is" in sentence for sentence in said)
    contrast = report.tables["contrasts"].frame.query("by == 'place in the word'").iloc[0]
    assert contrast["p_corrected"] < 0.05, "exponents 0.1 and 0.3 among others: intervals that overlap hid it"
    assert by_place(report).verdict is Verdict.DIFFERENT


def by_place(report: Report) -> Finding:
    """Whether what begins a word has another law than what stands inside it."""
    return next(one for one in report.findings if one.case.get("by") == "place in the word")


def test_without_texts_frequency_is_left(runs: Runs) -> None:
    plain = changed(runs, token_texts=lambda _: {})
    report = Tokens(ks=[1], shown=1, replicates=100).analyze(plain)
    assert "laws" not in report.tables or set(report.tables["laws"].frame["by"]) == {"share of the corpus"}
    assert any("the texts of tokens were not kept" in note for note in report.notes)
    with pytest.raises(BadInput, match=r"analyzer\.shown=7"):
        Tokens(shown=7).analyze(plain)


def test_classes_that_are_alike_are_rarely_called_different() -> None:
    """Two classes with the same law are called different in few draws."""
    wrong = 0
    for seed in range(20):
        rng, tables = np.random.default_rng(seed), {}
        member = rng.integers(0, 2, 8000)
        for s in SIZES:
            rank = np.where(rng.random(8000) < np.exp(-2 * (s / 1e4) ** -0.2), 1, 30)
            tables[f"{s}"] = ranked(rank, documents=20, token=member)
        labelled = changed(runs_of_tables(SIZES, tables), token_texts=lambda _: {0: " a", 1: "b"})
        report = Tokens(ks=[1], shown=1, replicates=100).analyze(labelled)
        wrong += by_place(report).verdict is Verdict.DIFFERENT
    assert wrong <= 2
