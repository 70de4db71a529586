"""Save reports in the store, and figures in files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.base import markup
from rbptrack.base.errors import BadInput
from rbptrack.base.escape import file_part
from rbptrack.base.formatting import counted
from rbptrack.console.tables import table_lines
from rbptrack.figures import charts
from rbptrack.figures.drawing import CannotDraw
from rbptrack.measurement.record import ReportRecord
from rbptrack.reporting.analyses import Analysis, leading
from rbptrack.reporting.tables import report_metrics, table_text
from rbptrack.reporting.templates import families_and_datasets
from rbptrack.tracking import Store
from rbptrack.tracking.names import PAGE_FILE, READING_FILE, Kind, Tag

_MAX_ROWS = 40  # rows of the table in a run's description
_MAX_WIDTH = 90  # characters in a line of that table


def save_report(
    store: Store,
    runs: Runs,
    analyses: Sequence[Analysis],
    page: str,
    *,
    command: str,
    reading: str = "",
    sweep: str = "",
    params: Mapping[str, object] | None = None,
    began: float = 0.0,
) -> str:
    """Save analyses and their page as one run in the store.

    The run holds the page, the reading page, the results of all analyses as `results.csv`, and the further tables of
    the reports as CSV. Its metrics are the first results of the leading analysis. If no analysis leads, the first one
    with results counts as leading.

    Args:
        store: the tracking store.
        runs: the measurements that were analysed.
        analyses: the analyses, as `run_analyzers` returns them.
        page: the HTML of the page.
        command: the command line.
        reading: the HTML of the reading page; empty if there is none.
        sweep: the name of the sweep, if this is the report of a sweep; otherwise empty.
        params: further params of the run.
        began: when the command began, in seconds since 1970; by default now.

    Returns:
        The address or the path of the page; empty if no report has results.

    """
    with_results = [analysis for analysis in analyses if analysis.has_results]
    lead = leading(with_results) or next(iter(with_results), None)
    if lead is None and not sweep:
        return ""
    files: dict[str, str | bytes] = {PAGE_FILE: page}
    if reading:
        files[READING_FILE] = reading
    results = [analysis.report.results.assign(analyzer=analysis.name) for analysis in with_results if analysis.report]
    if results:
        frame = pd.concat([result for result in results if len(result)] or results)
        files["results.csv"] = table_text(frame[["analyzer", *frame.columns.drop("analyzer")]], "csv")
    for analysis in with_results:
        for name, csv in analysis.tables_csv.items():
            files[_unused_file_name(name, files)] = csv
    subject = families_and_datasets(runs.frame)
    names = ", ".join(analysis.name for analysis in analyses) if len(analyses) == 1 else "report"
    params = {"command": command, **_describe_runs(runs), **(params or {})}
    record = ReportRecord(
        title=f"sweep {sweep}" if sweep else f"{names}: {subject}",
        tags={Tag.SWEEP: sweep},
        params={name: str(value) for name, value in params.items() if value},
        metrics=report_metrics(lead.report) if lead and lead.report else {},
        covered_run_ids=list(runs.frame["run_id"]),
        began=began or time.time(),
    )
    description = describe_analysis(lead, command) if lead else markup.code_block(command)
    run_id = store.save(Kind.SWEEP if sweep else Kind.ANALYSIS, record, files, description)
    return store.reports.run_address(run_id) or str(store.artifact(run_id, PAGE_FILE))


def _describe_runs(runs: Runs) -> dict[str, object]:
    """Return params that describe measurements: families, datasets, their number, and the range of S."""
    frame = runs.frame
    sizes = frame["non_embedding_params"].dropna()
    return {
        "families": ", ".join(frame["family"].dropna().unique()),
        "datasets": ", ".join(frame["dataset"].dropna().unique()),
        "measurements": len(frame),
        "smallest_S": int(sizes.min()) if len(sizes) else "",
        "largest_S": int(sizes.max()) if len(sizes) else "",
    }


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
    tables = analysis.results_tables
    frame, by_importance = tables[0].columns_by_importance() if tables else (pd.DataFrame(), [])
    if by_importance:
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
