"""The authors' published exponents beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rbptrack.analysis.findings import Finding, Verdict
from rbptrack.analysis.phrases import interval, where, with_verdict
from rbptrack.analysis.published import PUBLISHED_IN
from rbptrack.base.words import counted, listed
from rbptrack.ranks import metric_label

_FEW = 3  # cells that are named


def published_exponent(findings: Sequence[Finding]) -> Iterator[str]:
    """How many agree; laws that are inverse; and what differs."""
    agree, differ, unsure = (
        len(with_verdict(findings, verdict)) for verdict in (Verdict.SAME, Verdict.DIFFERENT, Verdict.UNTOLD)
    )
    there = counted(len(findings), "published exponent")
    inverse = [one for one in findings if one.extras["inverse"]]
    worse = f"; {_cells(inverse)} inverse: larger models are worse" if inverse else ""
    yield f"Of {there}, {agree} agree with yours, {differ} differ from yours and {unsure} are undecided{worse}."
    yield f"Published in: {PUBLISHED_IN}."


def _cells(findings: Sequence[Finding]) -> str:
    names = [f"{metric_label(one.case['metric'])} of {where(one)}" for one in findings]
    many = len(names) > 1
    return (
        f"the {'laws' if many else 'law'} of {listed(names)} {'are' if many else 'is'}"
        if len(names) <= _FEW
        else f"{len(names)} laws are"
    )


def sequences_succeed(findings: Sequence[Finding]) -> Iterator[str]:
    """As how many independent tokens N tokens in a row count, by imported shares."""
    for one in findings:
        yield (
            f"{where(one)}: N tokens in a row succeed as often as {one.estimate:.2f} N independent ones would "
            f"({interval(one.low, one.high, '.2f')} over {counted(one.extras['cases'], 'imported share')})."
        )


SENTENCES = {"published exponent": published_exponent, "sequences succeed": sequences_succeed}
