"""Findings: what an analyzer found as data, from which `rbptrack.reporting` makes sentences, last and in one place.

A question is asked of cases (families, datasets, metrics). Its verdicts are corrected once, over all of its cases:

    asked = [Finding(question="differs from CE", case=one.keys, estimate=d, low=l, high=h, p=p) for ...]
    report.findings += corrected(asked, decide)

A `Remark` is a note with a reason code, so that nothing has to read its text: why something was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite, nan
from typing import Any

from rbptrack.base.errors import RbptrackError
from rbptrack.stats.intervals import Interval


class Verdict(StrEnum):
    """What a finding says of its question; as it stands in tables."""

    YES = "yes"
    NO = "no"
    SAME = "equivalent"
    DIFFERENT = "different"
    CLOSE = "different, but within the margin"
    UNTOLD = "undecided"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One question asked of one case.

    Attributes:
        question: its name; `rbptrack/reporting/sentences/` has a sentence for it.
        case: of what it is asked: column -> name, such as `{"dataset": "wiki", "family": "opt", "metric": "rbp_10"}`.
        estimate: the number asked for.
        low: lower end of its interval.
        high: upper end.
        p: of the null hypothesis, of this case alone.
        p_corrected: over all cases of the question (`corrected`).
        verdict: as a code.
        reason: a code for why the verdict is none, or is limited.
        extras: what else a sentence or the first page needs, by name.

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
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def interval(self) -> Interval:
        """The estimate with its ends, as the field of a row."""
        return Interval(self.estimate, self.low, self.high)


def around(number: Interval) -> dict[str, Any]:
    """What a finding says of a number and its interval: estimate, low and high."""
    return {"estimate": number.value, "low": number.low, "high": number.high}


def by_sign(number: Interval) -> Verdict:
    """Yes where its interval lies above 0, no where it lies below, else untold."""
    if number.low > 0:
        return Verdict.YES
    return Verdict.NO if number.high < 0 else Verdict.UNTOLD


def corrected(findings: Iterable[Finding], decide: Callable[[Finding], Verdict | str] | None = None) -> list[Finding]:
    """The findings with p corrected by Holm's method over all cases of each question, and verdicts decided after that.

    Args:
        findings: of one question or several; those without a p are not counted.
        decide: the verdict of a finding that has its `p_corrected`; by default it stays as it is.

    """
    from rbptrack.stats.contrasts import holm  # scipy: not for everyone who imports the contract

    every = list(findings)
    for question in dict.fromkeys(one.question for one in every):
        places = [i for i, one in enumerate(every) if one.question == question and isfinite(one.p)]
        for i, p in zip(places, holm([every[i].p for i in places]), strict=True):
            every[i] = replace(every[i], p_corrected=float(p))
    return [replace(one, verdict=Verdict(decide(one))) if decide else one for one in every]


def sure(level: float, verdict: Verdict = Verdict.DIFFERENT) -> Callable[[Finding], Verdict]:
    """For `corrected`: the verdict where the corrected p is below 1 - level, else undecided."""
    return lambda one: verdict if one.p_corrected < 1 - level else Verdict.UNTOLD


def by_question(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings of each question, in the order in which they come."""
    grouped: dict[str, list[Finding]] = {}
    for one in findings:
        grouped.setdefault(one.question, []).append(one)
    return grouped


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
        made.reason, made.values = reason, values
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
        """For another process."""
        return type(self), (str(self), self.remarks)
