"""Prints reports on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.formatting import counted
from rbptrack.console.output import complain, say
from rbptrack.console.tables import print_table
from rbptrack.reporting.analyses import Analysis
from rbptrack.reporting.tables import KEYS, ResultsTable

MAX_NOTES = 8
"""The largest number of a report's notes that the terminal shows."""


def print_report(analysis: Analysis) -> None:
    """Print the headline, the tables and up to `MAX_NOTES` notes of a report. If the analyzer failed, say why."""
    if analysis.report is None:
        complain(analysis.problem, analysis.trace)
        return
    if analysis.report.headline:
        say(analysis.report.headline)
    for table in analysis.results_tables:
        _print(table)
    notes = analysis.report.notes
    if notes:
        say("")
    for note in notes[:MAX_NOTES]:
        say(note)
    if len(notes) > MAX_NOTES:
        say(f"and {counted(len(notes) - MAX_NOTES, 'note')} more on the page")


def print_summary(analyses: Sequence[Analysis]) -> None:
    """Print a summary of analyses.

    The summary has the headline and the first table of the leading report. Then follow the analyzers that failed, each
    with the reason, and the names of the analyzers without results.
    """
    lead = next((analysis for analysis in analyses if analysis.leads and analysis.report is not None), None)
    if lead is not None and lead.report is not None and (lead.report.headline or lead.has_results):
        if lead.sentence:
            say(lead.sentence)
        for table in lead.results_tables[:1]:
            _print(table)
        say("")
    for analysis in analyses:
        if analysis.report is None:
            complain(analysis.problem, analysis.trace)
    skipped = [analysis.name for analysis in analyses if analysis.report is not None and not analysis.has_results]
    if skipped:
        say(f"without results: {', '.join(skipped)} (the page says why)")


def _print(table: ResultsTable) -> None:
    """Print a table without asides after an empty line. A table without estimates is not printed."""
    shown = columns_by_importance(table)
    if shown is not None:
        frame, by_importance = shown
        say("")
        print_table(frame, by_importance=by_importance)


def columns_by_importance(table: ResultsTable) -> tuple[pd.DataFrame, list[str]] | None:
    """Drop the asides of a table, and order its columns by importance.

    Returns:
        The table without asides, and the titles of its columns, the most important first. A narrow terminal drops
        columns from the end of this list: first the columns that the report adds to its estimates (`beside`), then
        p values, the smallest effects found in 80% of cases, and then the questions, the last one first. A question
        loses its verdict before its estimate. The result is None if the table has no estimate.

    """
    table = table.without_asides()
    shown = table.titles
    report = table.report
    questions = report.questions
    if not any(table.names[title] in questions for title in shown):
        return None
    if "family" in shown and table.frame["family"].nunique() == 1:
        shown.remove("family")
    cases = [name for question in questions for name in report.case_columns(question)]
    by_importance = []
    for names in ([*KEYS, *cases], [*questions, "verdict"], ["detectable"], ["p_holm"]):
        by_importance += [title for title in shown if table.names[title] in names]
    by_importance += [title for title in shown if title not in by_importance]
    return table.frame[shown], by_importance
