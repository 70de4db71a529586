"""Rows of the tables of two models on the same tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from rbptrack.analysis.changes import MetricChange
from rbptrack.analysis.rows import Column
from rbptrack.stats.intervals import Interval
from rbptrack.stats.pairs import PairSums, TokenPairs, decade_names

_BEFORE = 24  # tokens of context that are shown


@dataclass(kw_only=True)
class PairRow:
    """A row about two models on one dataset."""

    dataset: Annotated[str, Column("the dataset")]
    A: Annotated[str, Column("one model")]
    B: Annotated[str, Column("the other, on the same tokens")]


@dataclass(kw_only=True)
class SummaryRow(PairRow):
    """What two models share."""

    tokens: Annotated[int, Column("scored tokens", form=",.0f")]
    same_top: Annotated[
        Interval, Column("share of them at which both rank the same token first", "same top token", form=".2%")
    ]
    lost: Annotated[float, Column("share that A ranks first and B does not (right to wrong)", form=".2%")]
    gained: Annotated[float, Column("share that B ranks first and A does not (wrong to right)", form=".2%")]
    p_flips: Annotated[
        float, Column("p of as many lost as gained (McNemar's test by document; Holm over all pairs)", form=".3g")
    ]


@dataclass(kw_only=True)
class ChangeRow(MetricChange, PairRow):
    """A metric in both."""


@dataclass(kw_only=True)
class DecadeRow(PairRow):
    """Where the tokens of a decade of A's ranks went."""

    rank_A: Annotated[str, Column("rank of the right token in A", title="rank in A")]
    rank_B: Annotated[str, Column("in B", title="rank in B")]
    tokens: Annotated[int, Column("tokens with both", form=",.0f")]
    share: Annotated[float, Column("of the tokens with that rank in A", form=".2%")]


@dataclass(kw_only=True)
class DocumentRow(PairRow):
    """A document that lost most."""

    document: Annotated[int, Column("its number in the selection (documents.parquet has its id)")]
    tokens: Annotated[int, Column("its scored tokens", form=",.0f")]
    ce_A: Annotated[float, Column("its CE in A, nats", title="CE of A", form=".3f")]
    ce_B: Annotated[float, Column("in B", title="CE of B", form=".3f")]
    nats: Annotated[float, Column("what it costs B more than A, nats in all", form="+.1f")]
    same_top: Annotated[
        float, Column("share of its tokens at which both rank the same token first", "same top token", form=".1%")
    ]


@dataclass(kw_only=True)
class TokenRow(PairRow):
    """A token that lost most, in its context."""

    document: Annotated[int, Column("number of its document")]
    position: Annotated[int, Column("its place there, in tokens")]
    text: Annotated[str, Column(f"the {_BEFORE} scored tokens before it")]
    token: Annotated[str, Column("the token")]
    rank_A: Annotated[int, Column("its rank in A", title="rank in A")]
    rank_B: Annotated[int, Column("in B", title="rank in B")]
    instead: Annotated[str, Column("what B ranks first")]
    nats: Annotated[float, Column("-ln p in B less that in A, nats", form="+.2f")]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Two measurements of the same tokens, by unique names, with their counts.

    Attributes:
        dataset: on which.
        a: name of the first.
        b: of the second.
        documents: counts by document.
        sums: by source, where sources are named; else by document.
        worst: the tokens that cost b most more than a.
        lacking: run ids of those without the column `top`.
        same_reference: whether both were measured beside the same reference.

    """

    dataset: str
    a: str
    b: str
    documents: PairSums
    sums: PairSums
    worst: Sequence[TokenRow]
    lacking: set[str]
    same_reference: bool

    @property
    def keys(self) -> dict[str, Any]:
        """What every row begins with."""
        return {"dataset": self.dataset, "A": self.a, "B": self.b}

    @property
    def case(self) -> dict[str, str]:
        """What every finding is of."""
        return {"dataset": self.dataset, "a": self.a, "b": self.b}


def document_rows(pair: Compared, most: int) -> Iterator[DocumentRow]:
    """Yield the documents that cost b most more than a."""
    sums = pair.documents
    cost = sums.nats_b - sums.nats_a
    for i in np.argsort(-cost, kind="stable")[:most]:
        tokens = sums.tokens[i]
        yield DocumentRow(
            **pair.keys,
            document=int(sums.document[i]),
            tokens=int(tokens),
            ce_A=sums.nats_a[i] / tokens,
            ce_B=sums.nats_b[i] / tokens,
            nats=cost[i],
            same_top=sums.same_top[i] / tokens,
        )


def token_rows(pair: TokenPairs, keys: Mapping[str, str], texts: Mapping[int, str], most: int) -> Iterator[TokenRow]:
    """Yield the tokens that cost b most more than a, in the text before them."""
    cost = pair.worse_by
    token = pair.a.column("token")
    document = pair.a.column("document")
    first = pair.b.column("top") if pair.b.version > 1 else None

    def text(token_id: int) -> str:
        return texts.get(token_id, f"<{token_id}>")

    for i in np.argsort(-cost, kind="stable")[:most]:
        before = [text(int(token[j])) for j in range(max(0, i - _BEFORE), i) if document[j] == document[i]]
        yield TokenRow(
            **keys,
            document=int(document[i]),
            position=int(pair.a.column("position")[i]),
            text="".join(before),
            token=text(int(token[i])),
            rank_A=int(pair.a.rank[i]),
            rank_B=int(pair.b.rank[i]),
            instead="" if first is None else text(int(first[i])),
            nats=float(cost[i]),
        )


def decade_rows(pair: Compared) -> Iterator[DecadeRow]:
    """Yield tokens by the decades of their ranks, decades without tokens left out."""
    moves = pair.sums.moves
    names = decade_names(len(moves))
    for i, row in enumerate(moves):
        for j in np.flatnonzero(row):
            share = float(row[j] / row.sum())
            yield DecadeRow(**pair.keys, rank_A=names[i], rank_B=names[j], tokens=int(row[j]), share=share)
