"""Findings about the limits of the law in size: bends, floors, and the k up to which it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.phrases import interval, metric_of, where, with_verdict
from rbptrack.base.words import listed, number, p_in_words, some_of

from .bends import LEAST_KEPT

_ORDER = 30  # on the first page
_BENDS = {Verdict.YES: "yes", Verdict.NO: "no", Verdict.UNTOLD: "undecided"}
_NO_BEND = "no bend detected up to k"
_MEANS_BENDS = (
    "whether the law levels off or turns; a floor is what would stay at any size, as share of y at the largest"
)
_MEANS_NO_BEND = "the largest k up to which, at every k, α is above 0 and the test over all k detects no bend"


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
        return Lead(cells=cells, sentence=next(cls.say(findings)), order=_ORDER, facts={"bends": _MEANS_BENDS})


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
    """The largest k up to which, at every k, alpha is above 0 and no bend is detected; NaN at none.

    Attributes:
        last_k: the last k tried.
        vocabulary: |V|.
        ks: every k tried.
        verdicts: of each k.
        shown: the largest k up to which the law is straight within the margin (95% confidence).
        exceeded: the smallest k at which it is shown not to be; 0 at none.

    """

    question: str = _NO_BEND
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
        """Say up to which k no bend is detected and up to which the law is shown straight, and what happens beyond."""
        limits = _by_text((finding.limit, finding) for finding in findings)
        yield f"α is above 0 and no bend is detected {limits}."
        margin = f"{findings[0].margin:.0%}"
        shown = [(f"up to k = {finding.shown:,}", finding) for finding in findings if finding.shown]
        if shown:
            yield f"The law is shown straight (its departure's whole interval lies within {margin}) {_by_text(shown)}."
        else:
            yield f"At no k is the law shown straight: no departure's interval lies within {margin}."
        for finding in findings:
            beyond = finding.beyond()
            if finding.exceeded:
                beyond.append(f"shown to depart by more than {margin} from k = {finding.exceeded:,}")
            if beyond:
                yield f"{where(finding)}, beyond that (|V| = {finding.vocabulary:,}): {listed(beyond)}."

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
                    text += " (last tried)"
            cells.append(
                Cell(
                    line=_NO_BEND,
                    text=text,
                    family=finding.case["family"],
                    dataset=finding.case["dataset"],
                    value=finding.estimate,
                )
            )
        return Lead(cells=cells, order=_ORDER, facts={_NO_BEND: _MEANS_NO_BEND})


def _by_text(findings: Iterable[tuple[str, StraightUpTo]]) -> str:
    """Return `up to k = 10 (a), up to k = 30 (b and c)`."""
    cases: dict[str, list[str]] = {}
    for text, finding in findings:
        cases.setdefault(text, []).append(where(finding))
    return listed([f"{text} ({listed(names)})" for text, names in cases.items()])


def _overall(findings: Sequence[Bends], bent: Sequence[Bends]) -> str:
    """Return the sentence about all cases together."""
    text = f"The law bends in {some_of(len(bent), len(findings), 'case')}" if bent else "No bend is detected"
    if straight := with_verdict(findings, Verdict.NO):
        text += f"; the law is straight within {straight[0].margin:.0%} in {len(straight)}"
    if undecided := with_verdict(findings, Verdict.UNTOLD):
        text += f"; undecided in {len(undecided)}: {_why(undecided)}"
    return text


def _why(undecided: Sequence[Bends]) -> str:
    """Return what could have been detected where nothing was."""
    floors = [finding.floor_seen for finding in undecided if isfinite(finding.floor_seen)]
    untested = sum(not finding.is_tested for finding in undecided)
    blind = len(undecided) - untested - len(floors)
    reasons = []
    if floors:
        ends = " to ".join(dict.fromkeys(number(share, ".0%") for share in (min(floors), max(floors))))
        reasons.append(f"{len(floors)} could show only a floor above {ends} of y at the largest size (80% power)")
    if blind:
        reasons.append(f"{blind} could show no floor at all")
    if untested:
        reasons.append(f"{untested} {'has' if untested == 1 else 'have'} too few sizes")
    return listed(reasons)


def _in_a_cell(finding: Bends) -> str:
    """Return the verdict, and what would have been seen."""
    text = _BENDS[finding.verdict]
    if finding.verdict is not Verdict.YES and isfinite(finding.floor_seen):
        return f"{text} (floors below {finding.floor_seen:.0%} undetectable)"
    if finding.verdict is Verdict.UNTOLD and finding.is_tested:
        return f"{text} (no floor detectable)"
    return text


def k_ranges(ks: Iterable[int], grid: Iterable[int]) -> str:
    """Return `k = 40 to 300, 900`: some of the k of a grid, neighbours on the grid joined."""
    place = {k: i for i, k in enumerate(grid)}
    ranges: list[list[int]] = []
    for k in ks:
        if ranges and place[k] == place[ranges[-1][-1]] + 1:
            ranges[-1] = [ranges[-1][0], k]
        else:
            ranges.append([k])
    return "k = " + ", ".join(" to ".join(f"{k:,}" for k in ends) for ends in ranges)
