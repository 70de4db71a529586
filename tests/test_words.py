from __future__ import annotations

import re

import numpy as np
import pytest
from rbptrack.plugins.compare import Compare
from rbptrack.plugins.compare.whole_words import TokenShapes, WordCounts

from rbptrack.analysis import Runs
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, runs_of_tables, text_table, together

SIZES = np.geomspace(1e4, 1e7, 5)
TEXT = "x" + " the quick  brown fox\n jumps over" * 30


def cut(text: str, pieces: str) -> list[str]:
    return re.findall(pieces, text, flags=re.DOTALL)


WHOLE, HALVES, CHARACTERS = r"\s*\S+|\s+$", r"\s*\S{1,2}", "."


@pytest.mark.parametrize("pieces", [WHOLE, HALVES, CHARACTERS, r".{1,7}"])
def test_words_against_brute_force(pieces: str) -> None:
    rng = np.random.default_rng(0)
    texts = [cut(TEXT, pieces), cut(TEXT[:200], pieces)]
    ranks, known = text_table(texts, rank=rng.integers(1, 4, 10_000))
    counts = WordCounts.of(ranks, TokenShapes.of(known), [1, 2])
    used = 0
    for d, text in enumerate(texts):
        spans, at = [], 0
        for piece in text:
            spans.append((at, at + len(piece)))
            at += len(piece)
        rank = ranks.rank[used : used + len(text) - 1]
        used += len(text) - 1
        expected = {1: 0, 2: 0}
        words = [m.span() for m in re.finditer(r"\s*\S+", "".join(text))]
        inside = [w for w in words if w[0] > spans[1][0] and w[1] < spans[-1][1]]  # the last may go on
        first = next(w for w in words if w[1] > spans[1][0])  # the word that the first scored token begins in
        inside = [w for w in inside if w != first]
        for low, high in inside:
            for k in (1, 2):
                reached = [r for (a, b), r in zip(spans[1:], rank, strict=True) if a < high and b > low]
                expected[k] += all(r <= k for r in reached)
        assert counts.words[d] == len(inside)
        assert counts.whole[d].tolist() == [expected[1], expected[2]]
        assert counts.num_bytes[d] == spans[-1][1] - spans[1][0]


def family(name: str, pieces: str, alpha: float, a: float, *, seed: int) -> Runs:
    """Words succeed with probability exp(-a S^-alpha): every token of a word succeeds or fails with it."""
    tables, texts = {}, [cut(TEXT, pieces) for _ in range(30)]
    for i, s in enumerate(SIZES):
        rng = np.random.default_rng(seed * 100 + i)
        rank = []
        for text in texts:
            word = np.cumsum([t[0].isspace() for t in text])  # tokens never reach into two words here
            good = rng.random(word.max() + 1) < np.exp(-a * s**-alpha)
            rank += np.where(good[word[1:]], 1, 30).tolist()
        tables[f"{name}-{i}"], known = text_table(texts, rank=np.array(rank))
    return changed(runs_of_tables(SIZES, tables, family=name), token_texts=lambda _: known)


def test_the_same_words_in_other_tokens_are_equally_good() -> None:
    report = Compare(ks=[1], shown=1, replicates=300).analyze(
        together(family("long", WHOLE, 0.2, 8.0, seed=1), family("short", HALVES, 0.2, 8.0, seed=2))
    )
    laws = report.tables["words"].frame.set_index(["family", "metric"])
    for name in ("long", "short"):
        row = laws.loc[(name, "words_1")]
        assert row["alpha_low"] < 0.2 < row["alpha_high"]
    pair = report.tables["laws"].frame.set_index("metric").loc["words_1"]
    assert pair["ratio_low"] < 1 < pair["ratio_high"]
    assert "RBP_1" not in set(report.tables["laws"].frame["metric"]), "its tokens do not compare"
    assert any("whole words and bits per byte" in note for note in report.notes)


def test_a_better_family_is_found_across_tokenizers() -> None:
    report = Compare(ks=[1], shown=1, replicates=300).analyze(
        together(family("long", WHOLE, 0.2, 6.0, seed=1), family("short", HALVES, 0.2, 8.0, seed=2))
    )
    pair = report.tables["laws"].frame.set_index("metric").loc["words_1"]
    assert pair["ratio_low"] < 6 / 8 < pair["ratio_high"] < 1
    assert sentences_of(report.findings)[0].startswith("long and short follow different laws")
    assert "words_1" in sentences_of(report.findings)[0]


def test_without_texts_only_the_nats_of_the_text_compare_and_that_is_said() -> None:
    one, other = family("long", WHOLE, 0.2, 6.0, seed=1), family("short", HALVES, 0.2, 8.0, seed=2)
    report = Compare(ks=[1], shown=1, replicates=300).analyze(changed(together(one, other), token_texts=lambda _: {}))
    assert "words" not in report.tables
    assert any("compare nats of the text, not RBP_k or CE" in note for note in report.notes)
