"""Figures of two models on the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from rbptrack.analysis.figures import panel_per, style
from rbptrack.base.words import short_number
from rbptrack.ranks import IntArray


def draw_moves(panels: Sequence[tuple[str, IntArray]]) -> Figure:
    """Return a panel per pair: where the tokens of each decade of rank in one model (rows) lie in the other, as shares.

    Args:
        panels: title and tokens by both decades, (decades, decades).

    """
    with style():
        figure, axes = panel_per([title for title, _ in panels], columns=2, height=3.4)
        for ax, (_, moves) in zip(axes, panels, strict=True):
            names = ["1", *(f"≤ {short_number(10**i)}" for i in range(1, len(moves)))]
            rows = moves.sum(axis=1, keepdims=True)
            share = np.divide(moves, rows, out=np.zeros(moves.shape), where=rows > 0)
            middle = np.arange(len(moves))
            ax.pcolormesh(middle, middle, np.where(share > 0, share, np.nan), cmap="Blues", norm=LogNorm(1e-4, 1))
            ax.invert_yaxis()
            ax.grid(visible=False)
            for (i, j), value in np.ndenumerate(share):
                if value > 0:
                    text = f"{value:.1%}" if value >= 0.001 else "<0.1%"
                    ax.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if value > 0.2 else "k")
            ax.set_xticks(middle, names)
            ax.set_yticks(middle, names)
            ax.set(xlabel="rank in the second", ylabel="rank in the first")
        return figure
