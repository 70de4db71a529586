"""Axes: logarithmic ones with few labels, k, lengths of windows, and bars of errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rbptrack.analysis.display import INTERVAL
from rbptrack.analysis.marks import mark
from rbptrack.base.words import short_number
from rbptrack.ranks import CE, parse_rbp_name


def log_axis(axis: Any, *, low: float, high: float) -> None:
    """Set a log10 axis from low to high with plain numbers as labels, also where the range is below a decade."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    decades = np.log10(high / low)
    box = axis.axes.get_position()
    inches = axis.axes.figure.get_size_inches()
    room = box.width * inches[0] / 0.45 if axis.axis_name == "x" else box.height * inches[1] / 0.3  # for so many labels
    labelled = {2.5: (1.0,), 1.2: (1.0, 3.0), 0.5: (1.0, 2.0, 5.0)}  # in each decade, above so many decades
    fine = tuple(np.arange(1.0, 10, 0.5 if decades < 0.25 else 1.0))
    subs = next((multiples for most, multiples in labelled.items() if decades > most), fine)
    if len(subs) < 4 and decades * len(subs) > room:
        subs = (1.0,) if decades >= 1 or len(subs) < 3 else (1.0, 3.0)
    base = 10.0 if decades <= room or decades < 3 else 100.0
    axis.set_major_locator(LogLocator(base=base, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(short_number))
    axis.set_minor_locator(NullLocator())  # a hundred ticks per panel would be most of the time of drawing


SIZE = "S, non-embedding parameters"


def k_axis(ax: Any, ks: npt.ArrayLike) -> None:
    """Set k as the x axis of a panel, labelled, from the smallest of ks to the largest."""
    ax.set_xlabel("k")
    log_axis(ax.xaxis, low=float(np.min(ks)) / 1.15, high=float(np.max(ks)) * 1.15)


def length_axis(ax: Any) -> None:
    """Set N, the tokens of a window, as the x axis of a panel, in powers of 2."""
    ax.set_xlabel("N, tokens in a row")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(short_number))


def error_bars(
    ax: Any,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    *,
    level: bool = False,
    series: str = "",
    titles: Sequence[str] = (),
    **options: Any,
) -> None:
    """Draw points with bars from low to high; a bar with an unknown or infinite end has no length on that side.

    All bars are one line with gaps: `Axes.errorbar` takes three times as long.

    Args:
        ax: the panel.
        x: of the points, (points,).
        y: of the points, (points,).
        low: lower ends of the intervals of y, (points,).
        high: upper ends.
        level: whether the intervals are those of x, and the bars level.
        series: what the points are of (a family, mostly), by which a page hides and shows them.
        titles: what each point says when it is pointed at, (points,).
        options: of `Axes.plot`, for the points.

    """
    middle, fixed = (np.asarray(axis_values, dtype=np.float64) for axis_values in ((x, y) if level else (y, x)))
    ends = (np.minimum(middle, low), np.maximum(middle, high), np.full(len(middle), np.nan))
    bars = np.stack([np.where(np.isinf(end), middle, end) for end in ends], axis=1)
    bars[:, :2] = np.where(np.isnan(bars[:, :2]), middle[:, None], bars[:, :2])
    along = bars.ravel()
    across = np.repeat(fixed, 3)
    look = {"color": options["color"], "lw": options.get("lw", mpl.rcParams["lines.linewidth"])}
    look |= {"solid_capstyle": "butt", "label": INTERVAL}  # else half its width longer at each end
    (lines,) = ax.plot(*((along, across) if level else (across, along)), **look)
    (points,) = ax.plot(x, y, **options)
    if series:
        drawn = np.isfinite(np.asarray(x, dtype=np.float64)) & np.isfinite(np.asarray(y, dtype=np.float64))
        mark(lines, series=series)
        mark(points, series=series, titles=[title for title, there in zip(titles, drawn, strict=False) if there])


def law_axis_label(metric: str) -> str:
    """Return the label of an axis with what a law is fitted to: CE, or -ln RBP_k."""
    return "CE, nats per token" if metric == CE else f"−ln RBP$_{{{parse_rbp_name(metric)}}}$"
