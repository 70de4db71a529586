"""A figure as pages for a paper: one panel per page, as wide as a column, letters of 8 points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.text import Text

WIDTH = 3.3  # inches: a column of a two-column page
_HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 2.0, 0.62, 0.08, 0.42, 0.24  # inches: of the plot, and around it
_LETTERS, _LEGEND_LETTERS = 8.5, 8.0  # points
_LEGEND_LINE = 0.155  # inches


def draw_pages(figure: Figure, path: Path) -> None:
    """Write each panel of a figure as a page of a PDF; the figure cannot be used afterwards.

    A panel's title on its page is its label (`Axes.set_label`) where it has one, else its title. Legends stand below.
    """
    panels = [ax for ax in figure.axes if ax.get_visible()]
    legend = [
        pair
        for legend_box in figure.legends
        for pair in zip(legend_box.legend_handles, _texts(legend_box), strict=True)
    ]
    figure.legends.clear()
    figure.texts.clear()
    for text in figure.findobj(Text):
        text.set_fontsize(_LETTERS)
    with mpl.rc_context({"pdf.fonttype": 42}), PdfPages(path, metadata={"CreationDate": None}) as pages:
        for ax in panels:
            figure.delaxes(ax)
        for ax in panels:
            figure.add_axes(ax)
            _alone(figure, ax, legend, alone=len(panels) == 1)
            pages.savefig(figure)
            figure.delaxes(ax)


def _alone(figure: Figure, ax: Any, legend: list[tuple[Any, str]], *, alone: bool) -> None:
    """Lay a panel out on its own: its title, all of its labels, and its legend below."""
    own = ax.get_legend()
    title = own.get_title().get_text() if own else ""
    if own:
        own.remove()
    entries = {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    if not entries and alone:
        entries = {text: handle for handle, text in legend}
    columns = 2 if max(map(len, entries), default=0) < 28 else 1
    lines = -(-len(entries) // columns) + sum(text.count("\n") for text in entries) + bool(title)
    below = lines * _LEGEND_LINE + 0.08 * bool(lines)
    down = _HEIGHT + _BOTTOM + _TOP + below
    figure.set_size_inches(WIDTH, down)
    ax.set_position([_LEFT / WIDTH, (_BOTTOM + below) / down, 1 - (_LEFT + _RIGHT) / WIDTH, _HEIGHT / down])
    ax.set_title(ax.get_label() or ax.get_title(), fontsize=_LETTERS, y=1.0)
    for axis, labels in ((ax.xaxis, "labelbottom"), (ax.yaxis, "labelleft")):
        axis.label.set_visible(True)
        ax.tick_params(**{labels: True, "labelsize": _LEGEND_LETTERS})
    for legend_box in figure.legends[:]:
        legend_box.remove()
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="lower center",
            ncols=columns,
            fontsize=_LEGEND_LETTERS,
            title=title or None,
            title_fontsize=_LEGEND_LETTERS,
            labelspacing=0.25,
            borderaxespad=0.1,
            frameon=False,
        )


def _texts(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]
