"""A report's files: its tables, and its figures drawn once each, in another process where there is one to spare."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.contract import Report
from rbptrack.analysis.display import as_csv
from rbptrack.analysis.figures import draw as draw_files
from rbptrack.base.names import file_name
from rbptrack.reporting.inline_svg import inline_svg

Draw = Callable[[Figure, Path, str], Future[str] | None]


class ReportFiles:
    """A report's files under a folder: its tables and what their columns mean at once, figures by `inline_svgs`.

    Args:
        report: what to write.
        folder: where to.
        prefix: begins the names inside its drawings; a page gives each report another.
        draw: queues a figure to be drawn elsewhere (`Workers.draw`); by default all are drawn here.

    """

    def __init__(self, report: Report, folder: Path, *, prefix: str = "f", draw: Draw | None = None) -> None:
        for sub in ("tables", "figures"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        for name, table in report.tables.items():
            (folder / "tables" / f"{file_name(name)}.csv").write_text(as_csv(table.frame), encoding="utf-8")
        meanings = [(name, *pair) for name, table in report.tables.items() for pair in table.columns.items()]
        if meanings:
            said = pd.DataFrame(meanings, columns=["table", "column", "meaning"])
            (folder / "columns.csv").write_text(as_csv(said), encoding="utf-8")
        self._figures = {name: drawing.figure for name, drawing in report.drawings.items()}
        self._paths = {name: folder / "figures" / file_name(name) for name in self._figures}
        self._prefixes = {name: f"{prefix}_{number}" for number, name in enumerate(self._figures)}
        self._sent: dict[str, Future[str]] = {}
        for name, figure in self._figures.items():
            if draw and (sent := draw(figure, self._paths[name], self._prefixes[name])) is not None:
                self._sent[name] = sent

    def ready(self) -> bool:
        """Whether `inline_svgs` would return at once."""
        return all(future.done() for future in self._sent.values())

    def inline_svgs(self) -> dict[str, str]:
        """Every figure as SVG for the inside of a page, by name; draws here what has not been begun elsewhere."""
        found = {}
        for name, path in self._paths.items():
            sent = self._sent.get(name)
            if sent is None or sent.cancel() or sent.exception() is not None:  # a plugin's own class, say, fails there
                found[name] = drawn(self._figures[name], path, self._prefixes[name])
        return {name: found.get(name) or self._sent[name].result() for name in self._paths}


def drawn(figure: Figure, path: Path, prefix: str) -> str:
    """Draw a figure into path.png, .svg and .pdf; returns its SVG for the inside of a page."""
    draw_files(figure, path)
    text = Path(f"{path}.svg").read_text(encoding="utf-8")
    return inline_svg(text[text.index("<svg") :], prefix)
