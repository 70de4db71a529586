"""Rows and columns of the tables of classes of tokens, and of positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rbptrack.analysis.rows import (
    R2,
    Column,
    Corrected,
    Exponent,
    NonEmbedding,
    OfFamily,
    OfMetric,
    P,
    columns_of,
)
from rbptrack.stats.intervals import Interval

Columns = dict[str, str | Column]
_RESAMPLED = "lower end of its interval (documents resampled: these models)"
_CLASS: Columns = {**columns_of(OfFamily), "by": "how tokens are classed", "class": "the class"}
_ALPHA: Columns = {
    "alpha": Column("exponent in the class (interval: scatter between models and documents)", title="α", form=".3f"),
    "alpha_low": "lower end of its interval",
    "alpha_high": "upper end",
}
_GAIN = Column("share of the growth of RBP_k (fall of CE) from the smallest to the largest size", form=".0%")
LAWS: Columns = _CLASS | {
    "metric": "CE or RBP_k",
    "share": Column("of the scored tokens", form=".1%"),
    **_ALPHA,
    "r2": "R^2 of the law on logarithms",
    "smallest": "CE or RBP_k at the smallest size",
    "largest": "at the largest",
    "gain": _GAIN,
}
SUMMARY: Columns = {name: LAWS[name] for name in (*_CLASS, "share", *_ALPHA, "gain")} | {
    "misses": Column("share of the tokens with R > k, at the largest size", form=".1%")
}
CONTRASTS: Columns = _CLASS | {
    "than": "the class that it is compared with",
    "difference": Column("exponent minus that of the other class (same models and documents: paired)", form="+.3f"),
    "low": "lower end of its interval",
    "high": "upper end",
    "p": Column("two-sided p", form=".3g"),
    "p_corrected": Column("p, corrected over the pairs of the way of classing (Holm)", "p, corrected", form=".3g"),
}


@dataclass(kw_only=True)
class ExponentRow(OfFamily):
    """What changes the exponent from one k to the next."""

    by: Annotated[str, Column("how tokens are classed")]
    k: Annotated[int, Column("the larger k")]
    from_k: Annotated[int, Column("the smaller k")]
    change: Annotated[float, Column("alpha at the larger k less alpha at the smaller, as weighted sums over classes")]
    mix: Annotated[Interval, Column("part of it because misses lie in other classes", low=_RESAMPLED)]
    within: Annotated[Interval, Column("part of it because the classes' exponents change", low=_RESAMPLED)]
    covered: Annotated[float, Column("share of the weights in classes with a law at both k (the rest is left out)")]


@dataclass(kw_only=True)
class EarlyAndLateRow(OfMetric):
    """The law early against late, in the same models and documents."""

    early: Annotated[str, Column("positions")]
    late: Annotated[str, Column("positions")]
    y_early: Annotated[float, Column("CE or -ln RBP_k of the largest size, early")]
    y_late: Annotated[float, Column("late")]
    alpha_early: Annotated[float, Column("exponent of the law in size, early", title="α early", form=".3f")]
    alpha_late: Annotated[float, Column("late", title="α late", form=".3f")]
    difference: Annotated[Interval, Column("alpha late - alpha early (paired)", form="+.3f", bare=True)]
    p: P
    p_corrected: Corrected = np.nan


@dataclass(kw_only=True)
class OfBin(OfMetric):
    """Tokens of a bin of positions."""

    first: Annotated[int, Column("first position of the bin (tokens before it in its document)")]
    last: Annotated[int, Column("last position of the bin")]
    tokens: Annotated[int, Column("scored tokens in the bin")]


@dataclass(kw_only=True)
class BinLawRow(OfBin):
    """The law in a bin."""

    alpha: Exponent
    r2: R2


@dataclass(kw_only=True)
class CurveRow(OfBin):
    """One size in a bin."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    y: Annotated[float, Column("CE in nats, or -ln RBP_k")]
    se: Annotated[float, Column("standard error (document bootstrap)")]
