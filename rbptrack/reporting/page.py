"""Reports as one self-contained HTML page: the results first, and all else folded below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
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
from rbptrack.reporting.files import InlineFigure
from rbptrack.reporting.first_page import FirstPage, first_page
from rbptrack.reporting.overview import measured_in_words, notes_on_embedded, title_in_words
from rbptrack.reporting.page_figures import ShownFigure, show, show_together, within
from rbptrack.reporting.page_tables import ShownTable, shown_table, spaced
from rbptrack.reporting.svg import Pieces
from rbptrack.reporting.typeset import typeset, unmarked

_MOST_SENTENCES = 8  # of a section before they fold, below its figures
_MOST_FOLDED = 12  # before they are cut to the first few: all are in a file
_FIRST_SENTENCES = 3
_MOST_RUNS = 14  # of the tables of measurements
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
    files: str | None = "{analyzer}/{folder}",
    live: bool = True,
) -> str:
    """Return the page: measurements and results, every section folded, and the identities of all.

    Args:
        scope: which measurements these are: a sweep, say.
        runs: what the sections were made from.
        sections: in the order of the page.
        facts: name and value of what else the reader should know: the command, the store.
        silent: name and reason of analyzers that had nothing to say.
        run_page: the address of a run's page in MLflow, `{}` for the run's ID; empty where no server is known.
        files: the folder, `tables` or `figures`, of an analyzer's files, as the page links it; None: files are named
            only, and every sentence stands on the page.
        live: whether a script lets readers choose what the first figure shows, and sort its table.

    """
    shown = [c for c in default_columns(runs.frame.columns) if c != "run_id"]
    shown = [c for name in shown for c in (name, f"{name}_se") if c in runs.frame.columns]
    identity = ["model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context"]
    identity += ["documents_hash", "software", "fingerprint", "run_id"]
    remarks = [note for s in sections for note in s.report.notes if isinstance(note, Remark)]
    links = [run_page.replace("{}", run_id) for run_id in runs.frame["run_id"]] if run_page else []
    shared = Pieces()
    overview = _overview(sections, shared, files)
    shown_sections = [_section(section, shared, files) for section in sections]
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
        overview=overview,
        parts=shared,
        styles=_beside("page.css"),
        script=_beside("page.js") if live else "",
        remarks=list(dict.fromkeys(remarks)),
        runs=counted(len(runs), "measurement"),
        measurements=shown_table("measurements", Table(runs.frame[shown]), most=_MOST_RUNS, links=links),
        identity=shown_table("identity", Table(runs.frame[identity]), most=_MOST_RUNS),
        silent=silent,
        sections=shown_sections,
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
def _beside(name: str) -> Markup:
    """Return the text of a file of this folder."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))  # noqa: S704 - ours


@cache
def _template() -> jinja2.Template:
    text = _beside("page.html")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"typeset": typeset, "unmarked": unmarked}
    return environment.from_string(text)


def _section(section: Section, shared: Pieces, files: str | None) -> dict[str, object]:
    """Return what the template shows of a section."""
    report = section.report
    headline = _headline(section)
    notes = [note for note in report.notes if not isinstance(note, Remark) and _sentence(note) != headline]
    first = report.summary or next(iter(report.tables), "")
    opens = first and first not in report.overview
    figures, linked = within((name, figure) for name, figure in section.figures.items() if name not in report.overview)
    return {
        "name": section.name,
        "title": spaced(section.name),
        "about": section.about,
        "headline": headline,
        "options": section.options,
        "notes": notes if len(notes) <= _MOST_FOLDED or files is None else notes[:_FIRST_SENTENCES],
        "count": len(notes),
        "every": _address(section, "tables", "notes.txt", files),
        "folds": len(notes) > _MOST_SENTENCES,
        "summary": shown_table(first, report.tables[first], csv=_csv(section, first, files)) if opens else None,
        "figures": [show(figure, shared) for figure in figures],
        "linked": [(spaced(name), _address(section, "figures", f"{file_name(name)}.svg", files)) for name in linked],
        "tables": [
            (spaced(name), counted(len(table.frame), "row"), _csv(section, name, files))
            for name, table in report.tables.items()
            if name != first and name not in report.overview
        ],
    }


def _csv(section: Section, name: str, files: str | None) -> str:
    """Return the address of a table's file from the page."""
    return _address(section, "tables", f"{file_name(name)}.csv", files)


def _address(section: Section, folder: str, name: str, files: str | None) -> str:
    """Return the address of a file from the page; empty if the page knows none."""
    return "" if files is None else f"{files.format(analyzer=section.name, folder=folder)}/{name}"


def _headline(section: Section) -> str:
    """Return an analyzer's result in one sentence; its first note if it has no headline."""
    own = (note for note in section.report.notes if not isinstance(note, Remark))
    return _sentence(section.report.headline or next(own, section.about))


def _sentence(text: str) -> str:
    return upper_first(text.rstrip(".") + ".")


def _overview(sections: Sequence[Section], shared: Pieces, files: str | None) -> list[ShownFigure | ShownTable]:
    """Return what stands above every section: figures, then tables."""
    named = [(section, name) for section in sections for name in section.report.overview]
    figures = [section.figures[name] for section, name in named if name in section.figures]
    tables = [
        shown_table(name, section.report.tables[name], csv=_csv(section, name, files))
        for section, name in named
        if name not in section.figures
    ]
    return [*show_together(figures, shared), *tables]
