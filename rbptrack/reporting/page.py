"""Reports as one self-contained HTML page: sentences, figures (inline SVG) and tables; readable without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from platform import python_version
from typing import NamedTuple

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from rbptrack.analysis.contract import Report, Runs
from rbptrack.ranks import parse_rbp_name
from rbptrack.version import __version__

_LONG = 20  # rows from which a table is folded
_SOFTWARE = ("numpy", "scipy", "pandas", "lmfit", "matplotlib", "mlflow")


class InlineFigure(NamedTuple):
    """A figure as SVG text, and the sentence below it."""

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
        figures: its drawings as SVG text, each with its caption, by name.

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
    title: str,
    runs: Runs,
    sections: Sequence[Section],
    *,
    facts: Sequence[tuple[str, str]] = (),
    silent: Sequence[tuple[str, str]] = (),
) -> str:
    """The page: what was measured, every section, and what identifies it all.

    Args:
        title: of the page.
        runs: what the sections were made from.
        sections: in the order of the page.
        facts: name and value of what else the reader should know: the command, the store.
        silent: name and reason of analyzers that had nothing to say.

    """
    shown = ["model", "dataset", "non_embedding_params", "num_documents", "num_tokens", "ce", "ce_se"]
    shown += [c for c in runs.frame.columns if parse_rbp_name(c) is not None]
    identity = ["model", "dataset", "revision", "commit", "dtype", "sequence", "seq_len", "context"]
    identity += ["documents_hash", "software", "fingerprint", "run_id"]
    said = Counter(note for s in sections for note in dict.fromkeys(s.report.notes))
    common = [note for note, times in said.items() if times > 1]  # of the measurements, not of one analyzer
    return _template().render(
        title=title,
        version=__version__,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        facts=[*facts, ("analysed with", software())],
        common=common,
        measured=_html_table(runs.frame[shown]),
        identity=_html_table(runs.frame[identity]),
        silent=silent,
        sections=[
            {
                "name": s.name,
                "about": s.about,
                "options": s.options,
                "headline": _sentence(s.report.headline),
                "notes": [note for note in s.report.notes if note not in common],
                "figures": [
                    (_title(name), Markup(figure.svg), figure.caption)  # noqa: S704 - matplotlib escapes
                    for name, figure in s.figures.items()
                ],
                "tables": [
                    (_title(name), _html_table(table.frame), table.caption, table.columns)
                    for name, table in s.report.tables.items()
                ],
            }
            for s in sections
        ],
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
    return jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)


@dataclass(frozen=True)
class _Table:
    html: Markup
    rows: int
    long: bool


def _html_table(frame: pd.DataFrame) -> _Table:
    html = frame.to_html(index=False, border=0, na_rep="", float_format=lambda v: f"{v:.4g}", escape=True)
    return _Table(Markup(html), len(frame), len(frame) > _LONG)  # noqa: S704 - pandas has escaped the cells


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")


def _title(name: str) -> str:
    return name.replace("_", " ")
