"""Findings about ranks and cross-entropy: at equal loss, at equal probability, and as predictors of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict, around, by_sign
from rbptrack.analysis.lead import Lead
from rbptrack.analysis.phrases import estimate, interval, metric_of, where, with_verdict
from rbptrack.base.words import counted, listed, number, p_in_words, some_of
from rbptrack.ranks import parse_rbp_name

from .rows import CollapseRow, FallRow

_ORDER = 10  # on the first page
_FEW = 3  # cases that a sentence names


@dataclass(frozen=True, kw_only=True)
class ShareOfFall(Finding):
    """The share of the fall of CE, from the smallest to the largest size, that its rank part E[ln R] makes up.

    Attributes:
        sizes: smallest and largest.
        fall: of CE, in nats.
        rank: of its rank part.

    """

    question: str = "rank's share of the fall of CE"
    sizes: str
    fall: float
    rank: float

    @classmethod
    def of(cls, row: FallRow) -> Self:
        """Make the finding of a row."""
        seen = isfinite(row.share.value)
        return cls(
            case=row.case(),
            verdict=by_sign(row.share),
            reason="" if seen else "no fall",
            sizes=row.sizes,
            fall=row.fall,
            rank=row.rank,
            **around(row.share),
        )

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how much of the fall of CE is better ranks."""
        seen = [finding for finding in findings if not finding.reason]
        if len(seen) > _FEW:
            shares = [finding.estimate for finding in seen]
            yield (
                f"Better ranks make up {interval(min(shares), max(shares), '.0%')} of the fall of cross-entropy with "
                f"size ({counted(len(seen), 'case')}); the rest is probability at equal rank."
            )
        elif seen:
            parts = [f"{estimate(finding, '.0%')} on {finding.case['dataset']}{finding.of_family}" for finding in seen]
            yield (
                f"Better ranks make up {listed(parts)} of the fall of cross-entropy with size; the rest is probability "
                "at equal rank."
            )
        for finding in findings:
            if finding.reason:
                yield f"{where(finding)}: CE does not fall significantly from {finding.sizes}, so no share is given."
            else:
                yield (
                    f"{where(finding)}: from {finding.sizes}, CE falls by {number(finding.fall, '.3f')} nats, its rank "
                    f"part E[ln R] by {number(finding.rank, '.3f')}: {estimate(finding, '.1%')}."
                )

    @property
    def of_family(self) -> str:
        """The family, in parentheses."""
        return f" ({self.case['family']})"

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Return the first sentence."""
        facts = {"rank part": "E[ln R], which ranks alone fix; CE = E[ln R] + E[-ln(p R)]"}
        return Lead(sentence=next(cls.say(findings), ""), order=_ORDER, facts=facts)


@dataclass(frozen=True, kw_only=True)
class ExponentsOfParts(Finding):
    """The exponent of CE's rank part minus that of the rest, over the same models and documents."""

    question: str = "rank falls faster than the rest"

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say in how many cases the rank part falls faster with size than the rest."""
        different = with_verdict(findings, Verdict.DIFFERENT)
        faster = [finding for finding in different if finding.estimate > 0]
        text = (
            f"The rank part of CE falls faster with size than the rest in {some_of(len(faster), len(findings), 'case')}"
        )
        if len(different) > len(faster):
            text += f", and more slowly in {len(different) - len(faster)}"
        yield f"{text} (corrected)."
        for finding in findings:
            ends = estimate(finding, "+.3f")
            text = f"{where(finding)}: the exponent of the rank part minus that of the rest is {ends}"
            if finding.verdict is Verdict.UNTOLD:
                text += f"; undecided, a difference of {number(finding.detectable, '.3f')} would be detected (80%)"
            yield f"{text}."


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

    def row(self) -> CollapseRow:
        """Make its row of the table."""
        return CollapseRow(
            dataset=self.case["dataset"],
            k=parse_rbp_name(self.case["metric"]) or 0,
            series=self.series,
            points=self.points,
            explained=self.explained,
            left=self.left,
            farthest=self.farthest,
            apart=self.interval,
            p=self.p,
            p_corrected=self.p_corrected,
            verdict=self.reason or self.verdict,
        )


def _overall(tested: Sequence[CollapsesOnCe], apart: Sequence[CollapsesOnCe]) -> str:
    """Return the verdict at equal loss: different, the same within the margin, or undecided and how large it may be."""
    cases = some_of(len(apart), len(tested), "case")
    if apart:
        most = max(apart, key=lambda finding: abs(finding.estimate))
        return (
            f"The law of RBP is not only that of CE: at equal loss {_series(apart)} differ in {cases} (corrected), by "
            f"{_more(most)} at most ({most.farthest}, {metric_of(most)})."
        )
    margin = f"{tested[0].margin:.0%}"
    same = with_verdict(tested, Verdict.SAME)
    close = with_verdict(tested, Verdict.CLOSE)
    untold = with_verdict(tested, Verdict.UNTOLD)
    parts = []
    if same:
        parts.append(f"RBP_k is the same for all {_series(same)}, within {margin}, in {len(same)}")
    if close:
        parts.append(f"{_series(close)} differ, but by less than {margin}, in {len(close)}")
    if untold:
        largest = max(finding.largest for finding in untold)
        parts.append(f"no difference was detected in {len(untold)}, where one of up to {largest:.0%} may be")
    return f"At equal CE, of {counted(len(tested), 'case')}: {listed(parts)}."


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

    """

    question: str = "ranks at equal p"
    gain: float
    sizes: str

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
            elif len(with_verdict(tested, Verdict.SAME)) == len(tested):
                yield (
                    f"Ranks at equal probability add less than {tested[0].margin:.0%} of the gain in {label}, shown in "
                    f"{some_of(len(tested), len(tested), 'case')}."
                )
            else:
                low = min(finding.low for finding in tested)
                high = max(finding.high for finding in tested)
                yield (
                    f"Whether larger models rank better at equal probability is undecided: that may be "
                    f"{interval(low, high, '.0%')} of the gain in {label}."
                )
        for finding in tested:
            yield (
                f"{where(finding)}: ranks at equal p make up {estimate(finding, '.1%')} of the gain in {label} "
                f"({finding.sizes})."
            )
        if any(finding.reason == "one size" for finding in findings):
            yield "Whether larger models rank better at equal p needs a second size."


@dataclass(frozen=True, kw_only=True)
class Predicts(Finding):
    """Which of RBP_k (yes) and CE (no) predicts how often whole sequences of left-out models succeed.

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
                f"For whole sequences of {left_out} left out, neither RBP_k nor CE is significantly better ({cases})."
            )
