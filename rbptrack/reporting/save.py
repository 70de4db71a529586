"""Saves reports in the store, and figures in files."""

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
from rbptrack.figures.drawing import CannotDraw
from rbptrack.reporting.analyses import Analysis
from rbptrack.reporting.page import families_and_datasets
from rbptrack.reporting.tables import report_metrics
from rbptrack.reporting.terminal import columns_by_importance
from rbptrack.tracking import Store
from rbptrack.tracking.names import READING_FILE, Kind

PAGE = "report.html"
"""The file name of a page in the store."""

_MAX_ROWS = 40  # rows of the table in a run's description
_MAX_WIDTH = 90  # characters in a line of that table


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

    A run holds the results as CSV and as metrics, and the tables of the report. The run of the leading analysis also
    holds the page and the reading page. If no analysis leads, the first run holds them.

    Args:
        store: the tracking store.
        runs: the measurements that were analysed.
        analyses: the analyses, as `run_analyzers` returns them.
        page: the HTML of the page.
        command: the command line, which the description of each run shows.
        sweep: the name of the sweep; empty if the analyses belong to none.
        reading: the HTML of the reading page; empty if there is none.

    Returns:
        The address or the path of the page; empty if no report has results.

    """
    run_ids = list(runs.frame["run_id"])
    with_results = [analysis for analysis in analyses if analysis.has_results]
    with_page = next((analysis for analysis in with_results if analysis.leads), next(iter(with_results), None))
    page_address = ""
    for analysis in with_results:
        report = analysis.report
        if report is None:
            continue
        files: dict[str, str | bytes] = {"results.csv": analysis.results_csv}
        for name, csv in analysis.tables_csv.items():
            files[_unused_file_name(name, files)] = csv
        if analysis is with_page:
            files |= page_files(page, reading)
        run_id = store.save(
            Kind.ANALYSIS,
            f"{analysis.name}: {families_and_datasets(runs.frame)}",
            sweep=sweep,
            description=describe_analysis(analysis, command),
            metrics=report_metrics(report),
            files=files,
            covered_run_ids=run_ids,
            began=time.time() - analysis.seconds,
        )
        if analysis is with_page:
            page_address = store.reports.run_address(run_id) or str(store.artifact(run_id, PAGE))
    return page_address


def page_files(page: str, reading: str) -> dict[str, str]:
    """Return the files of a page and of a reading page: their contents by name. An empty reading page is left out."""
    return {PAGE: page, READING_FILE: reading} if reading else {PAGE: page}


def _unused_file_name(table: str, used_names: Iterable[str]) -> str:
    """Return a file name for a table of a plugin. It differs from all used names in more than upper and lower case."""
    stem = file_part(table)
    names_in_lower_case = {name.lower() for name in used_names}
    while f"{stem}.csv".lower() in names_in_lower_case:
        stem = f"{stem}-table"
    return f"{stem}.csv"


def describe_analysis(analysis: Analysis, command: str) -> str:
    """Describe an analysis in Markdown, for the page of its run in MLflow.

    The description has the sentence of the analysis, its first table with intervals, and the command. The table is text
    with aligned columns, because MLflow puts no space between the cells of Markdown tables. It fits into a window that
    is 1280 pixels wide.
    """
    parts = [markup.markdown_text(analysis.sentence)]
    columns = columns_by_importance(analysis.results_tables[0]) if analysis.results_tables else None
    if columns is not None:
        frame, by_importance = columns
        lines, left_out = table_lines(frame.head(_MAX_ROWS), _MAX_WIDTH, by_importance=by_importance)
        parts.append(markup.code_block("\n".join(lines)))
        if left_out:
            names = ", ".join(left_out)
            parts.append(markup.markdown_text(f"The table leaves out {names}. The file results.csv has all columns."))
        if len(frame) > _MAX_ROWS:
            rows = counted(len(frame) - _MAX_ROWS, "row")
            parts.append(f"The table leaves out {rows}. The file results.csv has all rows.")
    if command:
        parts.append(markup.code_block(command))
    return "\n\n".join(parts)


def save_figures(
    analyses: Sequence[Analysis], folder: Path, form: str, k: int | None = None, width: str | None = None
) -> tuple[list[Path], list[str]]:
    """Draw all figures of analyses into a folder, as files named `<analyzer>-<figure>.<form>`.

    Args:
        analyses: the analyses. A failed analysis has no figures.
        folder: the folder. It is made if it does not exist.
        form: the format of the files: `svg`, `png` or `pdf`.
        width: `column` or `page` for the width of a column or a page of a paper; None for the width on the page.
        k: the k that the explorer shows; 0 stands for cross-entropy, and None for the k that its analyzer chose.

    Returns:
        The paths of the files, and a note for each figure that cannot be drawn.

    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    notes = []
    for analysis in analyses:
        for name, chart in analysis.report.figures.items() if analysis.report else ():
            try:
                paths.append(charts.save(chart, folder / f"{file_part(f'{analysis.name}-{name}')}.{form}", k, width))
            except (CannotDraw, BadInput) as error:
                notes.append(f"{analysis.name}: the figure {name} cannot be drawn: {error}")
    return paths, notes
