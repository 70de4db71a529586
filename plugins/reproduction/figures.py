"""Your exponents against the published ones."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.figures import colour_and_marker, panels, style

from .rows import KRow, SizeRow


def draw(in_size: Sequence[SizeRow], in_k: Sequence[KRow]) -> Figure:
    """Draw your exponents against the published ones, a panel per law."""
    laws: list[tuple[Sequence[SizeRow] | Sequence[KRow], str]] = [
        (in_size, "law in size, α"),
        (in_k, "law in k, β"),
    ]
    shown = [(rows, title) for rows, title in laws if rows]
    names = sorted({row.family for rows, _ in shown for row in rows})
    with style():
        figure, axes = panels(1, len(shown), height=4.2)
        for ax, (rows, title) in zip(axes[0], shown, strict=True):
            for family, cells in pd.DataFrame(map(vars, rows)).groupby("family", sort=True):
                colour, marker = colour_and_marker(names.index(str(family)))
                ax.errorbar(
                    cells["published"],
                    cells["yours"],
                    xerr=1.96 * cells["published_se"],
                    yerr=1.96 * cells["se"],
                    label=family,
                    fmt=marker,
                    ms=4.5,
                    lw=0.8,
                    color=colour,
                )
            both = [value for row in rows for value in (row.published, row.yours)]
            ends = [min(0.0, min(both)), max(both) * 1.1]
            ax.plot(ends, ends, "-", lw=0.8, color="#57606a", zorder=0)
            ax.set(title=title, xlabel="published", ylabel="yours", xlim=ends, ylim=ends)
            ax.legend(loc="best", fontsize=8)
        return figure
