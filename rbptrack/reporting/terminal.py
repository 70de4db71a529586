"""Print reports on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rbptrack.analysis import Runs
from rbptrack.base.formatting import counted
from rbptrack.console.output import print_problem, print_text
from rbptrack.console.tables import print_table
from rbptrack.reporting.analyses import Analysis, first_sentences, leading
from rbptrack.reporting.tables import ResultsTable

MAX_NOTES = 8
"""The largest number of a report's notes that the terminal shows."""


def print_report(analysis: Analysis) -> None:
    """Print the headline, the tables and up to `MAX_NOTES` notes of a report, or the reason why the analyzer failed."""
    if analysis.report is None:
        print_problem(analysis.problem, analysis.trace)
        return
    if analysis.report.headline:
        print_text(analysis.report.headline)
    for table in analysis.results_tables:
        _print_table(table)
    notes = analysis.report.notes
    if notes:
        print_text("")
    for note in notes[:MAX_NOTES]:
        print_text(note)
    if len(notes) > MAX_NOTES:
        print_text(f"The page has {counted(len(notes) - MAX_NOTES, 'more note')}.")


def print_summary(analyses: Sequence[Analysis]) -> None:
    """Print a summary of analyses.

    The summary has the headline and the first two tables of the leading report, the reason of each failure, and the
    names of the analyzers without results.
    """
    lead = leading(analyses)
    if lead is not None and lead.report is not None and (lead.report.headline or lead.has_results):
        if sentence := first_sentences(analyses, lead):
            print_text(sentence)
        for table in lead.results_tables[:2]:
            _print_table(table)
        print_text("")
    for analysis in analyses:
        if analysis.report is None:
            print_problem(analysis.problem, analysis.trace)
    empty = [analysis.name for analysis in analyses if analysis.report is not None and not analysis.has_results]
    if empty:
        print_text(f"without results: {', '.join(empty)} (the page says why)")


def print_unreadable(runs: Runs, analyses: Sequence[Analysis]) -> int:
    """Print why files of measurements could not be read. Returns the number of these measurements.

    Args:
        runs: the measurements.
        analyses: analyses of these measurements.

    """
    reasons = dict(runs.unreadable)
    for analysis in analyses:
        if analysis.report is not None:
            reasons |= analysis.report.unreadable
    for reason in reasons.values():
        print_problem(f"the results are incomplete: {reason}")
    return len(reasons)


def _print_table(table: ResultsTable) -> None:
    frame, by_importance = table.columns_by_importance()
    if by_importance:
        print_text("")
        print_table(frame, by_importance=by_importance)
