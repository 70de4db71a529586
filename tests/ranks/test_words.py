"""Tests of `word_surprisal`, which joins tokens to words and adds up their surprisal."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.base.errors import BadInput
from rbptrack.ranks import RankTable
from rbptrack.ranks.words import word_starts, word_surprisal


def table_of(rank: list[int], logprob: list[float], document: list[int], position: list[int]) -> RankTable:
    """Return a rank table whose token IDs are 10 * document + position."""
    return RankTable.from_arrays(
        vocab_size=1000,
        document=document,
        position=position,
        field=np.zeros(len(rank)),
        token=10 * np.array(document) + np.array(position),
        greater=np.array(rank) - 1,
        ties=np.zeros(len(rank)),
        logprob=logprob,
    )


def test_word_surprisal_adds_nats_and_takes_the_worst_rank_of_the_tokens_of_a_word() -> None:
    texts = {0: "The", 1: " un", 2: "like", 3: "ly", 4: " \udce2\udc82", 5: "\udcac", 10: "Yes", 11: ".\n", 12: "No"}
    logprob = [-0.5, -1.0, -0.25, -2.0, -1.0, -0.125, -3.0]
    ranks = table_of([2, 30, 1, 4, 5, 1, 7], logprob, [0, 0, 0, 0, 0, 1, 1], [1, 2, 3, 4, 5, 1, 2])
    unscored = pd.DataFrame({"document": [0, 1], "position": [0, 0], "token": [0, 10]})
    words = word_surprisal(ranks, unscored, texts)
    assert words["word"].tolist() == ["The", "unlikely", "€", "Yes.", "No"]
    assert words["document"].tolist() == [0, 0, 0, 1, 1]
    assert words["tokens"].tolist() == [1, 3, 2, 2, 1]
    assert words["surprisal"].tolist() == pytest.approx([np.nan, 1.75, 3.0, np.nan, 3.0], nan_ok=True)
    assert words["worst_rank"].fillna(0).tolist() == [0, 30, 5, 0, 7]


def test_word_surprisal_refuses_documents_out_of_order() -> None:
    ranks = table_of([1, 1, 1], [-1.0, -1.0, -1.0], [1, 0, 1], [0, 0, 1])
    unscored = pd.DataFrame({"document": [], "position": [], "token": []}, dtype="int64")
    with pytest.raises(BadInput):
        word_surprisal(ranks, unscored, {})


@given(st.lists(st.text(alphabet="ab \n.", min_size=1, max_size=3), min_size=1, max_size=30))
def test_word_surprisal_of_scored_tokens_adds_up_to_the_nats_of_all_tokens(tokens: list[str]) -> None:
    count = len(tokens)
    nats = np.arange(1, count + 1, dtype=np.float64)
    ranks = RankTable.from_arrays(
        vocab_size=1000,
        document=np.zeros(count),
        position=np.arange(count),
        field=np.zeros(count),
        token=np.arange(count),
        greater=np.zeros(count),
        ties=np.zeros(count),
        logprob=-nats,
    )
    unscored = pd.DataFrame({"document": [], "position": [], "token": []}, dtype="int64")
    words = word_surprisal(ranks, unscored, dict(enumerate(tokens)))
    starts = [*word_starts(tokens), count]
    blank = [not "".join(tokens[begin:end]).strip() for begin, end in itertools.pairwise(starts)]
    sums = [nats[begin:end].sum() for begin, end in itertools.pairwise(starts)]
    expected = [total for total, is_blank in zip(sums, blank, strict=True) if not is_blank]
    assert words["surprisal"].tolist() == pytest.approx(expected)
