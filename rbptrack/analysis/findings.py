"""Findings: what an analyzer found, as data; each class of findings says its own sentences.

A question is asked of cases (families, datasets, metrics). Its verdicts are corrected once, over all of its cases:

    @dataclass(frozen=True, kw_only=True)
    class Faster(Finding):
        question: str = "faster than CE"
        k: int

        @classmethod
        def say(cls, findings: Sequence[Self]) -> Iterator[str]:
            for finding in findings:
                yield f"{where(finding)}: the exponent at k = {finding.k} is {estimate(finding)}."

    findings = [Faster(case=row.case(), k=10, p=p, **around(difference)) for ...]
    report.findings += corrected(findings, sure(0.95))

`say` and `lead` are called once, right after `analyze`, with all findings of one class and question in a report.
A `Remark` is a note with a reason code, so that nothing has to read its text: why something was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite, nan
from typing import Any, Self, TypeVar

from rbptrack.analysis.lead import Lead
from rbptrack.analysis.phrases import plainly
from rbptrack.base.errors import RbptrackError
from rbptrack.stats.intervals import Interval


class Verdict(StrEnum):
    """What a finding says of its question; as it stands in tables."""

    YES = "yes"  # the interval excludes the null
    NO = "no"  # the interval excludes the claim
    SAME = "equivalent"  # the interval lies within the margin
    DIFFERENT = "different"
    CLOSE = "different, but within the margin"
    UNTOLD = "undecided"  # with what could have been detected, or why nothing could


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One question asked of one case; a subclass adds typed fields, and says its sentences.

    Attributes:
        question: its name; a subclass may give it as a default.
        case: of what it is asked: column -> name, such as `{"dataset": "wiki", "family": "opt", "metric": "rbp_10"}`.
        estimate: the number asked for.
        low: lower end of its interval.
        high: upper end.
        p: of the null hypothesis, of this case alone.
        p_corrected: over all cases of the question (`corrected`).
        verdict: as a code.
        reason: a code for why the verdict is none, or is limited.
        null: the value of the estimate that the null hypothesis has.
        margin: distance from `null` within which the estimate counts as the same, on the scale of the estimate.
        detectable: the smallest distance from `null` that would have been found in 80% of repetitions, at the level
            that decides; NaN if unknown.

    Raises:
        ValueError: the verdict is SAME without a margin, or with an interval that is not inside it: a fault of the
            analyzer.

    """

    question: str
    case: Mapping[str, str]
    estimate: float = nan
    low: float = nan
    high: float = nan
    p: float = nan
    p_corrected: float = nan
    verdict: Verdict = Verdict.UNTOLD
    reason: str = ""
    null: float = 0.0
    margin: float = nan
    detectable: float = nan

    def __post_init__(self) -> None:
        """Refuse a verdict that its own numbers do not carry."""
        if self.verdict is Verdict.SAME:
            inside = self.null - self.margin <= self.low <= self.high <= self.null + self.margin
            if not inside:  # a NaN is not inside
                ends = f"{self.low} to {self.high}, null {self.null}, margin {self.margin}"
                raise ValueError(f"{self.question}: SAME needs an interval inside a margin; got {ends}")

    @property
    def interval(self) -> Interval:
        """The estimate with its ends, as the field of a row."""
        return Interval(self.estimate, self.low, self.high)

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterable[str]:
        """Say the result in sentences with their full stops; the first says the whole in at most 60 words.

        Args:
            findings: all of this class and one question in a report.

        """
        return plainly(findings)

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        """Give the part of the first page that these findings have; by default none."""
        return Lead()


F = TypeVar("F", bound=Finding)


def around(number: Interval) -> dict[str, Any]:
    """Return the fields of a finding about a number and its interval: estimate, low and high."""
    return {"estimate": number.value, "low": number.low, "high": number.high}


def by_sign(number: Interval) -> Verdict:
    """Return YES for an interval above 0, NO for one below, else UNTOLD."""
    if number.low > 0:
        return Verdict.YES
    return Verdict.NO if number.high < 0 else Verdict.UNTOLD


def within_margin(verdict: Verdict, number: Interval, margin: float, null: float = 0.0) -> Verdict:
    """Return the verdict; UNTOLD in place of a SAME whose interval is not inside the margin."""
    inside = null - margin <= number.low <= number.high <= null + margin
    return Verdict.UNTOLD if verdict is Verdict.SAME and not inside else verdict


def corrected(findings: Iterable[F], decide: Callable[[F], Verdict | str] | None = None) -> list[F]:
    """Return the findings with p corrected by Holm's method over all cases of each question, and verdicts decided after
    that.

    Args:
        findings: of one question or several; those without a p are not counted.
        decide: the verdict of a finding that has its `p_corrected`; by default it stays as it is.

    """
    from rbptrack.stats.contrasts import holm  # scipy: not for everyone who imports the contract

    cases = list(findings)
    for question in dict.fromkeys(case.question for case in cases):
        places = [i for i, case in enumerate(cases) if case.question == question and isfinite(case.p)]
        for i, p in zip(places, holm([cases[i].p for i in places]), strict=True):
            cases[i] = replace(cases[i], p_corrected=float(p))
    return [replace(case, verdict=Verdict(decide(case))) if decide else case for case in cases]


def sure(level: float, verdict: Verdict = Verdict.DIFFERENT) -> Callable[[Finding], Verdict]:
    """Return the verdict for `corrected` where the corrected p is below 1 - level, else UNTOLD."""
    return lambda finding: verdict if finding.p_corrected < 1 - level else Verdict.UNTOLD


class Reason(StrEnum):
    """Why an analyzer left something out, or has nothing to say. Analyzers may have codes of their own."""

    FEW_SIZES = "few sizes"  # needed, there
    NO_RANKS = "no ranks"
    UNREADABLE = "unreadable"
    NO_SIZE = "no size"
    KINDS = "kinds"  # taken apart
    SEVERAL_RUNS = "several runs"  # of one size


class Remark(str):
    """A note about measurements that were left out, kept apart or put together: a sentence that knows its reason.

    Attributes:
        reason: a code.
        values: numbers of the reason: `needed` and `there`.

    """

    reason: str
    values: Mapping[str, Any]

    def __new__(cls, text: str, reason: str = "", **values: Any) -> Remark:
        """Make a sentence with a reason code and its numbers."""
        made = super().__new__(cls, text)
        made.reason = reason
        made.values = values
        return made


class NothingToSay(RbptrackError):
    """An analyzer has nothing to say of these measurements.

    Attributes:
        remarks: why, as codes; empty where only the text says it.

    """

    def __init__(self, text: str, remarks: Sequence[Remark] = ()) -> None:
        super().__init__(text)
        self.remarks = list(remarks)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the state for another process."""
        return type(self), (str(self), self.remarks)
