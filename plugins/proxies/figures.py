"""Figures of scores against statistics of answers."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.figures import colour_and_marker, legend_of_all, panel_per, style

_LEGEND = 1.5  # inches


def draw_proxies(panels: Sequence[tuple[str, str, pd.DataFrame]]) -> Figure:
    """Return a panel per task: the score of every model over a proxy, families by colour and marker.

    Args:
        panels: title, the proxy's name, and rows with family, best and score.

    """
    families = list(dict.fromkeys(name for _, _, rows in panels for name in rows["family"]))
    with style():
        figure, axes = panel_per([title for title, *_ in panels], legend=_LEGEND)
        for ax, (_, proxy, rows) in zip(axes, panels, strict=True):
            for name, points in rows.groupby("family", sort=False):
                colour, marker = colour_and_marker(families.index(str(name)))
                ax.plot(points["best"], points["score"], marker, color=colour, ms=5, label=str(name))
            ax.set(xlabel=proxy, ylabel="score")
        legend_of_all(figure, legend=_LEGEND)
        return figure
