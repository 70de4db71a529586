"""Findings about the distribution of ranks: the nearest candidate, and whether it is lognormal or Zipf's law."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, where, with_verdict
from rbptrack.base.words import number, some_of, spread


@dataclass(frozen=True, kw_only=True)
class ShapeOfRanks(Finding):
    """The gamma of one measurement: above 0 (yes) as a lognormal's, below 0 (no), or about 0 as Zipf's law has it.

    Attributes:
        best: the candidate with the lowest AIC.
        candidates: their number.
        distance: the largest distance of the fitted lognormal's RBP_k from the observed one.

    """

    question: str = "shape of the ranks"
    best: str
    candidates: int
    distance: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which candidate is best, and in how many measurements gamma allows a lognormal or Zipf's law."""
        names = [finding.best for finding in findings]
        nearest = max(dict.fromkeys(names), key=names.count)
        times = some_of(names.count(nearest), len(findings), "measurement")
        text = f"Of {findings[0].candidates} candidates the best (by AIC) is {nearest} in {times}; the lognormal "
        text += f"misses RBP_k by up to {max(finding.distance for finding in findings):.3f}"
        if zipf := [finding for finding in with_verdict(findings, Verdict.UNTOLD) if isfinite(finding.low)]:
            text += f"; in {len(zipf)} of {len(findings)} it agrees with Zipf's law, too"
        if convex := with_verdict(findings, Verdict.NO):
            text += f"; in {len(convex)} of {len(findings)} gamma lies below 0, which excludes both"
        yield f"{text}."


@dataclass(frozen=True)
class Terms:
    """-ln p_1 = ln c + mu^2/(2 sigma^2) of one size, as appendix B.4 of arXiv 2510.20387 splits it."""

    size: str
    square: float
    log_c: float
    neg_log_p1: float


@dataclass(frozen=True, kw_only=True)
class DistributionOfRanks(Finding):
    """Of a family, the change of mu/sigma per unit of ln S, and how near candidates and fitted lognormals come.

    Attributes:
        sizes: as published.
        nearest: the candidate that is best at most sizes.
        best: its name in words.
        times: sizes at which it is best.
        kl: of the nearest, the lognormal and Zipf's law: KL beyond sampling noise, nats per token, of each size.
        misses_at: the k at which the lognormal misses RBP_k most.
        vuong: the smallest z of the nearest against the lognormal; NaN where no size has one.
        entropy_off: the lognormal's entropy less the observed one, of each size.
        p1_off: the lognormal's -ln RBP_1 over the observed one, less 1.
        exponents: of the observed and of the implied -ln RBP_1; empty below 3 sizes.
        integral_off: the largest distance of the appendix's integral from the exact sum; NaN without one.
        terms: of the sizes whose mu and sigma are identified.

    """

    question: str = "distribution of ranks"
    sizes: Sequence[str]
    nearest: str
    best: str
    times: int
    kl: Mapping[str, Sequence[float]]
    misses_at: int
    vuong: float
    entropy_off: Sequence[float]
    p1_off: Sequence[float]
    exponents: Sequence[float]
    integral_off: float
    terms: Sequence[Terms]

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how near the candidates come, how mu/sigma changes, and what the lognormals imply."""
        for finding in findings:
            for sentence in finding.sentences():
                yield f"{where(finding)}: {sentence}."

    def sentences(self) -> Iterator[str]:
        """Yield the sentences about this family, without its name."""
        yield self._distances()
        if self.vuong > 2:
            z = f"Vuong's z at least {self.vuong:.1f}"
            yield f"document by document too it fits better than the lognormal at every size ({z})"
        if isfinite(self.estimate):
            yield f"mu/sigma changes by {estimate(self, '+.3f')} per unit of ln S"
        else:
            yield "undecided how mu/sigma changes with S: gamma may be near 0"
        yield self._implied()
        if len(self.terms) > 1:
            first = self.terms[0]
            last = self.terms[-1]
            square = number(last.square - first.square, "+.2f")
            log_c = number(last.log_c - first.log_c, "+.2f")
            together = number(last.neg_log_p1 - first.neg_log_p1, "+.2f")
            yield (
                f"of -ln p_1 = ln c + mu^2/(2 sigma^2) (appendix B.4), from {first.size} to {last.size} the second "
                f"term changes by {square} and ln c by {log_c}, together by {together}"
            )

    def _distances(self) -> str:
        kl = {name: spread([1e3 * v for v in values], ".1f", self.sizes) for name, values in self.kl.items()}
        text = f"the best at {some_of(self.times, len(self.sizes), 'size')} is {self.best}. Beyond sampling noise, in "
        text += f"10^-3 nats per token, the ranks lie {kl[self.nearest]} from it"
        if self.nearest != "lognormal":
            text += f", {kl['lognormal']} from the lognormal"
        return f"{text} and {kl['zipf']} from Zipf's law. The lognormal misses RBP_k most at k = {self.misses_at:,}"

    def _implied(self) -> str:
        entropy = spread(self.entropy_off, "+.3f", unit="nats")
        text = f"the fitted lognormals imply an entropy that is off by {entropy}, and a -ln RBP_1 off by "
        text += spread(self.p1_off, "+.1%")
        if len(self.exponents) == 2:
            text += f"; its exponent would be {self.exponents[1]:.3f} instead of {self.exponents[0]:.3f}"
        if isfinite(self.integral_off):
            text += f"; the appendix's integral differs from the exact sum by up to {self.integral_off:.2f}"
        return text
