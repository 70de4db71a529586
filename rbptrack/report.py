"""Reports as one self-contained HTML page: sentences, figures (inline SVG) and tables; readable without a network."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from rbptrack import __version__
from rbptrack.analyzer import Report, Runs


@dataclass(frozen=True)
class Section:
    """One analyzer's part of the page.

    Attributes:
        name: the analyzer.
        about: the first line of its docstring.
        options: its options as text.
        report: what it found.

    """

    name: str
    about: str
    options: str
    report: Report


def render(title: str, runs: Runs, sections: Sequence[Section], *, facts: Sequence[tuple[str, str]] = ()) -> str:
    """The page: what was measured, then every section."""
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    shown = ["model", "dataset", "non_embedding_params", "num_documents", "num_tokens", "ce", "ce_se"]
    shown += [c for c in runs.frame.columns if c.startswith("rbp_") and not c.endswith("_se")]
    return environment.from_string(template).render(
        title=title,
        version=__version__,
        facts=facts,
        measured=_html_table(runs.frame[shown]),
        fingerprints=_html_table(
            runs.frame[["model", "dataset", "dtype", "sequence", "seq_len", "fingerprint", "run_id"]]
        ),
        sections=[
            {
                "name": s.name,
                "about": s.about,
                "options": s.options,
                "notes": s.report.notes,
                "figures": {name: _svg(figure) for name, figure in s.report.figures.items()},
                "tables": {name: _html_table(frame) for name, frame in s.report.tables.items()},
            }
            for s in sections
        ],
    )


def write(report: Report, folder: Path) -> None:
    """Write a report's files under a folder: tables/*.csv, figures/*.png and *.svg."""
    for sub in ("tables", "figures"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for name, table in report.tables.items():
        table.to_csv(folder / "tables" / f"{name}.csv", index=False)
    for name, figure in report.figures.items():
        figure.savefig(folder / "figures" / f"{name}.png")
        figure.savefig(folder / "figures" / f"{name}.svg", metadata={"Date": None})


def _html_table(frame: pd.DataFrame) -> Markup:
    html = frame.to_html(index=False, border=0, na_rep="", float_format=lambda v: f"{v:.4g}", escape=True)
    return Markup(html)  # noqa: S704 - pandas has escaped the cells


def _svg(figure: Figure) -> Markup:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return Markup(text[text.index("<svg") :])  # noqa: S704 - made by matplotlib, which escapes labels
