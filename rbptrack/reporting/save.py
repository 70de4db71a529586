"""Reports in the store, and figures as files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rbptrack.analysis import Runs
from rbptrack.base import markup
from rbptrack.base.errors import BadInput
from rbptrack.base.escape import file_part
from rbptrack.base.words import counted
from rbptrack.console.tables import table_lines
from rbptrack.figures import charts
from rbptrack.figures.charts import SHOWN_K
from rbptrack.figures.drawing import CannotDraw
from rbptrack.reporting.analyse import Analysis
from rbptrack.reporting.page import page_title
from rbptrack.reporting.tables import metrics, results_tables, table_text
from rbptrack.reporting.terminal import columns_by_importance
from rbptrack.tracking import Store
from rbptrack.tracking.names import READING_FILE, Kind

PAGE = "report.html"
_MAX_ROWS = 40  # of a table in a description
_WIDTH = 90  # characters of a table in a description


def keep(
    store: Store,
    runs: Runs,
    analyses: Sequence[Analysis],
    page: str,
    *,
    command: str,
    sweep: str = "",
    reading: str = "",
) -> str:
    """Save every report as an analysis' run; returns where the page is, as an address or a path.

    A run holds the results as CSV and as metrics, and the report's tables. The page, and the reading page if there is
    one, are files of the leading analysis' run, or of the first.
    """
    covers = list(runs.frame["run_id"])
    kept = [analysis for analysis in analyses if analysis.has_results]
    first = next((analysis for analysis in kept if analysis.leads), kept[0] if kept else None)
    where = ""
    for analysis in kept:
        report = analysis.report
        if report is None:
            continue
        files: dict[str, str | bytes] = {"results.csv": table_text(report.results, "csv")}
        for name, table in report.tables.items():
            files[_free_name(name, files)] = table_text(table, "csv")
        if analysis is first:
            files |= pages(page, reading)
        run_id = store.save(
            Kind.ANALYSIS,
            f"{analysis.name}: {page_title(runs)}",
            sweep=sweep,
            description=description(analysis, command),
            metrics=metrics(report),
            files=files,
            covers=covers,
            began=time.time() - analysis.seconds,
        )
        if analysis is first:
            where = store.reports.page(run_id) or str(store.artifact(run_id, PAGE))
    return where


def pages(page: str, reading: str) -> dict[str, str]:
    """The files of a run that holds a page and, unless it is empty, a reading page."""
    return {PAGE: page, READING_FILE: reading} if reading else {PAGE: page}


def _free_name(table: str, taken: Iterable[str]) -> str:
    """The file of a plugin's table: none that is taken, also where a disk tells no `A` from `a`."""
    stem = file_part(table)
    lower = {name.lower() for name in taken}
    while f"{stem}.csv".lower() in lower:
        stem = f"{stem}-table"
    return f"{stem}.csv"


def description(analysis: Analysis, command: str) -> str:
    """Return Markdown for a run's page in MLflow: the sentence, the first table with its intervals, the command.

    The table is text with aligned columns, because that page puts no space between the cells of Markdown's tables. It
    is as wide as the page beside MLflow's panel in a window of 1280 pixels.
    """
    parts = [markup.markdown_text(analysis.sentence)]
    tables = results_tables(analysis.report) if analysis.report else []
    found = columns_by_importance(tables[0]) if tables else None
    if found is not None:
        frame, last_to_go = found
        lines, left_out = table_lines(frame.head(_MAX_ROWS), _WIDTH, last_to_go=last_to_go)
        parts.append(markup.fenced("\n".join(lines)))
        if left_out:
            parts.append(markup.markdown_text(f"not shown: {', '.join(left_out)}; they are in results.csv"))
        if len(frame) > _MAX_ROWS:
            parts.append(f"and {counted(len(frame) - _MAX_ROWS, 'row')} more in results.csv")
    if command:
        parts.append(markup.fenced(command))
    return "\n\n".join(parts)


def save_figures(
    analyses: Sequence[Analysis], folder: Path, form: str, k: int = SHOWN_K
) -> tuple[list[Path], list[str]]:
    """Draw every figure into a folder as `<analyzer>-<figure>.<form>`, the form svg, png or pdf.

    Returns:
        The files, and a note on each figure that cannot be drawn.

    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    notes = []
    for analysis in analyses:
        for name, chart in analysis.report.figures.items() if analysis.report else ():
            try:
                paths.append(charts.save(chart, folder / f"{file_part(f'{analysis.name}-{name}')}.{form}", k))
            except (CannotDraw, BadInput) as error:
                notes.append(f"{analysis.name}: the figure {name} is not drawn: {error}")
    return paths, notes
