"""Reports as one self-contained HTML page: one page that says what was found, and all else folded below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import jinja2
from markupsafe import Markup

from rbptrack.analysis.contract import Report, Table
from rbptrack.analysis.display import default_columns
from rbptrack.analysis.findings import Remark
from rbptrack.analysis.lead import LAST
from rbptrack.analysis.phrases import upper_first
from rbptrack.analysis.resampling import effective_sources, resampled_in_words
from rbptrack.analysis.runs import Runs
from rbptrack.base import __version__
from rbptrack.base.names import file_name
from rbptrack.base.words import counted
from rbptrack.reporting.columns import JOINED, Shown, readable
from rbptrack.reporting.files import InlineFigure
from rbptrack.reporting.first_page import FirstPage, first_page
from rbptrack.reporting.overview import measured_in_words, notes_on_embedded, title_in_words
from rbptrack.reporting.typeset import typeset

_MOST_ROWS = 16  # of a table on the page; all of them are in its CSV file
_MOST_SENTENCES = 8  # of a section before they fold, below its figures
_SOFTWARE = ("numpy", "scipy", "pandas", "lmfit", "matplotlib", "pyarrow", "mlflow")


@dataclass(frozen=True)
class Section:
    """One analyzer's part of the page.

    Attributes:
        name: the analyzer.
        about: its docstring's first line.
        options: its options as text.
        report: what it found.
        figures: its drawings, by name.
        findings: its findings, each as column -> value.

    """

    name: str
    about: str
    options: str
    report: Report
    figures: Mapping[str, InlineFigure]
    findings: Sequence[Mapping[str, Any]] = ()

    @property
    def place(self) -> tuple[int, str]:
        """Where the section stands: in the order of its first lead, then by name."""
        return min((lead.order for lead in self.report.leads), default=LAST), self.name


def render(
    scope: str,
    runs: Runs,
    sections: Sequence[Section],
    *,
    facts: Sequence[tuple[str, str]] = (),
    silent: Sequence[tuple[str, str]] = (),
    run_page: str = "",
    tables: str | None = "{analyzer}/tables",
) -> str:
    """Return the page: what was measured and found, every section folded, and what identifies it all.

    Args:
        scope: which measurements these are: a sweep, say.
        runs: what the sections were made from.
        sections: in the order of the page.
        facts: name and value of what else the reader should know: the command, the store.
        silent: name and reason of analyzers that had nothing to say.
        run_page: the address of a run's page in MLflow, `{}` for the run's ID; empty where no server is known.
        tables: the folder of an analyzer's CSV files, as the page links it; None: they are named only.

    """
    shown = [c for c in default_columns(runs.frame.columns) if c != "run_id"]
    shown = [c for name in shown for c in (name, f"{name}_se") if c in runs.frame.columns]
    identity = ["model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context"]
    identity += ["documents_hash", "software", "fingerprint", "run_id"]
    remarks = [note for s in sections for note in s.report.notes if isinstance(note, Remark)]
    links = [run_page.replace("{}", run_id) for run_id in runs.frame["run_id"]] if run_page else []
    drawn = _drawn(sections)
    every = len(runs)
    lead = first_page_of(sections)
    return _template().render(
        title=title_in_words(runs),
        scope=scope,
        version=__version__,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        page=run_page.replace("/{}", ""),
        facts=[*facts, ("analysed with", software())],
        measured=f"{measured_in_words(runs)} {resampled_in_words(runs.frame, effective_sources(runs))}",
        notes=notes_on_embedded(runs),
        lead=lead,
        first=lead.sentences if lead else [_headline(s) for s in sections if s.report.overview],
        overview=[_overview(s, name, drawn, tables) for s in sections for name in s.report.overview],
        remarks=list(dict.fromkeys(remarks)),
        runs=counted(every, "measurement"),
        measurements=_shown("measurements", Table(runs.frame[shown]), most=every, links=links),
        identity=_shown("identity", Table(runs.frame[identity]), most=every),
        silent=silent,
        sections=[_section(s, drawn, tables) for s in sections],
    )


def first_page_of(sections: Sequence[Section]) -> FirstPage | None:
    """Return the first page of some sections; None where none opens a row of its table."""
    return first_page(lead for section in sections for lead in section.report.leads)


@cache
def software() -> str:
    """Return the versions that an analysis depends on, as text."""
    versions = [f"rbptrack {__version__}", f"Python {python_version()}"]
    for name in _SOFTWARE:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # a slimmer distribution of it, such as mlflow-skinny
            continue
    return ", ".join(versions)


@cache
def _template() -> jinja2.Template:
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["typeset"] = typeset
    return environment.from_string(text)


@dataclass(frozen=True)
class _Shown:
    """A table as the page shows it; `more` says how many rows it does not, `csv` where all of them are."""

    title: str
    html: Markup
    caption: str = ""
    more: str = ""
    csv: str = ""


@dataclass(frozen=True)
class _Figure:
    svg: Markup
    caption: str


def _drawn(sections: Sequence[Section]) -> dict[tuple[str, str], _Figure]:
    """Return every figure of the page, by analyzer and name."""
    return {
        (section.name, name): _Figure(Markup(figure.svg), figure.caption)  # noqa: S704 - escaped
        for section in sections
        for name, figure in section.figures.items()
    }


def _section(section: Section, drawn: Mapping[tuple[str, str], _Figure], tables: str | None) -> dict[str, object]:
    report, headline = section.report, _headline(section)
    notes = [note for note in report.notes if not isinstance(note, Remark)]
    first = report.summary or next(iter(report.tables), "")
    opens = first and first not in report.overview
    return {
        "name": section.name,
        "title": _spaced(section.name),
        "about": section.about,
        "headline": headline,
        "options": section.options,
        "notes": notes,
        "folds": len(notes) > _MOST_SENTENCES,
        "summary": _shown(first, report.tables[first], csv=_csv(section, first, tables)) if opens else None,
        "figures": [drawn[section.name, name] for name in section.figures if name not in report.overview],
        "tables": [
            (_spaced(name), counted(len(table.frame), "row"), _csv(section, name, tables))
            for name, table in report.tables.items()
            if name != first and name not in report.overview
        ],
    }


def _csv(section: Section, name: str, tables: str | None) -> str:
    """Return the address of a table's file from the page; empty if the page does not know it."""
    return "" if tables is None else f"{tables.format(analyzer=section.name)}/{file_name(name)}.csv"


def _headline(section: Section) -> str:
    """Return an analyzer's result in one sentence; its first note if it has no headline."""
    own = (note for note in section.report.notes if not isinstance(note, Remark))
    return upper_first((section.report.headline or next(own, section.about)).rstrip(".") + ".")


def _overview(
    section: Section, name: str, drawn: Mapping[tuple[str, str], _Figure], tables: str | None
) -> _Shown | _Figure:
    figure = drawn.get((section.name, name))
    return figure or _shown(name, section.report.tables[name], csv=_csv(section, name, tables))


def _shown(name: str, table: Table, *, most: int = _MOST_ROWS, links: Sequence[str] = (), csv: str = "") -> _Shown:
    columns, rows = readable(replace(table, frame=table.frame.head(most))), len(table.frame)
    meanings = {column: table.columns[column] for column in map(str, table.frame.columns) if column in table.columns}
    more = f"The first {most} of {rows:,} rows." if rows > most else ""
    return _Shown(_spaced(name), _html(columns, meanings, links), table.caption, more, csv)


def _html(columns: Sequence[Shown], meanings: Mapping[str, str], links: Sequence[str]) -> Markup:
    """Return the table; numbers stand right, and the cells of `model` are links where there are any."""
    numbers = [" class=n" if column.number else "" for column in columns]
    kinds = [" class='n i'" if c.title in JOINED else kind for c, kind in zip(columns, numbers, strict=True)]
    heads = [
        f"<th{kind}{_tip(meanings.get(column.name, ''))}>{typeset(column.title)}</th>"
        for kind, column in zip(kinds, columns, strict=True)
    ]
    cells = [[_cell(text, column) for text in column.cells] for column in columns]
    for column, texts in zip(columns, cells, strict=True):
        if column.name == "model" and links:
            texts[:] = [f'<a href="{escape(to)}">{text}</a>' for to, text in zip(links, texts, strict=True)]
    rows = [
        "<tr>" + "".join(f"<td{kind}>{text}</td>" for kind, text in zip(kinds, row, strict=True)) + "</tr>"
        for row in zip(*cells, strict=True)
    ]
    body = "\n".join(rows)
    return Markup(  # noqa: S704 - every text is escaped above
        f"<div class=scroll tabindex=0><table>\n<thead><tr>{''.join(heads)}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(text: str, column: Shown) -> str:
    return escape(text) if column.number or column.title != "metric" else str(typeset(text))


def _tip(meaning: str) -> str:
    return f' title="{escape(meaning)}"' if meaning else ""


def _spaced(name: str) -> str:
    return name.replace("_", " ")
