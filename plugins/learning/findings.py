"""Findings about tokens that are learnt, and forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding
from rbptrack.analysis.phrases import estimate
from rbptrack.base.words import number, short_number


def _model(finding: Finding) -> str:
    return f"{finding.case['family']}-{finding.case['size']} on {finding.case['dataset']}"


@dataclass(frozen=True, kw_only=True)
class Churn(Finding):
    """The share of tokens that leaves the first k from the last checkpoint but one to the last.

    Attributes:
        k: of RBP_k.
        entering: the share that enters.
        seeds: the share that leaves, or enters, between two runs of one recipe; NaN without such runs.

    """

    question: str = "entering and leaving"
    k: int
    entering: float
    seeds: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say what enters and leaves at the end of training, beside what two seeds differ in."""
        for churn in findings:
            flows = f"{churn.entering:.1%} of the tokens enter the first {churn.k} and {estimate(churn, '.1%')} leave"
            seeds = f"; between two runs of the same recipe {churn.seeds:.1%} do" if isfinite(churn.seeds) else ""
            yield f"{_model(churn)}: to the last checkpoint {flows}{seeds}."


@dataclass(frozen=True, kw_only=True)
class Learnt(Finding):
    """The share of tokens that are inside to the end; censored where they enter late.

    Attributes:
        k: of RBP_k.
        half: training tokens by which half are learnt; NaN where that is not reached.
        kept: half-life of a stay, in doublings of training tokens; NaN where that is not reached.
        span: how many checkpoints a token must have been held for.

    """

    question: str = "learnt and kept"
    k: int
    half: float
    kept: float
    span: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say the share that is learnt, by when half were, and how long tokens stay."""
        for learnt in findings:
            half = f"by {short_number(learnt.half)} training tokens" if isfinite(learnt.half) else "not reached"
            stay = f"{number(learnt.kept, '.1f')} doublings" if isfinite(learnt.kept) else "not reached"
            yield (
                f"{_model(learnt)}: {estimate(learnt, '.1%')} of the tokens stay in the first {learnt.k} to the end, "
                f"for at least {learnt.span} checkpoints (half: {half}); half-life of a stay: {stay}."
            )
