"""Saves reports in the store, and figures as files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rbptrack.analysis import Runs
from rbptrack.base import markup
from rbptrack.base.errors import BadInput
from rbptrack.base.escape import file_part
from rbptrack.base.formatting import counted
from rbptrack.console.tables import table_lines
from rbptrack.figures import charts
from rbptrack.figures.charts import SHOWN_K
from rbptrack.figures.drawing import CannotDraw
from rbptrack.reporting.analyses import Analysis
from rbptrack.reporting.page import page_title
from rbptrack.reporting.tables import report_metrics
from rbptrack.reporting.terminal import columns_by_importance
from rbptrack.tracking import Store
from rbptrack.tracking.names import READING_FILE, Kind

PAGE = "report.html"
_MAX_ROWS = 40  # rows of the table in a run's description
_WIDTH = 90  # characters in a line of that table


def save_reports(
    store: Store,
    runs: Runs,
    analyses: Sequence[Analysis],
    page: str,
    *,
    command: str,
    sweep: str = "",
    reading: str = "",
) -> str:
    """Save each report that has results as an analysis run in the store.

    A run holds the results as CSV and as metrics, and the tables of the report. The page and the reading page are files
    of the leading analysis's run. If no analysis leads, they are files of the first run.

    Args:
        store: the tracking store.
        runs: the measurements that were analysed.
        analyses: the analyses, as `run_analyzers` returns them.
        page: the HTML of the page.
        command: the command line, for the description of each run.
        sweep: the name of the sweep; empty if the analyses belong to none.
        reading: the HTML of the reading page; empty if there is none.

    Returns:
        The address or the path of the page; empty if no report has results.

    """
    covers = list(runs.frame["run_id"])
    kept = [analysis for analysis in analyses if analysis.has_results]
    first = next((analysis for analysis in kept if analysis.leads), kept[0] if kept else None)
    where = ""
    for analysis in kept:
        report = analysis.report
        if report is None:
            continue
        files: dict[str, str | bytes] = {"results.csv": analysis.results_csv}
        for name, csv in analysis.tables_csv.items():
            files[_free_name(name, files)] = csv
        if analysis is first:
            files |= page_files(page, reading)
        run_id = store.save(
            Kind.ANALYSIS,
            f"{analysis.name}: {page_title(runs)}",
            sweep=sweep,
            description=description(analysis, command),
            metrics=report_metrics(report),
            files=files,
            covers=covers,
            began=time.time() - analysis.seconds,
        )
        if analysis is first:
            where = store.reports.page(run_id) or str(store.artifact(run_id, PAGE))
    return where


def page_files(page: str, reading: str) -> dict[str, str]:
    """Return the contents by file name of a page and a reading page. An empty reading page is left out."""
    return {PAGE: page, READING_FILE: reading} if reading else {PAGE: page}


def _free_name(table: str, taken: Iterable[str]) -> str:
    """Return a file name for a table of a plugin. It differs from each taken name by more than case."""
    stem = file_part(table)
    lower = {name.lower() for name in taken}
    while f"{stem}.csv".lower() in lower:
        stem = f"{stem}-table"
    return f"{stem}.csv"


def description(analysis: Analysis, command: str) -> str:
    """Describe an analysis in Markdown, for its run's page in MLflow.

    The description has the sentence, the first table with its intervals, and the command. The table is text with
    aligned columns, because MLflow puts no space between the cells of Markdown tables. Its width fits a window of 1280
    pixels.
    """
    parts = [markup.markdown_text(analysis.sentence)]
    shown = columns_by_importance(analysis.results_tables[0]) if analysis.results_tables else None
    if shown is not None:
        frame, by_importance = shown
        lines, left_out = table_lines(frame.head(_MAX_ROWS), _WIDTH, by_importance=by_importance)
        parts.append(markup.code_block("\n".join(lines)))
        if left_out:
            parts.append(markup.markdown_text(f"The table leaves out {', '.join(left_out)}: see results.csv."))
        if len(frame) > _MAX_ROWS:
            parts.append(f"The table leaves out {counted(len(frame) - _MAX_ROWS, 'row')}: see results.csv.")
    if command:
        parts.append(markup.code_block(command))
    return "\n\n".join(parts)


def save_figures(
    analyses: Sequence[Analysis], folder: Path, form: str, k: int = SHOWN_K
) -> tuple[list[Path], list[str]]:
    """Draw all figures of analyses into a folder, as files named `<analyzer>-<figure>.<form>`.

    Args:
        analyses: the analyses. Those that failed have no figures.
        folder: the folder. It is made if it does not exist.
        form: the format of the files: `svg`, `png` or `pdf`.
        k: the k that the explorer shows; 0 shows cross-entropy.

    Returns:
        The paths of the files, and a note on each figure that cannot be drawn.

    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    notes = []
    for analysis in analyses:
        for name, chart in analysis.report.figures.items() if analysis.report else ():
            try:
                paths.append(charts.save(chart, folder / f"{file_part(f'{analysis.name}-{name}')}.{form}", k))
            except (CannotDraw, BadInput) as error:
                notes.append(f"{analysis.name}: the figure {name} cannot be drawn: {error}")
    return paths, notes
