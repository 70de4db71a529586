"""The spectrum of learning: which k gain, and when."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from rbptrack.analysis.figures import legend_of_all, panel_per, style
from rbptrack.base.words import short_number

from .rows import SpectrumRow

_LEGEND = 1.5  # inches
_DRAWN = 9  # models


def draw_spectrum(rows: Sequence[SpectrumRow]) -> Figure:
    """Return a panel per model: dRBP_k / d ln D over k, a line per checkpoint, later ones darker."""
    models = list(dict.fromkeys((row.family, row.size, row.dataset) for row in rows))[:_DRAWN]
    with style():
        names = [f"{family}-{size} on {dataset}" for family, size, dataset in models]
        figure, axes = panel_per(names, legend=_LEGEND)
        for ax, model in zip(axes, models, strict=True):
            own = [row for row in rows if (row.family, row.size, row.dataset) == model]
            ends = sorted({row.end for row in own})
            for i, end in enumerate(ends):
                colour = mpl.colormaps["viridis_r"]((i + 1) / len(ends))
                points = [(row.k, row.slope) for row in own if row.end == end]
                ax.plot(*zip(*points, strict=True), color=colour, label=f"to {short_number(end)}")
            ax.set(xscale="log", xlabel="k", ylabel="dRBP$_k$ / d ln D")
        legend_of_all(figure, legend=_LEGEND)
        return figure
