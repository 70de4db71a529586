"""Render reports as one HTML page. The page contains Vega and all data, and loads nothing from the network.

This module prepares the values of the template. `page.html` makes all HTML, and Jinja escapes all texts. No plugin is
called.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd

import rbptrack
from rbptrack.analysis import Report, Runs, Term
from rbptrack.base.errors import RbptrackError, first_line
from rbptrack.base.formatting import compact, counted, estimate_text, listed, plain_json, short_hash
from rbptrack.console.output import print_problem
from rbptrack.figures import charts
from rbptrack.figures.drawing import CannotDraw
from rbptrack.ranks import HEADLINE_KS, rbp_name
from rbptrack.reporting.analyses import Analysis, first_sentences, leading
from rbptrack.reporting.reading import render_reading
from rbptrack.reporting.tables import (
    KEYS,
    ResultsTable,
    is_column_of_numbers,
    table_text,
    value_text,
)
from rbptrack.reporting.templates import compress_text, families_and_datasets, load_template
from rbptrack.reporting.vega import vega_script
from rbptrack.tracking.names import READING_FILE

_MAX_PLAIN_CSV = 20_000  # bytes of a table. The page holds larger tables compressed
_MAX_LINK = 100_000  # bytes of a compressed table. Larger tables are only in the store
_MAX_ROWS = 100  # rows of a folded table on the page. Its CSV has all rows
_MAX_LINE = 120  # characters. A longer sentence may not fit into a line of the page
_CLAUSE_END = re.compile(r"; (?![^()]*\))|(?<=[a-z)])\. (?=[A-Z])")  # a semicolon in brackets does not end a clause
_GLYPHS = "●■▲◆✚▼◀▶"  # the characters for charts.SHAPES, in the same order


def render(
    runs: Runs,
    analyses: Sequence[Analysis],
    title: str = "",
    command: str = "",
    reading: str = "",
    filters: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Render analyses as an HTML page.

    The page begins with the headline, the first figure and the first table of the leading report. Then each analysis
    has a line that unfolds to its figures, tables and notes. If this machine cannot draw figures, the page and the
    terminal say why.

    Args:
        runs: the measurements that were analysed.
        analyses: the analyses, as `run_analyzers` returns them.
        title: the title of the page. If it is empty, the title names the families and datasets.
        command: the command line that made the page. It is shown at the end of the page.
        reading: the file name of the reading page in the same folder; empty if there is none.
        filters: the options of the command line that select the measurements, such as `{"sweep": "first"}`. The page
            repeats them in the command that saves its figure.

    Returns:
        The HTML.

    """
    try:
        vega = vega_script()
        no_vega = ""
    except CannotDraw as error:
        vega = ""
        no_vega = f"this page has no figures: {error}"
        print_problem(no_vega)
    lead = leading(analyses)
    return load_template("page.html").render(
        title=title or families_and_datasets(runs.frame),
        **_lead_values(lead),
        sentence=first_sentences(analyses, lead),
        parts=[_analysis_values(analysis, leads=analysis is lead) for analysis in analyses],
        imports=bool(runs.frame["without_ranks"].fillna(False).any()),
        measured=_count_measurements(runs),
        measurements=_plain_table(_measurement_texts(runs.frame)),
        measurements_link=_make_link("measurements.csv", table_text(runs.frame, "csv")),
        notes=_collect_notes(analyses),
        versions=_plain_table(_version_texts(runs.frame)),
        command=command,
        reading=reading,
        lead=lead.name if lead else "",
        filters=" ".join(f"--{name} {shlex.quote(value)}" for name, value in filters.items()),
        colours=charts.COLOURS,
        glyphs=_GLYPHS,
        config=charts.theme(),
        vega=vega,
        no_vega=no_vega,
    )


def render_with_texts(
    runs: Runs, analyses: Sequence[Analysis], *, command: str, reading: str = READING_FILE, **options: Any
) -> tuple[str, str, str]:
    """Render analyses as an HTML page, and the reading page that it links to.

    Args:
        runs: the measurements that were analysed.
        analyses: the analyses, as `run_analyzers` returns them.
        command: the command line that made the pages.
        reading: the address of the reading page, relative to the page.
        **options: further arguments of `render`.

    Returns:
        The page, the reading page, and an empty text. If the measurements keep no texts, the page has no link, the
        reading page is empty, and the last text says why.

    """
    reading_page, problem = "", ""
    try:
        reading_page = render_reading(runs, command=command)[0]
    except RbptrackError as error:
        problem = f"no reading page: {error}"
    page = render(runs, analyses, command=command, reading=reading if reading_page else "", **options)
    return page, reading_page, problem


def _lead_values(lead: Analysis | None) -> dict[str, Any]:
    """Return the template's values for the leading report: its first figure and its first table."""
    report = lead.report if lead and lead.report else Report({})
    figures = [_figure(report.term(name).title, chart) for name, chart in list(report.figures.items())[:1]]
    explorer = figures[0] if figures else None
    controls = explorer.controls if explorer else None
    laws = _laws_by_k(report, controls["ks"]) if controls else None
    table = None
    if controls and laws:
        rows = laws.rows[f"rbp{controls['ks'][controls['chosen']]}"]
        table = Table(laws.columns, rows, [{"family": row[0], "dataset": row[1]} for row in rows])
    elif lead and lead.results_tables:
        table = _table(lead.results_tables[0].without_asides().without_beside())
    return {
        "explorer": explorer,
        "table": table,
        "sentence_k": controls["ks"][controls["chosen"]] if controls else 0,
        "rows_by_k": compress_text(json.dumps(laws.rows, ensure_ascii=False)) if laws else "",
    }


class _Laws(NamedTuple):
    """The page's table of laws for each k of the slider.

    Attributes:
        columns: the columns of the table.
        rows: the rows as texts, by metric and k (`rbp10`, `ce0`). Under each key the rows have the same families and
            datasets in the same order. A row has no other texts if there is no law.

    """

    columns: list[Column]
    rows: dict[str, list[list[str]]]


def _laws_by_k(report: Report, ks: Sequence[int]) -> _Laws | None:
    """Return the columns that lead a report, for CE and for each k of the slider. Returns None if no columns lead."""
    laws = report.tables.get("laws", pd.DataFrame())
    leading_columns = report.leading_columns if {"family", "dataset", "metric", "k"} <= set(laws) else ()
    texts = {name: _column_texts(report, laws, name) for name in leading_columns if name in laws}
    texts = {name: column for name, column in texts.items() if any(column)}
    if not texts:
        return None
    keys = laws["metric"] + laws["k"].astype(str)
    cases = list(zip(laws["family"], laws["dataset"], strict=True))
    row_of_law = dict(zip(zip(keys, cases, strict=True), zip(*texts.values(), strict=True), strict=True))
    empty = [""] * len(texts)
    rows = {}
    for key in ["ce0", *(f"rbp{k}" for k in ks)]:
        rows[key] = [[*case, *row_of_law.get((key, case), empty)] for case in dict.fromkeys(cases)]
    keys_and_columns = ["family", "dataset", *texts]
    return _Laws([_law_column(report.term(name), name, laws[name]) for name in keys_and_columns], rows)


def _column_texts(report: Report, laws: pd.DataFrame, name: str) -> list[str]:
    """Return a column of the table of laws as texts, with intervals if the table has them."""
    term = report.term(name)
    if f"{name}_low" in laws and not term.aside:
        estimates = zip(laws[name], laws[f"{name}_low"], laws[f"{name}_high"], strict=True)
        return [estimate_text(*estimate, term.form) for estimate in estimates]
    return [value_text(value, term) for value in laws[name].tolist()]


def _law_column(term: Term, name: str, values: pd.Series[Any]) -> Column:
    kind = "key" if name in ("family", "dataset") else "word"
    if values.dtype.kind in "iuf":
        kind = "number spare" if term.aside else "number"
    return Column(term.title, term.meaning, "doubt" if name == "doubt" else kind)


def _analysis_values(analysis: Analysis, *, leads: bool) -> dict[str, Any]:
    """Return the template's values for the line of an analysis and for the details that unfold below it.

    Args:
        analysis: the analysis. If it has no results, its line says why, and it has no details.
        leads: whether the page begins with the sentence and the first figure of this analysis. The details then leave
            out both.

    """
    report = analysis.report or Report({})
    sentence = analysis.sentence
    first_clause = _CLAUSE_END.split(sentence)[0]
    charts_by_name = list(report.figures.items())[1 if leads else 0 :]
    links = [_make_link(f"{analysis.name}-{name}.csv", csv) for name, csv in analysis.tables_csv.items()]
    if report.questions:
        links.insert(0, _make_link(f"{analysis.name}.csv", analysis.results_csv))
    is_without_results = analysis.report is not None and not analysis.has_results
    return {
        "name": analysis.name.replace("_", " "),
        "line": first_clause if first_clause.endswith((".", "?")) else f"{first_clause}.",
        "sentence": "" if leads or (first_clause == sentence and len(sentence) <= _MAX_LINE) else sentence,
        "figures": [_figure(report.term(name).title, chart) for name, chart in charts_by_name],
        "tables": [_table(table, max_rows=_MAX_ROWS) for table in analysis.results_tables],
        "glossaries": _glossaries(report, analysis.results_tables),
        "notes": report.notes,
        "links": links,
        "without": sentence if is_without_results else "",
    }


def _glossaries(report: Report, tables: Sequence[ResultsTable]) -> list[list[tuple[str, str]]]:
    """Return the titles and meanings of the columns that each table is the first to show.

    Two tables may have different columns with one title. Each meaning then stands below its own table.
    """
    explained = {*KEYS}
    glossaries = []
    for table in tables:
        entries = []
        for title in table.titles:
            name = table.names[title]
            term = report.term(name)
            if name not in explained and term.meaning:
                entries.append((term.title, term.meaning))
            explained.add(name)
        glossaries.append(entries)
    return glossaries


class Figure(NamedTuple):
    """A chart of the page.

    Attributes:
        name: the caption.
        spec: the chart in Vega-Lite, encoded by `compress_text`; empty if the chart cannot be drawn.
        problem: the reason why the chart cannot be drawn; empty if it can be drawn.
        controls: the values of the controls above the explorer; None for other charts.

    """

    name: str
    spec: str = ""
    problem: str = ""
    controls: dict[str, Any] | None = None


def _figure(name: str, chart: Any) -> Figure:
    try:
        spec = chart.to_dict(validate=False)  # validation takes two thirds of the time, and the browser reports errors
    except Exception as error:  # a plugin's chart may break any rule of Vega-Lite
        return Figure(name, problem=f"this figure cannot be drawn: {type(error).__name__}: {first_line(error)}")
    spec.pop("config", None)  # the page has one configuration for all figures
    finite = plain_json(spec)
    text = json.dumps(finite, ensure_ascii=False, separators=(",", ":"))
    usermeta = finite.get("usermeta")
    controls = usermeta.get("explorer") if isinstance(usermeta, dict) else None
    is_explorer = isinstance(controls, dict) and {"ks", "chosen", "metrics", "families", "datasets"} <= controls.keys()
    return Figure(name, compress_text(text), controls=controls if is_explorer else None)


class Column(NamedTuple):
    """A column of a table on the page.

    Attributes:
        title: the title of the column.
        meaning: one line that the page shows if the pointer is on the title.
        kind: the CSS classes of the column: `key` (family or dataset), `word`, `number`, `number spare` (left out on
            paper) or `doubt`.

    """

    title: str
    meaning: str
    kind: str


class Table(NamedTuple):
    """A table on the page.

    Attributes:
        columns: the columns.
        rows: the texts of the cells in each row.
        keys: the family and dataset of each row; empty dicts if the table has neither column.
        more: the number of rows that the page leaves out.

    """

    columns: list[Column]
    rows: list[list[str]]
    keys: list[dict[str, str]]
    more: int = 0


def _table(table: ResultsTable, *, max_rows: int | None = None) -> Table:
    """Convert a table of results for the page. If `max_rows` is None, the page shows all rows."""
    columns = []
    for title in table.titles:
        name = table.names[title]
        kind = "number" if is_column_of_numbers(table.frame[title]) else "word"
        kind = "key" if name in ("family", "dataset") else kind
        columns.append(Column(title, table.report.term(name).meaning, kind))
    titles = [column.title for column in columns if column.kind == "key"]
    frame = table.frame.head(max_rows or len(table.frame))
    keys = [{table.names[title]: row[title] for title in titles} for row in frame.to_dict("records")]
    return Table(columns, frame.to_numpy().tolist(), keys, more=len(table.frame) - len(frame))


def _plain_table(frame: pd.DataFrame) -> Table:
    """Convert a table of texts for the page."""
    columns = [Column(str(name), "", "number" if is_column_of_numbers(frame[name]) else "word") for name in frame]
    return Table(columns, frame.to_numpy().tolist(), keys=[{}] * len(frame))


def _count_measurements(runs: Runs) -> str:
    """Return the numbers of measurements, models, datasets and scored tokens as a text for the page."""
    frame = runs.frame
    tokens = frame["num_tokens"].sum()  # 0 if all measurements were imported without a number of tokens
    models = frame["model"].nunique()
    datasets = counted(frame["dataset"].nunique(), "dataset")
    scored = f"; {compact(float(tokens))} scored tokens" if tokens else ""
    return f"{len(frame):,}, of {counted(models, 'model')} on {datasets}{scored}"


def _measurement_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the page's table of measurements as texts, one row for each measurement. Empty columns are left out."""
    count = "{:,}".format
    decimal = "{:.4f}".format
    column_and_format_by_title: dict[str, tuple[str, Callable[[Any], str]]] = {
        "measurement": ("name", str),
        "S": ("non_embedding_params", compact),
        "tokens": ("num_tokens", count),
        "documents": ("documents", count),
        "CE": ("ce", decimal),
        **{f"RBP_{k}": (rbp_name(k), decimal) for k in HEADLINE_KS},
        "dtype": ("dtype", str),
        "fingerprint": ("fingerprint", lambda text: str(text)[:8]),
    }
    ordered = frame.sort_values(["family", "dataset", "non_embedding_params"])
    texts = {}
    for title, (name, form) in column_and_format_by_title.items():
        if name in ordered and ordered[name].notna().any():
            texts[title] = ["" if pd.isna(value) else form(value) for value in ordered[name]]
    if "documents" in texts:
        texts["documents"] = [
            text + (f" ({groups:,} distinct)" if text and pd.notna(groups) and not group else "")
            for text, groups, group in zip(
                texts["documents"], ordered["groups"], ordered["group"].fillna(""), strict=True
            )
        ]
    return pd.DataFrame(texts, dtype="string")


def _version_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the page's table of the versions of programs and the commits of models and datasets."""
    rows = [("rbptrack", rbptrack.__version__), ("Python", platform.python_version())]
    rows += [("measured with", text) for text in sorted(frame["software"].dropna().unique())]
    by_size = frame.sort_values("non_embedding_params", kind="stable")
    for columns in (["model", "repo", "commit"], ["dataset", "dataset_repo", "dataset_commit"]):
        sources = by_size[columns].fillna("").drop_duplicates()
        for name, repo, commit in sources.astype(str).to_numpy():
            rows.append((name, f"{repo} {short_hash(commit)}".strip()))
    return pd.DataFrame([row for row in rows if row[1]], columns=["name", "version or commit"], dtype="string")


def _collect_notes(analyses: Sequence[Analysis]) -> list[str]:
    """Return the notes of the analyses that have results, each with the names of its analyzers."""
    lines = []
    analyzers_by_note: dict[str, list[str]] = {}
    for analysis in analyses:
        if analysis.report is not None and analysis.has_results:
            for note in analysis.report.notes:
                analyzers_by_note.setdefault(note, []).append(analysis.name)
    for note, names in analyzers_by_note.items():
        source = listed(names) if len(names) < 4 else f"{len(names)} analyzers"
        lines.append(f"{source}: {note}")
    return lines


class _Link(NamedTuple):
    """A link that saves a table as a file.

    Attributes:
        name: the name of the file.
        url: a data: URL that contains the file; empty if the file is too large for the page.

    """

    name: str
    url: str


def _make_link(name: str, csv: str) -> _Link:
    """Make a link that saves a CSV. A large CSV is compressed, and its file name then ends in `.gz`."""
    content = csv.encode()
    if len(content) <= _MAX_PLAIN_CSV:
        return _Link(name, "data:text/csv;charset=utf-8," + quote(content, safe=",;:/()+-._~=|@!*?'"))
    url = "data:application/gzip;base64," + compress_text(csv)
    return _Link(f"{name}.gz", url if len(url) <= _MAX_LINK else "")
