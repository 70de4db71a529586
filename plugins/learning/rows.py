"""Rows of the tables of learnt and forgotten tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rbptrack.analysis.rows import Column, K, OfFamily
from rbptrack.stats.intervals import Interval


@dataclass(kw_only=True)
class OfModel(OfFamily):
    """A row about one model."""

    size: Annotated[str, Column("the size as published")]
    k: K


@dataclass(kw_only=True)
class FlowRow(OfModel):
    """What changes between two checkpoints."""

    start: Annotated[float, Column("training tokens of the first checkpoint", "from", form="short")]
    end: Annotated[float, Column("of the next", "to", form="short")]
    entering: Annotated[Interval, Column("share of all tokens whose rank enters the first k", form=".2%")]
    leaving: Annotated[Interval, Column("share whose rank leaves them", form=".2%")]
    net: Annotated[float, Column("entering minus leaving: the change of RBP_k", form="+.2%")]
    entering_per_doubling: Annotated[float, Column("per doubling of training tokens", "entering per 2x", form=".2%")]
    leaving_per_doubling: Annotated[float, Column("per doubling of training tokens", "leaving per 2x", form=".2%")]
    seeds: Annotated[float, Column("share that enters, or leaves, between two seeds", "two seeds", form=".2%")]


@dataclass(kw_only=True)
class LearntRow(OfModel):
    """The learnt share of a class of tokens."""

    tokens_of: Annotated[str, Column("all tokens, a kind of token, or a source of the documents", title="of")]
    tokens: Annotated[int, Column("how many", form=",.0f")]
    learnt: Annotated[Interval, Column("share inside (R <= k, never again above 2k) to the end", form=".1%")]
    half: Annotated[Interval, Column("training tokens by which half are", "half learnt by", form="short")]


@dataclass(kw_only=True)
class SpectrumRow(OfModel):
    """How fast RBP_k changes at one k."""

    end: Annotated[float, Column("training tokens of the later checkpoint", "to", form="short")]
    slope: Annotated[float, Column("dRBP_k / d ln D from the checkpoint before", "dRBP / d ln D", form="+.4f")]
