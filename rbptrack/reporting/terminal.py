"""Reports on the terminal: a table and sentences, or a line."""

from __future__ import annotations

from html import unescape

from rbptrack.analysis import counted, listed
from rbptrack.analysis.contract import Analyzer, Report, question
from rbptrack.console import say, say_wrapped, table
from rbptrack.reporting.page import Section

_MOST_ROWS, _MOST_NOTES = 40, 40  # of a table, and below it


def show(section: Section) -> None:
    """Print a report's summary table and its sentences."""
    _show_table(section.about, section.report)
    notes = section.report.notes
    cut = len(notes) - _MOST_NOTES
    for note in notes[:_MOST_NOTES] if cut > 1 else notes:
        say_wrapped(note)
    if cut > 1:
        say(f"and {cut:,} more notes in the report")


def show_short(analyzer: Analyzer, report: Report, *, whole: bool) -> None:
    """The first analyzer's table; of every other its headline, or two lines of its first note."""
    if whole and report.summary:
        _show_table(question(type(analyzer)), report)
        say("")
    else:
        if report.headline:
            say_wrapped(f"{analyzer.name}: {report.headline}")
            return
        made = listed([counted(len(report.tables), "table"), counted(len(report.drawings), "figure")])
        say_wrapped(f"{analyzer.name}: {next(iter(report.notes), made)}", lines=2)


def _show_table(title: str, report: Report) -> None:
    if report.summary:
        frame = report.tables[report.summary].frame
        rows = [[_text(value) for value in row] for row in frame.itertuples(index=False)]
        words = [not all(_is_number(row[i]) for row in rows) for i in range(len(frame.columns))]
        texts = words.index(False) if False in words else len(words)
        cut = len(rows) - _MOST_ROWS
        if cut > 1:
            rows = rows[:_MOST_ROWS]
        say("")
        table(list(frame.columns), rows, title=unescape(title), text_columns=texts)
        if cut > 1:
            say(f"and {cut:,} more rows in the report")


def _is_number(text: str) -> bool:
    return not text or text[0] in "+-.0123456789"


def _text(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)
