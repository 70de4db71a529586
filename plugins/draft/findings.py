"""Findings about models as drafts of a larger one: acceptance, speed-up, and the law in size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding
from rbptrack.analysis.phrases import estimate, interval, where
from rbptrack.base.words import number, spread
from rbptrack.stats.intervals import Interval

_FEW = 4  # drafts that are named


@dataclass(frozen=True, kw_only=True)
class Acceptance(Finding):
    """The share of a draft's tokens that the reference accepts.

    Attributes:
        accepted: tokens in a row, of a draft of `length`.
        independent: the same, if each token were accepted independently of the others.
        length: tokens of that draft.
        best: length at which drafts are fastest.
        faster: tokens per time with drafts of that length, relative to none.
        cost: time of a step of the draft over that of a pass of the reference.

    """

    question: str = "draft"
    accepted: float
    independent: float
    length: int
    best: int
    faster: Interval
    cost: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which share is accepted and how much faster that is; of many drafts the ranges."""
        if len(findings) > _FEW:
            rates = spread([draft.estimate for draft in findings], ".1%")
            speeds = spread([draft.faster.value for draft in findings if isfinite(draft.faster.value)], ".2f")
            yield f"Of tokens that a draft proposes the reference accepts {rates}; the speed-up is {speeds}."
            return
        for draft in findings:
            yield from draft.in_words()

    def in_words(self) -> Iterator[str]:
        """Say it of this draft."""
        case = self.case
        yield (
            f"{case['reference']} accepts {estimate(self, '.1%')} of the tokens that {case['family']}-{case['size']} "
            f"drafts on {case['dataset']}."
        )
        if not isfinite(self.accepted):
            return
        yield (
            f"Of {self.length} drafted tokens {number(self.accepted, '.2f')} are accepted in a row "
            f"({number(self.independent, '.2f')} if each were independent of the others)."
        )
        speed = number(self.faster.value, ".2f")
        cost = number(self.cost, ".3f")
        if self.faster.value <= 1:
            yield f"No draft is faster than none at a cost of {cost} (at best {speed} times)."
            return
        tokens = "token" if self.best == 1 else "tokens"
        ends = interval(self.faster.low, self.faster.high, ".2f")
        yield f"Drafts of {self.best} {tokens} are best: {speed} times the speed ({ends}) at a cost of {cost}."


@dataclass(frozen=True, kw_only=True)
class AcceptanceInSize(Finding):
    """The exponent of -ln of acceptance in the size of the draft."""

    question: str = "acceptance in size"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how acceptance rises with the size of the draft."""
        for law in findings:
            accepted = f"-ln of acceptance by {law.case['reference']}"
            yield f"{where(law)}: {accepted} falls with S by an exponent of {estimate(law)}."
