"""Findings about the law in size and training tokens: how the best size grows with compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, estimate, metric_of, with_verdict
from rbptrack.base.words import listed


@dataclass(frozen=True, kw_only=True)
class ComputeOptimum(Finding):
    """The exponent a of the best size at compute C; DIFFERENT where its interval and the first metric's part.

    Attributes:
        checkpoints: points fitted.
        sizes: how many models.
        level: nominal coverage of the interval.
        least: fewest training tokens per parameter.
        most: most of them.

    """

    question: str = "compute optimum"
    checkpoints: int
    sizes: int
    level: float
    least: float
    most: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say the exponents of each family, which of them differ, and what the checkpoints can tell."""
        for place, laws in by_where(findings).items():
            first = laws[0]
            optima = listed([f"{estimate(law, '.2f')} for {metric_of(law)}" for law in laws])
            yield f"{place}: the best size grows with compute as C^a, a = {optima}."
            if apart := with_verdict(laws, Verdict.DIFFERENT):
                metrics = listed([metric_of(law) for law in apart])
                yield f"{place}: the best size for ranks differs from that for {metric_of(first)}: {metrics}."
            elif len(laws) > 1:
                yield f"{place}: undecided whether ranks need other sizes than {metric_of(first)} (intervals overlap)."
            yield (
                f"{place}: {first.checkpoints} checkpoints of {first.sizes} sizes, {first.least:.3g} to "
                f"{first.most:.3g} tokens per parameter; {first.level:.0%} intervals."
            )
            if unsure := [metric_of(law) for law in laws if law.reason]:
                yield f"{place}: the fit of {listed(unsure)} is not identifiable: its starts disagree."
