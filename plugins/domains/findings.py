"""Findings about sources of documents against each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import by_where, with_verdict
from rbptrack.base.words import counted, number, some_of
from rbptrack.stats.spread import Spread


@dataclass(frozen=True, kw_only=True)
class Contrast(Finding):
    """One source less another, whose documents are others.

    Attributes:
        value: of the source.
        than_value: of the one that it is compared with.
        spread: the error of their difference.

    """

    QUANTITY: ClassVar[str]
    value: float
    than_value: float
    spread: Spread

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how many pairs differ; then which source has the smallest and which the largest value."""
        different = with_verdict(findings, Verdict.DIFFERENT)
        if different:
            pairs = some_of(len(different), len(findings), "pair")
            yield f"Sources differ in {cls.QUANTITY} in {pairs} (corrected)."
        else:
            yield f"No evidence that sources differ in {cls.QUANTITY} ({counted(len(findings), 'pair')})."
        for place, contrasts in by_where(findings).items():
            for quantity in dict.fromkeys(contrast.case["quantity"] for contrast in contrasts):
                yield cls._ends(place, quantity, [c for c in contrasts if c.case["quantity"] == quantity])

    @classmethod
    def _ends(cls, place: str, quantity: str, pairs: Sequence[Self]) -> str:
        values = {pair.case["source"]: pair.value for pair in pairs}
        values |= {pair.case["than"]: pair.than_value for pair in pairs}
        low, high = (pick(values, key=lambda source: values[source]) for pick in (min, max))
        (ends,) = (pair for pair in pairs if {pair.case["source"], pair.case["than"]} == {low, high})
        least = number(ends.detectable, ".3f")
        untold = f"undecided; a difference of {least} could have been detected (80% power)"
        verdict = "they differ" if ends.verdict is Verdict.DIFFERENT else untold
        return (
            f"{place}: {quantity} is {number(values[low], '.3f')} in '{low}' and {number(values[high], '.3f')} in "
            f"'{high}' ({verdict})."
        )


@dataclass(frozen=True, kw_only=True)
class LevelsDiffer(Contrast):
    """CE or RBP_k of the largest size in two sources."""

    QUANTITY: ClassVar[str] = "CE or RBP_k of the largest size"
    question: str = "sources differ"


@dataclass(frozen=True, kw_only=True)
class ExponentsDiffer(Contrast):
    """The exponent of RBP_k in two sources."""

    QUANTITY: ClassVar[str] = "exponent"
    question: str = "exponents of sources differ"
