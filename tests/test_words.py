from __future__ import annotations

import re

import numpy as np
import pytest

from plugins.words import Words
from rbptrack.analysis import Runs
from rbptrack.errors import RbptrackError
from rbptrack.ranks import RankTable
from rbptrack.stats import TokenShapes, WordCounts
from tests.synthetic import runs_of_tables, together

SIZES = np.geomspace(1e4, 1e7, 5)
TEXT = "x" + " the quick  brown fox\n jumps over" * 30


def cut(text: str, pieces: str) -> list[str]:
    return re.findall(pieces, text, flags=re.DOTALL)


WHOLE, HALVES, CHARACTERS = r"\s*\S+|\s+$", r"\s*\S{1,2}", "."


def table(texts: list[list[str]], rank: np.ndarray) -> tuple[RankTable, dict[int, str]]:
    """Tokens of several documents with these ranks; the first token of each document is not scored."""
    vocabulary = {t: i for i, t in enumerate(dict.fromkeys(t for text in texts for t in text))}
    rows = [(d, p, vocabulary[t]) for d, text in enumerate(texts) for p, t in enumerate(text) if p]
    document, position, token = np.array(rows).T
    zeros = np.zeros(len(rows))
    found = RankTable.from_arrays(
        vocab_size=1000, document=document, position=position, field=zeros, token=token, greater=rank[: len(rows)] - 1,
        ties=zeros, logprob=zeros - 0.5,
    )  # fmt: skip
    return found, {i: t for t, i in vocabulary.items()}


@pytest.mark.parametrize("pieces", [WHOLE, HALVES, CHARACTERS, r".{1,7}"])
def test_words_against_brute_force(pieces: str) -> None:
    rng = np.random.default_rng(0)
    texts = [cut(TEXT, pieces), cut(TEXT[:200], pieces)]
    ranks, known = table(texts, rng.integers(1, 4, 10_000))
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
        inside = [
            w for w in words if w[0] > spans[1][0] and w[1] < spans[-1][1]
        ]  # neither the first nor the last scored
        edge = [w for w in words if w[0] == spans[1][0]]
        inside = [w for w in inside if not any(w[0] < e[1] for e in edge)]
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
        tables[f"{name}-{i}"], known = table(texts, np.array(rank))
    plain = runs_of_tables(SIZES, tables, family=name)
    return Runs(plain.frame, histogram=plain.histogram, ranks=plain.ranks, token_texts=lambda _: known)


def both(one: Runs, other: Runs) -> Runs:
    whole = together(one, other)

    def texts(run_id: str) -> dict[int, str]:
        return dict((one if run_id in set(one.frame["run_id"]) else other).vocabulary(run_id))

    return Runs(whole.frame, histogram=whole.histogram, ranks=whole.ranks, token_texts=texts)


def test_the_same_words_in_other_tokens_are_equally_good() -> None:
    report = Words(ks=[1], replicates=300).analyze(
        both(family("long", WHOLE, 0.2, 8.0, seed=1), family("short", HALVES, 0.2, 8.0, seed=2))
    )
    laws = report.tables["laws"].frame.set_index(["family", "metric"])
    for name in ("long", "short"):
        row = laws.loc[(name, "words_1")]
        assert row["alpha_low"] < 0.2 < row["alpha_high"]
    pair = report.tables["families"].frame.set_index("metric").loc["words_1"]
    assert pair["ratio_low"] < 1 < pair["ratio_high"]
    assert pair["verdict"] == "cannot tell"
    summary = report.tables["summary"].frame.set_index("family")
    assert float(summary.loc["short", "tokens per word"]) > 1.8 * float(summary.loc["long", "tokens per word"])


def test_a_better_family_is_found_across_tokenizers() -> None:
    report = Words(ks=[1], replicates=300).analyze(
        both(family("long", WHOLE, 0.2, 6.0, seed=1), family("short", HALVES, 0.2, 8.0, seed=2))
    )
    pair = report.tables["families"].frame.set_index("metric").loc["words_1"]
    assert pair["ratio_low"] < 6 / 8 < pair["ratio_high"] < 1
    assert pair["verdict"] == "long"
    assert "better: long" in report.notes[0]
    assert set(report.drawings) == {"whole_words"}


def test_measurements_without_texts_are_left_out() -> None:
    plain = family("long", WHOLE, 0.2, 8.0, seed=1)
    with pytest.raises(RbptrackError, match="the texts of its tokens were not kept"):
        Words().analyze(Runs(plain.frame, histogram=plain.histogram, ranks=plain.ranks))
