"""One plotting style: readable in print, colour-blind safe, axes with units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rbptrack.ranktable import RankHistogram

# Okabe and Ito's colours, in an order of falling contrast to white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 100,
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 160,
    "svg.fonttype": "none",
    "svg.hashsalt": "rbptrack",
}


def gradient(count: int) -> list[Any]:
    """Colours for something ordered (sizes, window lengths), dark to light: even steps of a colour-blind safe map."""
    return [mpl.colormaps["viridis"](v) for v in np.linspace(0, 0.88, max(count, 1))]


@contextmanager
def style() -> Iterator[None]:
    """Apply the style to what is drawn inside."""
    with mpl.rc_context(_STYLE):
        yield


def panels(rows: int, columns: int, *, width: float = 3.6, height: float = 3.0, **options: Any) -> tuple[Figure, Any]:
    """A figure with a grid of axes, (rows, columns); inches per panel. Not tied to pyplot: nothing to close."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def panel_per(names: Sequence[str], *, columns: int = 3, **options: Any) -> tuple[Figure, list[Any]]:
    """A figure with one panel per name, titled with it, in rows of at most `columns`; the axes in order."""
    across = min(columns, max(1, len(names)))
    down = max(1, -(-len(names) // across))
    figure, axes = panels(down, across, **options)
    flat = list(axes.flat)
    for spare in flat[len(names) :]:
        spare.remove()
    for ax, name in zip(flat, names, strict=False):
        ax.set_title(name)
    return figure, flat[: len(names)]


def look(number: int) -> tuple[str, str]:
    """Colour and marker of the number-th family."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def short_number(value: float, _: object = None) -> str:
    """1500000 -> 1.5M."""
    for limit, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{suffix}"
    return f"{value:.3g}"


def log_axis(axis: Any, *, low: float, high: float) -> None:
    """A log10 axis from low to high whose labels are plain numbers, also where the range is below a decade."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    decades = np.log10(high / low)
    subs = (
        (1.0,)
        if decades > 2.5
        else (1.0, 3.0)
        if decades > 1.2
        else (1.0, 2.0, 5.0)
        if decades > 0.5
        else tuple(np.arange(1.0, 10, 0.5 if decades < 0.25 else 1.0))
    )
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(short_number))
    axis.set_minor_formatter(NullFormatter())


def rank_distribution(histogram: RankHistogram, title: str) -> Figure:
    """P(R = k) against k, log-log: every observed rank as a point, and means over bins even in ln k as a line."""
    with style():
        figure, axes = panels(1, 1, width=5.2, height=3.8)
        ax = axes[0, 0]
        share = histogram.count / histogram.num_tokens
        ax.plot(histogram.rank, share, ".", ms=2.5, alpha=0.35, color=COLOURS[4], label="each observed rank")
        edges = np.unique(np.rint(np.geomspace(1, histogram.vocab_size + 1, 40)).astype(np.int64))
        mass, _ = np.histogram(histogram.rank, bins=edges, weights=share)
        width = np.diff(edges)
        centre = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
        filled = mass > 0
        ax.plot(
            centre[filled],
            (mass / width)[filled],
            "-",
            lw=1.6,
            color=COLOURS[0],
            label="mean in bins of ln k",
        )
        ax.set(xlabel="rank k", ylabel="P(R = k)", title=title, xscale="log", yscale="log")
        ax.legend()
        return figure
