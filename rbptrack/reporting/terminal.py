"""Reports on the terminal: a sentence, a table, and what was left out in a line."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.words import counted
from rbptrack.console.output import complain, say
from rbptrack.console.tables import print_table
from rbptrack.reporting.analyse import Analysis
from rbptrack.reporting.tables import KEYS, ResultsTable, results_tables

MAX_NOTES = 8


def show(analysis: Analysis) -> None:
    """Print the headline, tables and notes of a report. If the analyzer failed, print the reason."""
    if analysis.report is None:
        complain(analysis.problem, analysis.trace)
        return
    if analysis.report.headline:
        say(analysis.report.headline)
    for table in results_tables(analysis.report):
        _print(table)
    notes = analysis.report.notes
    if notes:
        say("")
    for note in notes[:MAX_NOTES]:
        say(note)
    if len(notes) > MAX_NOTES:
        say(f"and {counted(len(notes) - MAX_NOTES, 'note')} more on the page")


def show_summary(analyses: Sequence[Analysis]) -> None:
    """Print what stands after a sweep: the leading report's headline and table, then what failed or was left out."""
    lead = next((analysis for analysis in analyses if analysis.leads and analysis.report is not None), None)
    if lead is not None and lead.report is not None:
        say(lead.report.headline)
        for table in results_tables(lead.report)[:1]:
            _print(table)
        say("")
    for analysis in analyses:
        if analysis.report is None:
            complain(analysis.problem, analysis.trace)
    skipped = [analysis.name for analysis in analyses if analysis.report is not None and not analysis.has_results]
    if skipped:
        say(f"nothing to say: {', '.join(skipped)} (why: on the page)")


def _print(table: ResultsTable) -> None:
    """Print a table without asides."""
    found = columns_by_importance(table)
    if found is not None:
        frame, last_to_go = found
        say("")
        print_table(frame, last_to_go=last_to_go)


def columns_by_importance(table: ResultsTable) -> tuple[pd.DataFrame, list[str]] | None:
    """The columns of a table without asides, and those to keep if room is short; None if it has no estimate.

    P values go first, then power, then verdicts, then estimates.
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
    last_to_go = []
    for names in ([*KEYS, *cases], questions, ["verdict"], ["detectable"], ["p_holm"]):
        last_to_go += [title for title in shown if table.names[title] in names]
    return table.frame[shown], last_to_go
