"""Findings about the law in k, and about the worth of a larger k in model size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval, where, with_verdict
from rbptrack.base.words import at_least, be, counted, number, some_of, spread
from rbptrack.stats.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class LawInK(Finding):
    """The largest relative distance of a family's points from their lines; YES where it lies within the margin.

    Attributes:
        beta: of each size.
        sizes: as published.
        largest_k: of the fit.
        r2: the lowest of all sizes.
        at_1: local slope at k = 1, mean over sizes.
        at_largest: local slope at the largest k.
        within: how many sizes lie within the margin.
        trend: change of beta per factor 10 in S; NaN below 3 sizes.

    """

    question: str = "law in k"
    beta: Sequence[float]
    sizes: Sequence[str]
    largest_k: int
    r2: float
    at_1: float
    at_largest: float
    within: int
    trend: Interval = field(default_factory=lambda: Interval(nan))

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many measurements a power law in k is followed; then each family's exponents."""
        betas = [beta for finding in findings for beta in finding.beta]
        cases = some_of(sum(finding.within for finding in findings), len(betas), "measurement")
        largest = max(finding.largest_k for finding in findings)
        text = f"-ln RBP_k follows B k^-beta within {findings[0].margin:.0%} up to k = {largest} in {cases}"
        if with_verdict(findings, Verdict.NO):
            off = max(finding.estimate for finding in findings)
            r2 = at_least(min(finding.r2 for finding in findings), 3)
            text += f" (points lie up to {off:.0%} off the line, though R^2 is at least {r2})"
        yield f"{text}; beta is {spread(betas, '.3f')}."
        for finding in findings:
            yield f"{where(finding)}: {finding.in_words()}."

    def in_words(self) -> str:
        """Return the exponents of one family, how the local slope changes with k, and how beta changes with S."""
        text = f"beta is {self.beta[0]:.3f}"
        if len(self.beta) > 1:
            text += f" ({self.sizes[0]}) to {self.beta[-1]:.3f} ({self.sizes[-1]})"
        change = "steepens" if self.at_largest > self.at_1 else "flattens"
        text += f"; the local slope {change} from {self.at_1:.2f} at k = 1 to {self.at_largest:.2f}"
        text += f" at k = {self.largest_k}"
        if isfinite(self.trend.value):
            ends = interval(self.trend.low, self.trend.high, "+.3f")
            text += f". Per factor 10 in S beta changes by {number(self.trend.value, '+.3f')} ({ends})"
            if not self.trend.low <= 0 <= self.trend.high:
                text += ", so that eq. 10 holds only locally"
        return text


@dataclass(frozen=True, kw_only=True)
class WorthOfK(Finding):
    """The factor in S that doubling k is worth; YES where it is known.

    Attributes:
        k: from which k doubles.
        measured: the same, read off between measured sizes; NaN where it cannot be.
        sizes: how many the family has.
        needed: how many are needed.

    """

    question: str = "worth of a larger k"
    k: int = 0
    measured: float = nan
    sizes: int = 0
    needed: int = 3

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say what doubling k is worth in each family."""
        for finding in findings:
            if finding.verdict == Verdict.YES:
                text = f"{where(finding)}: doubling k from {finding.k} raises RBP as much as a model "
                text += f"{_times(finding.estimate)} times as large"
                if isfinite(finding.low):
                    text += f" ({_times(finding.low)} to {_times(finding.high)})"
                if isfinite(finding.measured):
                    text += f"; between the measured sizes, {_times(finding.measured)}"
                yield f"{text}."
            elif finding.sizes < finding.needed:
                sizes = f"{finding.needed} sizes, and there {be(finding.sizes)} {counted(finding.sizes, 'size')}"
                yield f"{where(finding)}: what a larger k is worth in S needs {sizes}."
            else:
                yield f"{where(finding)}: undecided what a larger k is worth in S, because alpha may be 0."


def _times(factor: float) -> str:
    """Return a factor that is known to a tenth at best: `1.4`, `27`, `1.2e+03`."""
    return f"{factor:.2g}" if factor >= 10 else f"{factor:.2f}"
