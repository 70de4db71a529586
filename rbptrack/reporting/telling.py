"""From findings to words: each class of findings is asked once for its sentences and its part of the first page."""

from __future__ import annotations

from collections.abc import Iterable

from rbptrack.analysis.contract import Report
from rbptrack.analysis.findings import Finding, NothingToSay, Reason
from rbptrack.analysis.lead import Lead
from rbptrack.base.errors import RbptrackError
from rbptrack.reporting.forest import FOREST, forest


def tell(report: Report) -> None:
    """Put the sentences of a report's findings before its notes, and their leads to its own.

    The first sentence becomes the headline of a report without one; drawings of leads go to the top of the page.
    """
    texts = sentences_of(report.findings)
    report.notes[:0] = texts
    if texts and not report.headline:
        report.headline = texts[0].rstrip(".")
    report.leads += leads_of(report.findings)
    if drawing := forest(report.leads):
        report.drawings = {FOREST: drawing, **report.drawings}
        report.overview.append(FOREST)
    report.overview += [lead.drawing for lead in report.leads if lead.drawing]


def sentences_of(findings: Iterable[Finding]) -> list[str]:
    """Return the sentences of findings, one class and question after the other."""
    return [text for group in _groups(findings) for text in type(group[0]).say(group)]


def leads_of(findings: Iterable[Finding]) -> list[Lead]:
    """Return the parts of the first page that findings have, without those that are empty."""
    leads = [type(group[0]).lead(group) for group in _groups(findings)]
    return [lead for lead in leads if lead != Lead()]


def _groups(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return the findings by class and question, in the order in which they come."""
    groups: dict[tuple[type[Finding], str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((type(finding), finding.question), []).append(finding)
    return list(groups.values())


def skipped(error: RbptrackError) -> str:
    """Say why an analyzer reports nothing: `3 sizes needed and 2 there`; the error's own words where it has no code."""
    remarks = error.remarks if isinstance(error, NothingToSay) else []
    few = [remark.values for remark in remarks if remark.reason == Reason.FEW_SIZES]
    if few and len(few) == len(
        [remark for remark in remarks if remark.reason not in (Reason.KINDS, Reason.SEVERAL_RUNS)]
    ):
        return f"{max(v['needed'] for v in few)} sizes needed and {max(v['there'] for v in few)} there"
    if remarks and all(remark.reason == Reason.NO_RANKS for remark in remarks):
        return "imported without ranks"
    return " ".join(str(error).split())
