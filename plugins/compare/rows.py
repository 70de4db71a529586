"""Rows of the tables of two sides against each other, and of where in the text two models differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.rows import R2, Column, Corrected, Exponent, OfMetric, P
from rbptrack.stats.intervals import Interval

TEXT = "ln nats of the text"
_LOW = "lower end of its interval: documents, and scatter between models"
_AT_ONCE = "lower end of its interval (documents resampled; all hold at once)"
_SURE = "with all other cases taken into account"


@dataclass(kw_only=True)
class PairRow:
    """A row about two sides."""

    A: Annotated[str, Column("one side")]
    B: Annotated[str, Column("the other")]
    on: Annotated[str, Column("the dataset or family that they share")]
    metric: Annotated[str, Column("CE, RBP_k; across tokenizers bits per byte, words_k")]


@dataclass(kw_only=True)
class SummaryRow(PairRow):
    """The verdicts on one pair and metric."""

    pairs: Annotated[int, Column("pairs of models of equal S; none between datasets")]
    A_better: Annotated[int, Column(f"pairs in which A's model is better on these texts ({_SURE})", title="A better")]
    B_better: Annotated[int, Column("pairs in which B's is", title="B better")]
    undecided: Annotated[int, Column("pairs that these texts do not distinguish, or without a standard error")]
    families: Annotated[str, Column("whether the laws lie apart: other models of the same recipes would differ, too")]
    exponents: Annotated[str, Column("whether the exponents differ")]


@dataclass(kw_only=True)
class LawRow(PairRow):
    """The laws of both sides against each other."""

    at_S: Annotated[
        float, Column("where the laws are compared: the middle of the sizes that both have", "S", form="short")
    ]
    ratio: Annotated[
        Interval,
        Column("A's CE or -ln RBP_k over B's there, by their laws: below 1, A is better", form=".3f", low=_LOW),
    ]
    p_families: Annotated[float, Column(f"p of a ratio of 1, {_SURE} (Holm)", "p of equal laws", form=".3g")]
    alpha_A: Annotated[float, Column("A's exponent", title="α of A", form=".3f")]
    alpha_B: Annotated[float, Column("B's", title="α of B", form=".3f")]
    difference: Annotated[Interval, Column("A's exponent minus B's", form="+.3f", low=_LOW, bare=True)]
    p_exponents: Annotated[float, Column(f"p of equal exponents, {_SURE} (Holm)", "p of equal α", form=".3g")]
    margin: Annotated[float, Column("difference below which exponents count as the same", form=".3f")]
    p_equivalent: Annotated[float, Column("p of a difference at or beyond the margin (Holm)", form=".3g")]
    verdict: Annotated[str, Column("of the exponents: equivalent, different, both (within the margin) or undecided")]


@dataclass(kw_only=True)
class EqualRow(PairRow):
    """The difference at equal cross-entropy."""

    at: Annotated[
        float, Column("CE in nats (across tokenizers bits per byte): the middle of what both have", form=".3f")
    ]
    ratio: Annotated[Interval, Column("A's -ln RBP_k over B's there: below 1, A ranks better at equal CE", form=".3f")]
    p: Annotated[float, Column(f"p of a ratio of 1, {_SURE} (Holm)", form=".3g")]
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(kw_only=True)
class ModelRow(PairRow):
    """Two models of equal S on the same texts."""

    model_A: Annotated[str, Column("its model")]
    model_B: Annotated[str, Column("the other's")]
    S_A: Annotated[float, Column("its size", title="S of A", form="short")]
    S_B: Annotated[float, Column("the other's", title="S of B", form="short")]
    value_A: Annotated[
        float, Column(f"CE (nats), RBP_k, or {TEXT} (differences are free of the tokenizer)", form=".4f")
    ]
    value_B: Annotated[float, Column("the other's", form=".4f")]
    difference: Annotated[Interval, Column("A - B", form="+.4f", low=_AT_ONCE, bare=True)]
    p: Annotated[float, Column(f"p of no difference on these texts, {_SURE}", form=".3g")] = np.nan
    paired: Annotated[bool, Column("whether both were read over the same documents")] = False
    documents: Annotated[float, Column("documents compared; empty for imported metrics", form=",.0f")] = np.nan
    same_tokens: Annotated[bool | None, Column("whether both score equally many tokens of them")] = None


@dataclass(kw_only=True)
class WordRow(OfMetric):
    """The law of whole words, or of bits per byte."""

    alpha: Exponent
    r2: R2
    smallest: Annotated[float, Column("bits per byte, or share of whole words, at the smallest size", form=".3f")]
    largest: Annotated[float, Column("at the largest", form=".3f")]


@dataclass(kw_only=True)
class OfTwoModels:
    """A row about two models of equal S on one text."""

    A: Annotated[str, Column("one model")]
    B: Annotated[str, Column("the other, of about the same S")]
    on: Annotated[str, Column("the dataset")]


@dataclass(kw_only=True)
class GapRow(OfTwoModels):
    """Nats per byte of words of a kind."""

    words: Annotated[str, Column("kind of word, without the punctuation around it; other: mixed, as in code")]
    share: Annotated[float, Column("of the bytes that both have scored in whole words", form=".1%")]
    nats_A: Annotated[float, Column("nats per byte of A", title="nats per byte, A", form=".4f")]
    nats_B: Annotated[float, Column("of B", title="B", form=".4f")]
    difference: Annotated[
        Interval, Column("A's minus B's: below 0, A is better (documents paired)", form="+.4f", bare=True)
    ]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different or undecided")]


@dataclass(kw_only=True)
class SegmentRow(OfTwoModels):
    """A piece of text on which one model is much better."""

    better: Annotated[str, Column("the model that is better there")]
    nats: Annotated[float, Column("nats that the other needs more", form=".1f")]
    text: Annotated[str, Column("the segment")]
    nats_A: Annotated[float, Column("nats per byte of A", title="nats per byte, A", form=".3f")]
    nats_B: Annotated[float, Column("of B", title="B", form=".3f")]
    num_bytes: Annotated[int, Column("bytes of the segment", title="bytes")]
    document: Annotated[int, Column("number of its document (documents.parquet has its id)")]
