"""Figures of bars: intervals of numbers below each other, and strips of verdicts over k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rbptrack.analysis.axes import error_bars
from rbptrack.analysis.family_figures import family_styles, legend_above, say_left_out
from rbptrack.analysis.figures import panel_per, style
from rbptrack.stats.intervals import Interval


@dataclass(frozen=True)
class Bar:
    """A number with its interval: its panel, its row, and its series (mostly a family).

    Attributes:
        panel: its title.
        row: its place, from above.
        series: decides colour and marker; empty: all are alike.
        number: the value and its interval.
        margin: what counts as 0, a grey bar behind it.
        published: a hollow point beside it.
        title: what it says when it is pointed at.

    """

    panel: str
    row: str
    series: str
    number: Interval
    margin: float = 0.0
    published: float = float("nan")
    title: str = ""


def bar_panels(bars: Sequence[Bar], *, xlabel: str, ylabel: str, **options: Any) -> Figure:
    """Return numbers with their intervals below each other: a panel for each title, in it a line for each row.

    Args:
        bars: what to draw.
        xlabel: of every panel.
        ylabel: what the rows are.
        options: of `panel_per`.

    """
    titles = list(dict.fromkeys(bar.panel for bar in bars))
    styles = family_styles(bar.series for bar in bars)
    rows = {title: list(dict.fromkeys(bar.row for bar in bars if bar.panel == title)) for title in titles}
    step = 0.8 / len(styles)
    longest = max(len(bar.row) for bar in bars)
    height = 1.3 + 0.17 * max(map(len, rows.values())) * max(len(styles), 2)
    with style():
        figure, axes = panel_per(titles, height=height, left=0.45 + 0.085 * longest, **options)
        for ax, title in zip(axes, titles, strict=True):
            for number, look in enumerate(styles):
                panel_bars = [bar for bar in bars if (bar.panel, bar.series) == (title, look.name)]
                at = [rows[title].index(bar.row) + (number - (len(styles) - 1) / 2) * step for bar in panel_bars]
                for bar, place in zip(panel_bars, at, strict=True):
                    if bar.margin:
                        ax.barh(place, 2 * bar.margin, left=-bar.margin, height=step, color="#d9d9d9", lw=0)
                numbers = np.array([(b.number.value, b.number.low, b.number.high, b.published) for b in panel_bars])
                value, low, high, published = numbers.reshape(-1, 4).T
                drawn: dict[str, Any] = {
                    "marker": look.marker,
                    "ls": "",
                    "ms": 4.5,
                    "color": look.colour,
                    "lw": 1.1,
                    "label": look.name,
                }
                titles = [bar.title for bar in panel_bars]
                error_bars(ax, value, at, low, high, level=True, series=look.name, titles=titles, **drawn)
                if np.isfinite(published).any():
                    ax.plot(published, at, look.marker, ms=7, mfc="none", mec="black", mew=0.8)
            ax.use_sticky_edges = False  # so that the grey bars' ends are seen
            ax.axvline(0, lw=0.9, color="#57606a")
            ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(len(rows[title]) - 0.4, -0.6))
            ax.set_yticks(range(len(rows[title])), rows[title])
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.grid(visible=False, axis="y")
        if len(styles) > 1:
            legend_above(figure, styles)
        say_left_out(figure, {bar.series for bar in bars})
        return figure
