"""Rows of the tables of sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rbptrack.analysis.rows import R2, Column, Corrected, Exponent, NonEmbedding, OfFamily, P
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval


@dataclass(kw_only=True)
class OfSource(OfFamily):
    """A row about one source."""

    source: Annotated[str, Column("the source: a value of the field that dataset.group names")]


@dataclass(kw_only=True)
class SummaryRow(OfSource):
    """A source and its counts."""

    documents: Annotated[int, Column(f"its documents; no interval from fewer than {LEAST_DOCUMENTS}", form=",.0f")]
    share: Annotated[float, Column("its share of the scored tokens", form=".1%")]
    ce: Annotated[Interval, Column("cross-entropy of the largest size, nats", title="CE", form=".3f")]
    rbp: Annotated[Interval, Column("RBP_k of the largest size, at the k of analyzer.shown", title="RBP", form=".3f")]
    alpha: Annotated[Interval, Column("exponent of that RBP_k's law in size, in the source", title="α", form=".3f")]


@dataclass(kw_only=True)
class ValueRow(OfSource):
    """One metric of one model in a source."""

    size: Annotated[str, Column("the size as published")]
    S: NonEmbedding
    metric: Annotated[str, Column("CE in nats, or RBP_k")]
    value: Annotated[Interval, Column("its value (interval: documents of the source)", form=".4f", bare=True)]


@dataclass(kw_only=True)
class LawRow(OfSource):
    """The law in a source."""

    metric: Annotated[str, Column("CE or RBP_k")]
    alpha: Exponent
    r2: R2


@dataclass(kw_only=True)
class ContrastRow(OfSource):
    """Two sources against each other."""

    than: Annotated[str, Column("the source that it is compared with")]
    quantity: Annotated[str, Column("CE and RBP_k of the largest size, or the exponent of RBP_k")]
    difference: Annotated[
        Interval, Column("of the source minus that of the other, whose documents are others", form="+.3f", bare=True)
    ]
    p: P
    p_corrected: Corrected
    verdict: Annotated[str, Column("different or undecided")]
