"""Reports as one self-contained HTML page: half a page that says what was found, and all else folded below it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from platform import python_version
from typing import NamedTuple

import jinja2
from markupsafe import Markup
from matplotlib.figure import Figure

from rbptrack.analysis import counted
from rbptrack.analysis.contract import Report, Runs, Table
from rbptrack.ranks import parse_rbp_name
from rbptrack.reporting.columns import JOINED, Column, readable
from rbptrack.reporting.overview import measured_in_words, title_in_words
from rbptrack.reporting.typeset import typeset
from rbptrack.version import __version__

_MOST_ROWS = 60  # of a table on the page; all of them are in its CSV file
_MOST_SENTENCES = 8  # of a section before they fold, below its figures
_MOST_OPEN_ROWS = 16  # of a section's summary table before it folds with the other tables
_SOFTWARE = ("numpy", "scipy", "pandas", "lmfit", "matplotlib", "mlflow")


class InlineFigure(NamedTuple):
    """A figure as `inline_svg` makes it, its prefix unlike any other's on the page, and the sentences below it."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One analyzer's part of the page.

    Attributes:
        name: the analyzer.
        about: its docstring's first line.
        options: its options as text.
        report: what it found.
        figures: its drawings, by name.

    """

    name: str
    about: str
    options: str
    report: Report
    figures: Mapping[str, InlineFigure]


def svg(figure: Figure) -> str:
    """A figure as SVG text."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def render(
    scope: str,
    runs: Runs,
    sections: Sequence[Section],
    *,
    facts: Sequence[tuple[str, str]] = (),
    silent: Sequence[tuple[str, str]] = (),
    run_page: str = "",
) -> str:
    """The page: what was measured and found, every section folded, and what identifies it all.

    Args:
        scope: which measurements these are: a sweep, say.
        runs: what the sections were made from.
        sections: in the order of the page.
        facts: name and value of what else the reader should know: the command, the store.
        silent: name and reason of analyzers that had nothing to say.
        run_page: the address of a run's page in MLflow, up to the run's id; empty where no server is known.

    """
    shown = ["model", "dataset", "non_embedding_params", "num_documents", "num_tokens", "ce", "ce_se"]
    shown += [c for c in runs.frame.columns if parse_rbp_name(c) is not None or (c.endswith("_se") and c[:4] == "rbp_")]
    identity = ["model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context"]
    identity += ["documents_hash", "software", "fingerprint", "run_id"]
    said = Counter(note for s in sections for note in dict.fromkeys(s.report.notes))
    common = [note for note, times in said.items() if times > 1]  # of the measurements, not of one analyzer
    links = [f"{run_page}{run_id}" for run_id in runs.frame["run_id"]] if run_page else []
    drawn = _drawn(sections)
    every = len(runs)
    return _template().render(
        title=title_in_words(runs),
        scope=scope,
        version=__version__,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        page=run_page.partition("/runs/")[0],
        facts=[*facts, ("analysed with", software())],
        measured=measured_in_words(runs),
        first=[_headline(s, common) for s in sections if s.report.overview],
        overview=[_overview(s, name, drawn) for s in sections for name in s.report.overview],
        common=common,
        runs=counted(every, "measurement"),
        measurements=_shown("measurements", Table(runs.frame[shown]), most=every, links=links),
        identity=_shown("identity", Table(runs.frame[identity]), most=every),
        silent=silent,
        sections=[_section(s, common, drawn) for s in sections],
    )


def software() -> str:
    """The versions that an analysis depends on, as text."""
    found = [f"rbptrack {__version__}", f"Python {python_version()}"]
    for name in _SOFTWARE:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # a slimmer distribution of it, such as mlflow-skinny
            continue
    return ", ".join(found)


@cache
def _template() -> jinja2.Template:
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["typeset"] = typeset
    return environment.from_string(text)


@dataclass(frozen=True)
class _Shown:
    """A table as the page shows it; `more` says where the other rows are."""

    title: str
    html: Markup
    rows: int
    caption: str = ""
    more: str = ""
    meanings: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Figure:
    svg: Markup
    caption: str


def _drawn(sections: Sequence[Section]) -> dict[tuple[str, str], _Figure]:
    """Every figure of the page, by analyzer and name."""
    return {
        (section.name, name): _Figure(Markup(figure.svg), figure.caption)  # noqa: S704 - escaped
        for section in sections
        for name, figure in section.figures.items()
    }


def _section(section: Section, common: Sequence[str], drawn: Mapping[tuple[str, str], _Figure]) -> dict[str, object]:
    report = section.report
    notes = [note for note in report.notes if note not in common]
    first = report.tables.get(report.summary)
    opens = first is not None and len(first.frame) <= _MOST_OPEN_ROWS and report.summary not in report.overview
    folded = [name for name in report.tables if name not in report.overview and not (opens and name == report.summary)]
    return {
        "name": section.name,
        "title": _spaced(section.name),
        "about": "" if report.overview else section.about,
        # What stands at the top of the page already is not said twice.
        "headline": section.about if report.overview else _headline(section, common),
        "options": section.options,
        "notes": notes,
        "folds": len(notes) > _MOST_SENTENCES,
        "summary": _shown(report.summary, first) if first and opens else None,
        "figures": [drawn[section.name, name] for name in section.figures if name not in report.overview],
        "tables": [_shown(name, report.tables[name]) for name in folded],
    }


def _headline(section: Section, common: Sequence[str]) -> str:
    """What an analyzer found, in one sentence; the first note of its own where it has no headline."""
    said = section.report.headline or next((n for n in section.report.notes if n not in common), section.about)
    return said[:1].upper() + said[1:].rstrip(".") + "."


def _overview(section: Section, name: str, drawn: Mapping[tuple[str, str], _Figure]) -> _Shown | _Figure:
    return drawn.get((section.name, name)) or _shown(name, section.report.tables[name])


def _shown(name: str, table: Table, *, most: int = _MOST_ROWS, links: Sequence[str] = ()) -> _Shown:
    columns, rows = readable(table.frame.head(most), table.titles), len(table.frame)
    meanings = {column: table.columns[column] for column in map(str, table.frame.columns) if column in table.columns}
    more = f"The first {most} of {rows:,} rows; all of them are in tables/{name}.csv." if rows > most else ""
    listed = [(c.title, _meaning(c, meanings)) for c in columns if _meaning(c, meanings)]
    html = _html(columns, meanings, links)
    return _Shown(_spaced(name), html, rows, table.caption, more, listed)


def _meaning(column: Column, meanings: Mapping[str, str]) -> str:
    """What a column means; of an interval, how it was made, if its table says so."""
    said = meanings.get(column.name, "")
    if column.title not in JOINED:
        return said
    return re.sub(r"^(lower end of (a|its) |its standard error)", "", said).removeprefix("interval").strip(" ,()")


def _html(columns: Sequence[Column], meanings: Mapping[str, str], links: Sequence[str]) -> Markup:
    """The table; numbers stand right, and the cells of `model` are links where there are any."""
    kinds = [" class='n i'" if c.title in JOINED else " class=n" if c.number else "" for c in columns]
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


def _cell(text: str, column: Column) -> str:
    return escape(text) if column.number or column.title != "metric" else str(typeset(text))


def _tip(meaning: str) -> str:
    return f' title="{escape(meaning)}"' if meaning else ""


def _spaced(name: str) -> str:
    return name.replace("_", " ")
