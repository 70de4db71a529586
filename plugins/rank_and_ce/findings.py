"""What is said of ranks and cross-entropy: at equal loss, at equal probability, and as predictors of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.lead import Lead
from rbptrack.analysis.phrases import estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, p_in_words, some_of

_ORDER = 10  # on the first page


@dataclass(frozen=True, kw_only=True)
class CollapsesOnCe(Finding):
    """How far the farthest series lies from the others at equal CE: its -ln RBP_k over the mean of all, less 1.

    Attributes:
        series: families, checkpoints and datasets that the points are of.
        points: models on texts.
        explained: share of the variance of ln(-ln RBP_k) that CE explains.
        left: root mean square of what it leaves.
        farthest: the series that lies farthest.
        largest: the largest distance that the interval of any series allows.

    """

    question: str = "collapses on CE"
    series: int
    points: int
    explained: float
    left: float
    farthest: str
    largest: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say whether -ln RBP_k is one curve of CE; then where it is not, and how near the points lie."""
        tested = [finding for finding in findings if not finding.reason]
        left = interval(min(finding.left for finding in findings), max(finding.left for finding in findings), ".1%")
        if not tested:
            yield (
                f"Along the sizes of one family, CE tells -ln RBP_k to within {left}; whether families differ at equal "
                "loss takes a second one on the same texts."
            )
            return
        apart = with_verdict(tested, Verdict.DIFFERENT)
        yield _overall(tested, apart)
        for finding in apart:
            yield (
                f"{finding.case['dataset']}, {metric_of(finding)}: at equal CE {finding.farthest} lies "
                f"{_more(finding)} ({interval(finding.low, finding.high, '.1%')}) from the mean "
                f"({p_in_words(finding.p_corrected)}, corrected); CE explains {finding.explained:.1%} of ln(-ln RBP)."
            )
        yield f"A curve of CE leaves {left} of -ln RBP_k (root mean square)."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """The first sentence."""
        return Lead(sentence=next(cls.say(findings), ""), order=_ORDER)


def _overall(tested: Sequence[CollapsesOnCe], apart: Sequence[CollapsesOnCe]) -> str:
    alike = with_verdict(tested, Verdict.SAME, Verdict.CLOSE)
    cases = some_of(len(apart), len(tested), "case")
    if apart:
        most = max(apart, key=lambda finding: abs(finding.estimate))
        return (
            f"The law of RBP is not only that of CE: at equal loss {_series(apart)} differ in {cases} (corrected), by "
            f"{_more(most)} at most ({most.farthest}, {metric_of(most)})."
        )
    if len(alike) == len(tested):
        return (
            f"The law of RBP is that of CE: at equal loss {_series(tested)} lie on one curve, within "
            f"{tested[0].margin:.0%} ({counted(len(tested), 'case')})."
        )
    return (
        f"No evidence that the law of RBP is more than that of CE ({cases} differ at equal loss), but too few points "
        f"to call it one curve in {some_of(len(tested) - len(alike), len(tested), 'case')}."
    )


def _series(findings: Sequence[Finding]) -> str:
    return "texts" if all(finding.case["dataset"] == "all together" for finding in findings) else "families"


def _more(finding: Finding) -> str:
    return f"{abs(finding.estimate):.1%} {'above' if finding.estimate > 0 else 'below'}"


@dataclass(frozen=True, kw_only=True)
class RanksAtEqualP(Finding):
    """The share of a family's gain in RBP_k that better ranks at equal p(target) make up.

    Attributes:
        gain: of RBP_k, from the smallest to the largest size.
        sizes: smallest and largest.
        told_by_p: share of the variance of ln R that p explains at the largest size.

    """

    question: str = "ranks at equal p"
    gain: float
    sizes: str
    told_by_p: float

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say whether larger models rank better at equal p of the right token; then of each family."""
        tested = [finding for finding in findings if not finding.reason]
        label = metric_of(findings[0])
        if tested:
            shares = [finding.estimate for finding in tested]
            parts = interval(min(shares), max(shares), ".1%")
            better = with_verdict(tested, Verdict.YES)
            worse = with_verdict(tested, Verdict.NO)
            if better or worse:
                yield (
                    f"Larger models rank better at equal probability in {len(better)} and worse in {len(worse)} of "
                    f"{counted(len(tested), 'case')}: {parts} of the gain in {label}, which CE cannot see."
                )
            else:
                yield f"CE explains the whole gain in {label}: better ranks at equal probability add {parts}."
        for finding in findings:
            text = f"at the largest size p(target) tells {finding.told_by_p:.0%} of the variance of ln R"
            if not finding.reason:
                share = estimate(finding, ".1%")
                text += f"; ranks at equal p make up {share} of the gain in {label} ({finding.sizes})"
            yield f"{where(finding)}: {text}."
        if any(finding.reason == "one size" for finding in findings):
            yield "Whether larger models rank better at equal p needs a second size."


@dataclass(frozen=True, kw_only=True)
class Predicts(Finding):
    """Which of RBP_k (yes) and CE (no) predicts how often whole sequences of what was left out succeed.

    Attributes:
        left_out: sizes or families.
        better: by the errors alone: `RBP_k`, `CE` or `undecided`.
        needed: families that it takes to tell; 0 where sizes are left out.

    """

    left_out: str
    better: str
    needed: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say which predictor of whole sequences is better."""
        left_out = findings[0].left_out
        rbp = len(with_verdict(findings, Verdict.YES))
        ce = len(with_verdict(findings, Verdict.NO))
        cases = counted(len(findings), "case")
        if all(finding.reason for finding in findings):
            yield (
                f"Which of CE and RBP_k predicts whole sequences of {left_out} left out takes {findings[0].needed} of "
                "them."
            )
        elif rbp or ce:
            yield (
                f"Whole sequences of {left_out} left out are predicted better by RBP_k in {rbp} and by CE in {ce} of "
                f"{cases} (corrected)."
            )
            named = [
                f"{finding.case['dataset']}, {finding.case['outcome']}, {metric_of(finding)}"
                for finding in with_verdict(findings, Verdict.YES, Verdict.NO)
            ]
            yield f"Those are: {listed(named)}."
        else:
            yield (
                f"RBP_k and CE predict whole sequences of {left_out} left out equally well, as far as {cases} can tell."
            )
