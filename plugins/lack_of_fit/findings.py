"""Findings about the limits of the law in size: bends, floors, and the k up to which it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Self

from rbptrack.analysis.display import k_ranges
from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.phrases import interval, metric_of, where, with_verdict
from rbptrack.base.words import listed, number, p_in_words, some_of

from .bends import LEAST_KEPT

_ORDER = 30  # on the first page
_BENDS = {Verdict.YES: "yes", Verdict.NO: "no", Verdict.UNTOLD: "undecided"}
_MOST = 4  # cases that a sentence lists


@dataclass(frozen=True, kw_only=True)
class Bends(Finding):
    """Whether a law bends; `estimate` is its departure from a line in ln y, `margin` where it counts as straight.

    Attributes:
        k: at which the bend is clearest; 0 where one metric was tested.
        kept: the least share of the bend that is left without either end size.
        straight: whether the departure's interval lies within the margin.
        floor_seen: the smallest floor, as share of y at the largest size, that would have been found in 80%.
        size: of the test.
        sizes: how many the family has.
        needed: how many the test needs.

    """

    question: str = "bends"
    k: int = 0
    kept: float = inf
    straight: bool = False
    floor_seen: float = nan
    size: float = 0.05
    sizes: int = 0
    needed: int = 0

    @property
    def is_tested(self) -> bool:
        """Whether the sizes were enough for the test."""
        return isfinite(self.p)

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many cases the law bends, and what could have been seen; then the cases that do."""
        bent = with_verdict(findings, Verdict.YES)
        yield f"{_overall(findings, bent)}."
        for finding in bent:
            direction = "upwards" if finding.estimate > 0 else "downwards"
            at = f" at k = {finding.k:,}" if finding.k else f" ({metric_of(finding)})"
            ends = interval(finding.low, finding.high, "+.1%")
            yield (
                f"{where(finding)}: the law bends {direction}, {number(finding.estimate, '+.1%')} ({ends}) off a "
                f"line{at} ({p_in_words(finding.p_corrected)}, corrected)."
            )
        for finding in findings:
            if finding.p_corrected < finding.size and finding.kept < LEAST_KEPT:
                yield (
                    f"{where(finding)}: without the smallest or the largest size most of the departure is gone, so "
                    "one model may have made it."
                )
        if few := [finding for finding in findings if finding.needed and not finding.is_tested]:
            sizes = f"{few[0].needed} sizes; found {few[0].sizes}"
            yield f"{listed([where(finding) for finding in few])}: whether the law bends needs {sizes}."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return a cell a family, and the first sentence."""
        cells = [
            Cell(
                line="bends",
                text=_in_a_cell(finding),
                family=finding.case["family"],
                dataset=finding.case["dataset"],
                metric=finding.case.get("metric", ""),
                value=finding.estimate,
                low=finding.low,
                high=finding.high,
                verdict=finding.verdict,
            )
            for finding in findings
        ]
        return Lead(cells=cells, sentence=next(cls.say(findings)), order=_ORDER)


@dataclass(frozen=True, kw_only=True)
class Floor(Finding):
    """Whether a law has an irreducible term; `estimate` is its share of y at the largest size."""

    question: str = "floor"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which metrics have a floor; one sentence where none has."""
        shown = with_verdict(findings, Verdict.YES)
        if not shown:
            yield (
                "A floor (an irreducible term) is shown in no law: by both ways to count S, without the smallest "
                f"size, and corrected for {len(findings)} tests."
            )
        for finding in shown:
            share = f"{number(finding.estimate, '.0%')} ({interval(finding.low, finding.high, '.0%')})"
            yield (
                f"{where(finding)}: {metric_of(finding)} has a floor, {share} of y at the largest size "
                f"({p_in_words(finding.p_corrected)}, corrected)."
            )


@dataclass(frozen=True, kw_only=True)
class StraightUpTo(Finding):
    """The largest k up to which the law in size holds; NaN at none.

    Attributes:
        last_k: the last k tried.
        vocabulary: |V|.
        ks: every k tried.
        verdicts: of each k.
        shown: the largest k up to which the law is straight within the margin (95% confidence).
        exceeded: the smallest k at which it is shown not to be; 0 at none.

    """

    question: str = "straight up to k"
    last_k: int
    vocabulary: int
    ks: Sequence[int]
    verdicts: Sequence[str]
    shown: int
    exceeded: int

    @property
    def limit(self) -> str:
        """Up to which k, in words."""
        if not isfinite(self.estimate):
            return "at no k"
        last = ", the last k tried" if self.estimate == self.last_k else ""
        return f"up to k = {self.estimate:,.0f}{last}"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say up to which k the law holds in each case, and what happens beyond."""
        limits = [f"{finding.limit} ({where(finding)})" for finding in findings[:_MOST]]
        more = f" and {len(findings) - _MOST} more cases" if len(findings) > _MOST else ""
        yield f"The law in size holds {listed(limits)}{more}."
        for finding in findings:
            text = f"{where(finding)}: the law holds {finding.limit} (|V| = {finding.vocabulary:,})"
            if beyond := finding.beyond():
                text += f"; beyond, {listed(beyond)}"
            if finding.shown:
                text += f". It is straight within {finding.margin:.0%} up to k = {finding.shown:,}"
            yield text + (f", and not from k = {finding.exceeded:,}." if finding.exceeded else ".")

    def beyond(self) -> list[str]:
        """Return each verdict beyond the limit, and the k that have it."""
        star = self.estimate if isfinite(self.estimate) else 0
        later = [(k, verdict) for k, verdict in zip(self.ks, self.verdicts, strict=True) if k > star]
        return [
            f"{verdict} at {k_ranges([k for k, other in later if other == verdict], self.ks)}"
            for verdict in dict.fromkeys(verdict for _, verdict in later)
        ]

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return a cell a family."""
        cells = []
        for finding in findings:
            text = "no k"
            if isfinite(finding.estimate):
                text = f"{finding.estimate:,.0f}"
                if finding.estimate == finding.last_k:
                    text += " (the last tried)"
            cells.append(
                Cell(
                    line="straight up to k",
                    text=text,
                    family=finding.case["family"],
                    dataset=finding.case["dataset"],
                    value=finding.estimate,
                )
            )
        return Lead(cells=cells, order=_ORDER)


def _overall(findings: Sequence[Bends], bent: Sequence[Bends]) -> str:
    """Return the sentence about all cases together."""
    text = f"The law bends in {some_of(len(bent), len(findings), 'case')}" if bent else "No law is found to bend"
    if straight := with_verdict(findings, Verdict.NO):
        text += f"; it is straight within {straight[0].margin:.0%} in {len(straight)}"
    undecided = with_verdict(findings, Verdict.UNTOLD)
    if not undecided:
        return text
    text += f"; {len(undecided)} undecided"
    floors = [finding.floor_seen for finding in undecided if isfinite(finding.floor_seen)]
    if floors:
        ends = dict.fromkeys(number(share, ".0%") for share in (min(floors), max(floors)))
        text += f": floors below {' to '.join(ends)} of y at the largest size could not be detected (80% power)"
    elif any(finding.is_tested for finding in undecided):
        text += ": no floor could be detected, however large (80% power)"
    return text


def _in_a_cell(finding: Bends) -> str:
    """Return the verdict, and what would have been seen."""
    text = _BENDS[finding.verdict]
    if finding.verdict is not Verdict.YES and isfinite(finding.floor_seen):
        return f"{text} (a floor of {finding.floor_seen:.0%} would be detected)"
    if finding.verdict is Verdict.UNTOLD and finding.is_tested:
        return f"{text} (no floor would be detected)"
    return text
