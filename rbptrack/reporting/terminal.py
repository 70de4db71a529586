"""Reports on the terminal: a table and sentences, or a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import unescape

from rbptrack.analysis.contract import Report
from rbptrack.analysis.findings import Remark
from rbptrack.base.words import counted, listed
from rbptrack.console.output import say, say_wrapped
from rbptrack.console.tables import table
from rbptrack.ranks import metric_label
from rbptrack.reporting.columns import readable
from rbptrack.reporting.first_page import FirstPage
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


def show_first_page(page: FirstPage) -> None:
    """Print the cells as a table, a line per family and dataset; everything else is in the report."""
    heads = ["family", "dataset", "metric", *page.lines]
    rows = [
        [row.family, row.dataset, metric_label(metric), *(row.text(line, metric) for line in page.lines)]
        for row in page.rows
        for metric in page.metrics
        if any(row.text(line, metric) for line in page.lines)
    ]
    families = {row.family for row in page.rows}
    if len(families) == 1:
        heads = heads[1:]
        rows = [row[1:] for row in rows]
    title = next((f"{term}: {meaning}" for term, meaning in page.facts.items()), "")
    cut = max(0, len(rows) - _MOST_ROWS)
    say("")
    title = f"{next(iter(families))}. {title}" if len(families) == 1 else title
    shown = rows[:_MOST_ROWS] if cut > 1 else rows
    table(heads, shown, title=title, text_columns=heads.index("metric") + 1, first_out=page.lines[1:])
    if cut > 1:
        say(f"and {cut:,} more rows in the report")
    for row in page.rows[:_MOST_ROWS]:
        remarks = [f"{remark}: {row.text(remark)}" for remark in page.remarks if row.text(remark)]
        if remarks:
            say_wrapped(f"{row.family} on {row.dataset}: {'; '.join(remarks)}")


def show_others(sections: Sequence[Section], *, whole: bool) -> None:
    """Print a line for each other analyzer's own sentences, and the first one's table where it is shown whole."""
    for section in sections:
        report = section.report
        if whole and report.summary:
            _show_table(section.about, report)
            whole = False
        elif not section.findings:
            made = listed([counted(len(report.tables), "table"), counted(len(section.figures), "figure")])
            sentence = report.headline or next((note for note in report.notes if not isinstance(note, Remark)), made)
            say_wrapped(f"{section.name}: {sentence}", lines=2)


def _show_table(title: str, report: Report) -> None:
    if report.summary:
        shown = report.tables[report.summary]
        cut = max(0, len(shown.frame) - _MOST_ROWS)
        columns = readable(replace(shown, frame=shown.frame.head(_MOST_ROWS)) if cut > 1 else shown)
        texts = next((i for i, column in enumerate(columns) if column.number), len(columns))
        say("")
        rows = list(zip(*(column.cells for column in columns), strict=True))
        table([column.title for column in columns], rows, title=unescape(title), text_columns=texts)
        if cut > 1:
            say(f"and {cut:,} more rows in the report")
