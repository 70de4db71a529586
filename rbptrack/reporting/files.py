"""A report as files of a folder, as which it is kept, passed on by other processes, and found again.

tables/*.csv and columns.csv are for people's own analyses, tables/notes.txt has every sentence, figures/* are for
papers and slides; report.json is the whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rbptrack.analysis.contract import Report, Table
from rbptrack.analysis.display import as_csv
from rbptrack.analysis.findings import Remark
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.base.errors import RbptrackError
from rbptrack.base.names import file_name
from rbptrack.console.tables import plain
from rbptrack.reporting.svg import inline

_WHOLE = "report.json"
_FORMAT = 2  # of that file


class UnknownFormat(RbptrackError):
    """A stored report cannot be read by this version."""


class InlineFigure(NamedTuple):
    """A figure as SVG for the inside of a page, and the sentences below it."""

    svg: str
    caption: str


def write_report(report: Report, folder: Path, formats: Sequence[str] = ()) -> None:
    """Write a report and draw its figures, which cannot be used afterwards.

    Args:
        report: what to write.
        folder: where to.
        formats: of the figures, beside SVG: `png`, `pdf`. Those at the top of the page are drawn as PNG in any case,
            which is what MLflow's page of the run shows.

    """
    for sub in ("tables", "figures"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for name, table in report.tables.items():
        (folder / "tables" / f"{file_name(name)}.csv").write_text(as_csv(table.frame), encoding="utf-8")
    (folder / "tables" / "notes.txt").write_text("\n".join([*report.notes, ""]), encoding="utf-8")
    meanings = [(name, *pair) for name, table in report.tables.items() for pair in table.columns.items()]
    if meanings:
        described = pd.DataFrame(meanings, columns=["table", "column", "meaning"])
        (folder / "columns.csv").write_text(as_csv(described), encoding="utf-8")
    for name, drawing in report.drawings.items():
        from rbptrack.analysis.figures import draw  # matplotlib: not for those who find a report again

        draw(drawing.figure, _figure(folder, name), [*formats, *(["png"] if name in report.overview else [])])
        drawn = Path(f"{_figure(folder, name)}.svg")
        drawn.write_text(inline(drawn.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / _WHOLE).write_text(json.dumps(_as_json(report)), encoding="utf-8")


class StoredReport(NamedTuple):
    """A report as it lies in a folder; reading it imports no plugin.

    Attributes:
        report: without drawings and findings, whose sentences are in its notes.
        figures: its drawings for the inside of a page, by name.
        findings: its findings, each as column -> value.

    """

    report: Report
    figures: dict[str, InlineFigure]
    findings: list[dict[str, Any]]


def read_report(folder: Path) -> StoredReport:
    """Read what `write_report` wrote.

    Raises:
        UnknownFormat: another version of rbptrack wrote it in another way.

    """
    whole = json.loads((folder / _WHOLE).read_text(encoding="utf-8"))
    if whole.pop("format", 1) != _FORMAT:
        raise UnknownFormat(f"{folder / _WHOLE} was written by another version of rbptrack")
    tables = {
        name: Table(**table | {"frame": pd.DataFrame({c: pd.Series(**column) for c, column in table["frame"].items()})})
        for name, table in whole.pop("tables").items()
    }
    notes = [Remark(note[0], note[1], **note[2]) if isinstance(note, list) else note for note in whole.pop("notes")]
    findings = whole.pop("findings")
    leads = [Lead(**lead | {"cells": [Cell(**cell) for cell in lead["cells"]]}) for lead in whole.pop("leads")]
    captions = whole.pop("captions").items()
    drawn = {name: Path(f"{_figure(folder, name)}.svg").read_text(encoding="utf-8") for name, _ in captions}
    figures = {name: InlineFigure(drawn[name], caption) for name, caption in captions}
    return StoredReport(Report(tables=tables, notes=notes, leads=leads, **whole), figures, findings)


def _figure(folder: Path, name: str) -> Path:
    return folder / "figures" / file_name(name)


def _as_json(report: Report) -> dict[str, Any]:
    tables = {
        name: {
            "frame": {column: _column(table.frame[column]) for column in table.frame.columns},
            "columns": dict(table.columns),
            "caption": table.caption,
            "titles": dict(table.titles),
            "forms": dict(table.forms),
        }
        for name, table in report.tables.items()
    }
    return {
        "format": _FORMAT,
        "tables": tables,
        "captions": {name: drawing.caption for name, drawing in report.drawings.items()},
        "metrics": {name: float(value) for name, value in report.metrics.items()},
        "findings": [plain(asdict(finding)) for finding in report.findings],
        "leads": [plain(asdict(lead)) for lead in report.leads],
        "notes": [
            [str(note), note.reason, plain(note.values)] if isinstance(note, Remark) else note for note in report.notes
        ],
        "summary": report.summary,
        "headline": report.headline,
        "overview": report.overview,
    }


def _column(values: pd.Series) -> dict[str, Any]:
    """Return a column as the arguments of pd.Series; categories and the like become texts."""
    kind = str(values.dtype)
    kept = kind in ("bool", "boolean", "string", "str") or pd.api.types.is_numeric_dtype(values.dtype)
    return {"data": [plain(value) for value in values.tolist()], "dtype": kind if kept else "object"}
