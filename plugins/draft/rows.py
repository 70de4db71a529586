"""Rows of the tables of drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rbptrack.analysis.rows import R2, Column, Exponent, OfFamily, OfSize
from rbptrack.stats.intervals import Interval

Reference = Annotated[str, Column("the large model, for which it drafts")]
Cost = Annotated[float, Column("time of a step of the draft over that of a pass of the reference", form=".3f")]


@dataclass(kw_only=True)
class SummaryRow(OfSize):
    """A model as a draft."""

    reference: Reference
    acceptance: Annotated[Interval, Column("share of drafted tokens that are accepted, sum of min(p, q)", form=".3f")]
    faster: Annotated[
        Interval, Column("tokens per time with drafts of the best length, to none", title="speed-up", form=".2f")
    ]
    best: Annotated[int, Column("length of draft at which the speed-up is largest", "best length")]
    accepted: Annotated[
        Interval, Column("accepted tokens of a draft of analyzer.length, from probabilities in a row", form=".2f")
    ]
    cost: Cost


@dataclass(kw_only=True)
class BranchRow(OfSize):
    """A draft with k branches."""

    reference: Reference
    branches: Annotated[str, Column("tokens that are tried at a place: the draft's first k; or one, by sampling")]
    share: Annotated[
        Interval,
        Column("share of places at which the reference's first token is among them (RBP_k of it)", form=".3f"),
    ]
    accepted: Annotated[Interval, Column("accepted tokens of a draft of analyzer.length", form=".2f")]


@dataclass(kw_only=True)
class SpeedRow(OfSize):
    """Drafts of one length."""

    reference: Reference
    length: Annotated[int, Column("tokens of a draft")]
    accepted: Annotated[Interval, Column("of them accepted", form=".2f")]
    independent: Annotated[float, Column("if tokens were accepted independently", form=".2f")]
    cost: Cost
    faster: Annotated[Interval, Column("tokens per time, relative to no draft", title="speed-up", form=".2f")]


@dataclass(kw_only=True)
class LawRow(OfFamily):
    """How acceptance rises with the draft's size."""

    reference: Reference
    branches: Annotated[str, Column("as in the table of branches")]
    sizes: Annotated[int, Column("sizes of the draft")]
    alpha: Exponent
    r2: R2
