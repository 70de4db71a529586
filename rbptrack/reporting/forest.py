"""The first page's numbers as a figure: every family on every dataset with its interval, a panel for each metric."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from rbptrack.analysis.contract import Drawing
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.ranks import metric_label
from rbptrack.stats.intervals import Interval

FOREST = "intervals"
"""The drawing's name in a report."""


def forest(leads: Iterable[Lead]) -> Drawing | None:
    """Draw the cells that open the first page's table; None where they are of one family on one dataset."""
    cells = [cell for lead in leads for cell in lead.cells if cell.opens and isfinite(cell.value)]
    if len({(cell.family, cell.dataset) for cell in cells}) < 2:
        return None
    from rbptrack.analysis.bar_figures import Bar, bar_panels  # matplotlib: not for those who find a report again
    from rbptrack.analysis.marks import mark

    panels = {_panel(cell): cell.metric for cell in cells}
    bars = [
        Bar(_panel(cell), cell.dataset, cell.family, Interval(cell.value, cell.low, cell.high), title=_title(cell))
        for cell in cells
    ]
    figure = bar_panels(bars, xlabel=cells[0].line, ylabel="", columns=3)
    for ax, metric in zip(figure.axes, panels.values(), strict=True):
        mark(ax, metric=metric)
    return Drawing(figure, f"{cells[0].line} of every family on every dataset, with its interval.")


def _panel(cell: Cell) -> str:
    return f"{cell.line} of {metric_label(cell.metric)}"


def _title(cell: Cell) -> str:
    return f"{cell.family} on {cell.dataset}: {_panel(cell)} = {cell.text}"
