"""Figures of differences between two sides: model by model, and of exponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.figures import colour_and_marker, error_bars, legend_of_all, panel_per, style
from rbptrack.base.words import short_number
from rbptrack.stats.intervals import Interval

_LEGEND = 1.7  # inches


@dataclass(frozen=True)
class Gap:
    """A difference of exponents: of the two sides named, on the panel's text; `margin` counts as the same."""

    panel: str
    label: str
    difference: Interval
    margin: float


def draw_differences(table: pd.DataFrame, ylabel: str) -> Figure:
    """A panel per text (column `on`): each side B against the first A, over S, with intervals."""
    with style():
        names = list(dict.fromkeys(table["on"]))
        labels: dict[str, int] = {}
        figure, axes = panel_per(names, legend=_LEGEND)
        for ax, name in zip(axes, names, strict=True):
            rows = table[table["on"] == name]
            first = rows["A"].iloc[0]
            for b, group in rows[rows["A"] == first].groupby("B", sort=False):
                label = f"{first} − {b}"
                number = labels.setdefault(label, len(labels))
                colour, marker = colour_and_marker(number)
                points = group.sort_values("S_A")
                x = points["S_A"] * 1.04**number  # so that bars do not hide each other
                cells = (points["difference"], points["low"], points["high"])
                error_bars(ax, x, *cells, capsize=0, fmt=marker, ms=4.5, lw=1, color=colour, label=label)
            ax.margins(y=0.1)
            ax.axhline(0, lw=0.9, color="#57606a")
            ax.set(xscale="log", xlabel="S, non-embedding parameters", ylabel=ylabel)
            ax.xaxis.set_major_formatter(short_number)
            ax.yaxis.set_major_formatter("{x:g}")
        legend_of_all(figure, legend=_LEGEND)
        return figure


def draw_gaps(gaps: Sequence[Gap]) -> Figure:
    """A row per difference of exponents, a panel per text; grey: what counts as the same."""
    titles, labels = (list(dict.fromkeys(getattr(gap, name) for gap in gaps)) for name in ("panel", "label"))
    with style():
        figure, axes = panel_per(titles, height=max(2.2, 0.28 * len(labels) + 1.2), legend=_LEGEND)
        for ax, title in zip(axes, titles, strict=True):
            for gap in (gap for gap in gaps if gap.panel == title):
                at = labels.index(gap.label)
                colour, marker = colour_and_marker(at)
                ax.barh(at, 2 * gap.margin, left=-gap.margin, height=0.8, color="#d9d9d9", lw=0)
                value, low, high = gap.difference.value, gap.difference.low, gap.difference.high
                bars = [[max(value - low, 0)], [max(high - value, 0)]]
                ax.errorbar(value, at, xerr=bars, fmt=marker, ms=4.5, color=colour, label=gap.label)
            ax.use_sticky_edges = False  # so that the grey bars' ends are seen
            ax.axvline(0, lw=0.9, color="#57606a")
            ax.set(xlabel="difference of exponents", ylabel="pair", yticks=[], ylim=(len(labels) - 0.4, -0.6))
        legend_of_all(figure, legend=_LEGEND)
        return figure
