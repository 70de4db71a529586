"""Sentences about the authors' exponents beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval, where, with_verdict
from rbptrack.analysis.published import PUBLISHED_IN
from rbptrack.base.words import counted, listed
from rbptrack.ranks import metric_label

_FEW = 3  # cells that are named


@dataclass(frozen=True, kw_only=True)
class PublishedExponent(Finding):
    """Your exponent minus the published one; SAME where its interval lies within the tolerance.

    Attributes:
        published: the authors' exponent.
        inverse: whether larger models are worse by yours.

    """

    question: str = "published exponent"
    published: float
    inverse: bool = False

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say how many agree, which laws are inverse, and where the exponents were published."""
        agree = len(with_verdict(findings, Verdict.SAME))
        differ = len(with_verdict(findings, Verdict.DIFFERENT))
        undecided = len(with_verdict(findings, Verdict.UNTOLD))
        inverse = [finding for finding in findings if finding.inverse]
        worse = f"; {_cells(inverse)} inverse: larger models are worse" if inverse else ""
        cells = counted(len(findings), "published exponent")
        why = " (your interval reaches beyond the tolerance)" if undecided else ""
        counts = f"{agree} agree with yours, {differ} differ from yours and {undecided} are undecided{why}"
        yield f"Of {cells}, {counts}{worse}."
        yield f"Published in: {PUBLISHED_IN}."


@dataclass(frozen=True, kw_only=True)
class SequencesSucceed(Finding):
    """As how many independent tokens one of N tokens in a row counts, by imported shares.

    Attributes:
        cases: how many shares were imported.

    """

    question: str = "sequences succeed"
    cases: int

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        """Say as how many independent tokens N tokens in a row count."""
        for finding in findings:
            ends = interval(finding.low, finding.high, ".2f")
            yield (
                f"{where(finding)}: N tokens in a row succeed as often as {finding.estimate:.2f} N independent ones "
                f"would ({ends} over {counted(finding.cases, 'imported share')})."
            )


def _cells(findings: Sequence[PublishedExponent]) -> str:
    names = [f"{metric_label(finding.case['metric'])} of {where(finding)}" for finding in findings]
    if len(names) > _FEW:
        return f"{len(names)} laws are"
    return f"the laws of {listed(names)} are" if len(names) > 1 else f"the law of {names[0]} is"
