"""Two tokenizations of one text: all nats are found again in the words, and planted gaps in their places."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rbptrack.plugins.compare import Compare
from rbptrack.plugins.compare.aligned_texts import Words, aligned, text_gaps

from rbptrack.analysis import Runs
from rbptrack.ranks import RankTable
from rbptrack.reporting.telling import sentences_of
from tests.synthetic import changed, runs_of_tables, text_table, together

TEXT = "x" + " the quick  brown fox\n jumps over 1234 lazy dogs; déjà vu" * 12
LONG, SHORT, SEVENS = r"\s*\S+|\s+$", r"\s*\S{1,2}|\s+$", r".{1,7}"


def table(
    texts: list[str], pieces: str, *, per_byte: float = 0.5, on: str = "", more: float = 0.0
) -> tuple[RankTable, dict[int, str]]:
    """So many nats per byte, and more on tokens that hold `on`; the first token, `x`, is not scored."""
    cut = [["x", *re.findall(pieces, text[1:], flags=re.DOTALL)] for text in texts]
    scored = [piece for text in cut for piece in text[1:]]
    nats = [len(piece.encode()) * (per_byte + more * bool(on and on in piece)) for piece in scored]
    return text_table(cut, logprob=-np.array(nats))


@pytest.mark.parametrize("pieces", [LONG, SHORT, SEVENS, "."])
def test_words_have_all_nats_whatever_the_tokens(pieces: str) -> None:
    texts = [TEXT, TEXT[:200], "x one", "x"]
    (a, known_a), (b, known_b) = table(texts, LONG, per_byte=0.3), table(texts, pieces, per_byte=0.4)
    gaps = text_gaps([(a, b)], (known_a, known_b), words=5, most=1000)
    assert gaps is not None
    assert gaps.unlike == 0
    for one, mine in ((a, gaps.sums.nats_a), (b, gaps.sums.nats_b)):
        total = np.bincount(one.column("document"), weights=-one.column("logprob").astype(float))
        np.testing.assert_allclose(mine.sum(axis=1), total, rtol=1e-6)
        np.testing.assert_allclose(sum(s.nats_a if one is a else s.nats_b for s in gaps.worst), total.sum(), rtol=1e-6)
    assert gaps.sums.num_bytes.sum() == sum(len(text.encode()) - 1 for text in texts)
    assert "".join(one.text for one in sorted(gaps.worst, key=lambda one: one.document) if one.document == 2) == " one"


def test_a_planted_gap_is_found_in_its_place() -> None:
    (a, known_a), (b, known_b) = table([TEXT], LONG), table([TEXT], SHORT, on="12", more=2.0)
    gaps = text_gaps([(a, b)], (known_a, known_b), words=1, most=12)
    assert gaps is not None
    assert [one.text for one in gaps.worst] == [" 1234"] * 12
    assert gaps.best == []


def test_scored_text_that_begins_or_ends_elsewhere_is_left_out() -> None:
    words = [" the", " quick", " brown", " fox", " jumps", " over"]
    whole = Words.of(words, np.arange(6.0))
    later = Words.of(["ck", *words[2:5], " ov"], np.ones(5))
    pair = aligned(whole, later)
    assert pair is not None
    assert pair[0].texts == pair[1].texts == words[2:5]
    assert pair[0].nats.tolist() == [2, 3, 4]
    assert aligned(whole, Words.of([" a", " b", " c", " d"], np.ones(4))) is None


def test_parts_of_characters_match_their_word() -> None:
    a = Words.of([" d\ufffd", "\ufffdj", "à", " vu", " ok"], np.ones(5))
    b = Words.of([" déjà", " vu", " ok"], np.ones(3))
    pair = aligned(a, b)
    assert pair is not None
    assert pair[1].texts == [" déjà", " vu", " ok"]
    assert pair[0].nats.tolist() == [3, 1, 1]


def family(name: str, pieces: str, **planted: object) -> Runs:
    ranks, known = table([TEXT] * 12, pieces, **planted)  # type: ignore[arg-type]
    return changed(runs_of_tables([1e5], {f"{name}-0": ranks}, family=name), token_texts=lambda _: known)


def test_compare_shows_the_worst_text_of_models_with_other_tokens() -> None:
    runs = together(family("long", LONG), family("short", SHORT, on="12", more=2.0))
    report = Compare(ks=[1], shown=1, words=2, worst=3).analyze(runs)
    assert report.summary == "gaps", "one size of each, other tokens: no law and no RBP_k to sum up"
    gaps = report.tables["gaps"].frame.set_index("words")
    assert gaps.loc["all", "nats_A"] == pytest.approx(0.5)
    assert gaps.loc["word", "difference"] == pytest.approx(0.0, abs=1e-9)
    assert gaps.loc["number", "difference"] == pytest.approx(-1.2, abs=1e-6), "2 more on 3 of the 5 bytes of ' 1234'"
    assert gaps["share"].drop("all").sum() == pytest.approx(1)
    segments = report.tables["segments"].frame
    assert (segments["better"] == "long-100000").all()
    assert all("1234" in text for text in segments["text"])
    assert any(
        "short-100000 on text; the gap is widest on words of the kind 'number'" in said
        for said in sentences_of(report.findings)
    )
    assert any(
        said.startswith("short-100000 falls furthest behind, by 6.0 nats, on: ")
        for said in sentences_of(report.findings)
    )
    assert "gaps" not in Compare(ks=[1], shown=1, gaps=0).analyze(runs).tables
