"""Phrases that sentences of findings share: one way to write an interval, a case, a corrected p."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, TypeVar

from rbptrack.base.words import number, p_in_words
from rbptrack.ranks import metric_label

if TYPE_CHECKING:
    from rbptrack.analysis.findings import Finding, Verdict

F = TypeVar("F", bound="Finding")


def interval(low: float, high: float, form: str = ".3f") -> str:
    """Return `0.104 to 0.120`; `no interval` without one."""
    if low != low or high != high:
        return "no interval"
    return f"{number(low, form)} to {number(high, form)}"


def estimate(finding: Finding, form: str = ".3f") -> str:
    """Return `0.112 (0.104 to 0.120)`; without parentheses where no interval is known."""
    is_bounded = isfinite(finding.low) and isfinite(finding.high)
    return number(finding.estimate, form) + (f" ({interval(finding.low, finding.high, form)})" if is_bounded else "")


def where(finding: Finding) -> str:
    """Return `nano on pydocs`: the family and the dataset of a finding's case."""
    return " on ".join(finding.case[key] for key in ("family", "dataset") if finding.case.get(key))


def by_where(findings: Sequence[F]) -> dict[str, list[F]]:
    """Return the findings of each family on a dataset, in the order in which they come."""
    grouped: dict[str, list[F]] = {}
    for finding in findings:
        grouped.setdefault(where(finding), []).append(finding)
    return grouped


def metric_of(finding: Finding) -> str:
    """Return CE or RBP_10."""
    return metric_label(finding.case["metric"])


def with_verdict(findings: Sequence[F], *verdicts: Verdict) -> list[F]:
    """Return the findings that have one of the verdicts."""
    return [finding for finding in findings if finding.verdict in verdicts]


def upper_first(text: str) -> str:
    """Return a sentence's first letter raised; the others stay."""
    return text[:1].upper() + text[1:]


def plainly(findings: Sequence[Finding]) -> Iterator[str]:
    """Say each finding case by case, such as `is odd, m: yes, 0.5 (0.25 to 1).`."""
    for finding in findings:
        case = ", ".join(map(str, finding.case.values()))
        p = finding.p if finding.p_corrected != finding.p_corrected else finding.p_corrected
        parts = [str(finding.verdict)]
        if finding.estimate == finding.estimate:
            parts.append(estimate(finding, ".4g"))
        if p == p:
            parts.append(p_in_words(p))
        yield f"{finding.question}, {case}: {', '.join(parts)}."
