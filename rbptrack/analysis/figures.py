"""One plotting style: every figure as wide as the page, colour-blind safe, readable in grey, axes with units."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.text import Text

from rbptrack.analysis.marks import mark_boxes

# Okabe and Ito's colours, in an order of falling contrast to white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES: Sequence[Any] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
_DOTS, _MOST_DOTS = 160, 65_000  # per inch of a picture, and from edge to edge: matplotlib draws no larger one
_UNSAID: Any = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # nothing of how a drawing was made
WIDTH = 10.0  # inches: every figure fills the page, so that letters have one size on it

_STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titley": 1.0,  # where it would be found at each drawing, in a sixth of the time of drawing
    "figure.dpi": 100,
    "font.sans-serif": ["DejaVu Sans"],  # an SVG names the whole list at every text
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": _DOTS,
    "svg.fonttype": "none",
    "svg.hashsalt": "rbptrack",
}


def gradient(count: int) -> list[Any]:
    """Return colours for something ordered (sizes, window lengths), dark to light: even steps of a colour-blind safe
    map.
    """
    return [mpl.colormaps["viridis"](v) for v in np.linspace(0, 0.88, max(count, 1))]


_LEGEND_ROW = 0.19  # inches
_LEFT, _BETWEEN = 0.8, 0.85  # inches for labels left of a panel, and between two rows of panels


class CellFigure(Figure):
    """A figure that a notebook shows as SVG, no wider than the cell; in all else matplotlib's own."""

    def _repr_html_(self) -> str:
        return svg_for_cell(self)


@contextmanager
def style() -> Iterator[None]:
    """Apply the style to drawings made inside."""
    with mpl.rc_context(_STYLE):
        yield


def draw(figure: Figure, path: Path, formats: Iterable[str] = ()) -> None:
    """Write a figure as path.svg, as wide as a page.

    Args:
        figure: cannot be used afterwards where a PDF is drawn.
        path: without a suffix.
        formats: what else is written: `png`, the same picture; `pdf`, a page per panel for the column of a paper.

    """
    with style():
        _finish(figure)
        lay_out(figure)
        figure.savefig(f"{path}.svg", metadata=_UNSAID)
        if "png" in formats:
            figure.savefig(f"{path}.png", dpi=min(_DOTS, _MOST_DOTS / figure.get_size_inches().max()))
        if "pdf" in formats:
            from rbptrack.analysis.figure_pages import draw_pages  # its backend: not for everyone who draws

            draw_pages(figure, Path(f"{path}.pdf"))


def lay_out(figure: Figure) -> None:
    """Lay a figure out for good, which takes as long as drawing it, and mark its parts with their boxes."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine("none")
    mark_boxes(figure)


def svg(figure: Figure) -> str:
    """Return a figure as SVG text."""
    buffer = StringIO()
    with style():
        lay_out(figure)
        figure.savefig(buffer, format="svg", metadata=_UNSAID)
    return buffer.getvalue()[buffer.getvalue().index("<svg") :]


def svg_for_cell(figure: Figure) -> str:
    """Return a figure as SVG text that shrinks with the cell of a notebook, on white in a dark theme, too."""
    _finish(figure)
    head, end, rest = svg(figure).partition(">")
    width = f"{figure.get_size_inches()[0]:g}in"
    look = f"display:block;width:100%;max-width:{width};height:auto;background:white"
    return re.sub(r' (width|height)="[^"]*"', "", head) + f' style="{look}"{end}{rest}'


def _finish(figure: Figure) -> None:
    """Set `RBP_10` with its number below the line, and fit titles into their panels."""
    for text in _words(figure):
        text.set_text(_typeset(text.get_text()))
    for ax in figure.axes:
        _fit_title(ax)


def _words(figure: Figure) -> list[Text]:
    """Return the texts of a figure without the labels of its ticks, which matplotlib makes while it draws."""
    legends = [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]
    of_axes = [text for ax in figure.axes for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts)]
    own = [text for text in figure.get_children() if isinstance(text, Text)]
    return [*own, *of_axes, *(text for legend in legends for text in (*legend.get_texts(), legend.get_title()))]


def _typeset(text: str) -> str:
    """Return `RBP_10` and `S_50` with the number below the line, as matplotlib sets formulas."""
    return text if "$" in text else re.sub(r"\b(RBP|S)_(\d+)", r"\1$_{\2}$", text)


def _fit_title(ax: Any) -> None:
    """Break a title that would run into its neighbour's, and make its letters smaller where that is not enough."""
    room = ax.get_position().width * ax.figure.get_size_inches()[0] + 0.25  # inches, the gap to the next panel included
    letter = 0.55 * ax.title.get_fontsize() / 72
    if len(ax.get_title()) * letter > room:
        ax.set_title(ax.get_title().replace(" on ", "\non "))
        longest = max(map(len, ax.get_title().splitlines()))
        ax.title.set_fontsize(max(7.0, min(1.0, room / (longest * letter)) * ax.title.get_fontsize()))


def panels(rows: int, columns: int, *, height: float = 3.2, **options: Any) -> tuple[Figure, Any]:
    """Return a figure with a grid of axes, (rows, columns); inches per panel. Not tied to pyplot: nothing to close."""
    figure = CellFigure(figsize=(WIDTH, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def grid(
    rows: int,
    columns: int,
    *,
    width: float = WIDTH,
    height: float = 2.8,
    left: float = _LEFT,
    between: float = _BETWEEN,
    legend: float = 0.0,
    **options: Any,
) -> tuple[Figure, Any]:
    """Make panels as `panels` does, with fixed margins: in half the time that a constrained layout takes.

    Args:
        rows: of panels.
        columns: of panels; more than 5 are too small to read on a page.
        width: of the figure, inches.
        height: of a panel, inches, labels included.
        left: inches for the labels left of a panel.
        between: inches between two rows of panels.
        legend: inches kept free at the right for `legend_of_all`.
        options: of `Figure.subplots`.

    """
    down = height * rows + 0.97 - between
    panel_width = (width - legend) / columns
    figure = CellFigure(figsize=(width, down))
    figure.subplots_adjust(
        left=left / width,
        right=1 - (legend + 0.12) / width,
        bottom=0.5 / down,
        top=1 - 0.32 / down,
        wspace=left / (panel_width - left),
        hspace=between / (height - between),
    )
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def panel_per(names: Sequence[str], *, columns: int = 3, **options: Any) -> tuple[Figure, list[Any]]:
    """Return a figure with one panel per name, titled with it, in rows of at most `columns`; the axes in order."""
    across = min(columns, max(1, len(names)))
    down = max(1, -(-len(names) // across))
    figure, axes = grid(down, across, **{"height": 3.0, **options})
    flat = list(axes.flat)
    for spare in flat[len(names) :]:
        spare.remove()
    for ax, name in zip(flat, names, strict=False):
        ax.set_title(name)
    return figure, flat[: len(names)]


def legend_room(labels: Iterable[str], *, least: float) -> float:
    """Return inches that `grid` must keep free at the right for a legend of these labels, `least` at least."""
    return max(least, 0.55 + 0.066 * max((len(re.sub(r"[$_{}]", "", label)) for label in labels), default=0))


def grow(figure: Figure, *, above: float = 0.0, below: float = 0.0) -> None:
    """Make a figure higher by so many inches; panels and texts keep their sizes and distances."""
    across, down = figure.get_size_inches()
    grown = down + above + below

    def moved(y: float) -> float:
        return float((y * down + below) / grown)

    margins = figure.subplotpars
    figure.set_size_inches(across, grown)
    figure.subplots_adjust(bottom=moved(margins.bottom), top=moved(margins.top))
    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, moved(y)))


def legend_of_all(figure: Figure, *, legend: float) -> None:
    """Draw every label of all panels once, in the `legend` inches that `grid` kept free at the right."""
    handles_by_label: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles_by_label.setdefault(label, handle)
    lacking = _LEGEND_ROW * len(handles_by_label) + 0.4 - figure.get_size_inches()[1]
    if lacking > 0:
        grow(figure, below=lacking)
    across, down = figure.get_size_inches()
    corner = (1 - legend / across, 1 - 0.15 / down)
    figure.legend(
        list(handles_by_label.values()), list(handles_by_label), loc="upper left", bbox_to_anchor=corner, fontsize=8.5
    )


def colour_and_marker(number: int) -> tuple[str, str]:
    """Return colour and marker of the number-th family."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
