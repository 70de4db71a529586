"""Findings about classes of tokens, and about early against late positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, p_in_words, some_of
from rbptrack.stats.intervals import Interval


@dataclass(frozen=True, kw_only=True)
class ClassPair(Finding):
    """The exponent in a class less that in another; a row of the table of contrasts."""

    question: str = "classes differ"

    def columns(self) -> dict[str, Any]:
        """Return its cells by column."""
        return {
            **self.case,
            "difference": self.estimate,
            "low": self.low,
            "high": self.high,
            "p": self.p,
            "p_corrected": self.p_corrected,
        }


@dataclass(frozen=True)
class ClassLaw:
    """The law of a class of tokens.

    Attributes:
        name: of the class.
        alpha: its exponent.
        share: of the scored tokens.
        gain: its share of the growth of RBP_k.

    """

    name: str
    alpha: Interval
    share: float
    gain: float

    @property
    def in_words(self) -> str:
        """The exponent, its interval, and the class."""
        return f"{self.alpha.value:.3f} ({interval(self.alpha.low, self.alpha.high)}) in '{self.name}'"


@dataclass(frozen=True, kw_only=True)
class ClassesDiffer(Finding):
    """The largest exponent of a class less the smallest, in one way of classing; p is the smallest of all pairs.

    Attributes:
        metric: that the exponents are of, for people.
        lowest: the class with the smallest exponent.
        highest: that with the largest.
        most: that with the largest share of the gain.
        pairs: how many were compared.
        change: of the exponent, from the smallest k to the largest.
        within: the part of that change that lies within classes.

    """

    question: str = "classes of tokens"
    metric: str
    lowest: ClassLaw
    highest: ClassLaw
    most: ClassLaw
    pairs: int
    change: float
    within: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say by which classes exponents differ; then each way of classing of each family."""
        differ = with_verdict(findings, Verdict.DIFFERENT)
        ends = [law.alpha.value for finding in findings for law in (finding.lowest, finding.highest)]
        change = sum(finding.change for finding in findings)
        within = sum(finding.within for finding in findings)
        how = f" (by {listed(list(dict.fromkeys(finding.case['by'] for finding in differ)))})" if differ else ""
        text = (
            f"The exponent of {findings[0].metric} differs between classes of tokens in "
            f"{some_of(len(differ), len(findings), 'case')}{how}; in a class it is {interval(min(ends), max(ends))}"
        )
        if abs(change) > 1e-6:
            text += f". Of its change with k, {within / change:z.0%} lies within classes"
        yield f"{text}."
        for finding in findings:
            if not finding.pairs:
                yield f"{where(finding)}, by {finding.case['by']}: all tokens that have a law are in one class."
                continue
            verdict = "classes do not differ significantly"
            if finding.verdict is Verdict.DIFFERENT:
                verdict = f"they differ, {p_in_words(finding.p_corrected)}, corrected"
            yield (
                f"{where(finding)}, by {finding.case['by']}: alpha is {finding.lowest.in_words} and "
                f"{finding.highest.in_words} ({verdict}); '{finding.most.name}' ({finding.most.share:z.0%} of the "
                f"tokens) accounts for {finding.most.gain:z.0%} of the gain."
            )


@dataclass(frozen=True, kw_only=True)
class LateAgainstEarly(Finding):
    """The exponent at late positions less that at early ones.

    Attributes:
        early: the early positions.
        late: the late ones.
        alpha_early: the exponent there.
        alpha_late: of late positions.
        reached: documents that reach the last bin.
        documents: their number.

    """

    question: str = "late against early"
    early: str
    late: str
    alpha_early: float
    alpha_late: float
    reached: int
    documents: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how the exponent changes along the text."""
        differ = with_verdict(findings, Verdict.DIFFERENT)
        cases = counted(len(findings), "case")
        if not differ:
            yield f"No evidence that exponents differ between early and late positions ({cases})."
            return
        larger = sum(finding.estimate > 0 for finding in differ)
        yield (
            f"At late positions the exponent is larger in {larger} and smaller in {len(differ) - larger} of {cases} "
            "(each a family, dataset and metric; corrected)."
        )
        for finding in differ:
            yield (
                f"{where(finding)}: alpha of {metric_of(finding)} is {finding.alpha_early:.3f} at positions "
                f"{finding.early} and {finding.alpha_late:.3f} at {finding.late}, a difference of {estimate(finding)} "
                f"(in the {some_of(finding.reached, finding.documents, 'document')} that reach the last bin)."
            )
