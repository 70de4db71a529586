"""Figures of families: one panel per dataset; one colour, marker and line style per family."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rbptrack.analysis.axes import error_bars, log_axis
from rbptrack.analysis.display import INTERVAL
from rbptrack.analysis.figures import (
    COLOURS,
    LINES,
    MARKERS,
    WIDTH,
    colour_and_marker,
    gradient,
    grow,
    legend_of_all,
    legend_room,
    panel_per,
    style,
)


class FamilyStyle(NamedTuple):
    """How a family is drawn, the same in every panel of a figure."""

    name: str
    colour: Any
    marker: str
    line: Any


FEW_FAMILIES = len(COLOURS)
"""Families that a legend inside each panel has room for; more have one above all panels."""
MOST_FAMILIES = 3 * FEW_FAMILIES
"""Families that a figure draws: readers cannot distinguish more."""


def family_styles(names: Iterable[str]) -> list[FamilyStyle]:
    """Return the style of each family that is drawn, in the order of their names: the first `MOST_FAMILIES` of them.

    After seven families the colours begin again, with other markers and line styles.
    """
    styles = []
    for number, name in enumerate(sorted(set(names))[:MOST_FAMILIES]):
        shape = number + number // len(COLOURS)
        styles.append(
            FamilyStyle(name, colour_and_marker(number)[0], MARKERS[shape % len(MARKERS)], LINES[shape % len(LINES)])
        )
    return styles


def legend_above(figure: Figure, styles: Sequence[FamilyStyle], more: Sequence[Line2D] = ()) -> None:
    """Draw the families in rows above the panels of a `grid`; the figure grows by these rows.

    Args:
        figure: laid out, with its texts.
        styles: of the families.
        more: what else the legend says.

    """
    handles = [Line2D([], [], marker=s.marker, ls=s.line, color=s.colour, label=s.name, ms=4.5) for s in styles]
    handles += more
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = min(len(handles), max(1, int(WIDTH / (0.7 + 0.075 * longest))))
    rows = -(-len(handles) // columns)
    grow(figure, above=0.28 + 0.2 * (rows - 1))
    figure.legend(handles=handles, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 1.0))


def family_legends(figure: Figure, axes: Sequence[Any], names: Iterable[str], **options: Any) -> None:
    """Draw a legend in each panel of a `grid`; with more than seven families, draw one for all above the panels.

    Args:
        figure: laid out.
        axes: its panels.
        names: of the families.
        options: of `Axes.legend`.

    """
    styles = family_styles(names)
    if len(styles) > FEW_FAMILIES:
        legend_above(figure, styles)
        return
    for ax in axes:
        ax.legend(**options)


def say_left_out(figure: Figure, names: Collection[str]) -> None:
    """Write below a figure that it does not draw every family, where that is so."""
    if len(names) > MOST_FAMILIES:
        text = f"{MOST_FAMILIES} of {len(names):,} families are drawn, the first by name; the tables hold all of them"
        figure.text(0.99, 0.06 / figure.get_size_inches()[1], text, ha="right", fontsize=8)


@dataclass(frozen=True)
class Curve:
    """A line or points of a panel, with a band or bars around them where an interval is known.

    Attributes:
        panel: its title.
        series: decides colour, marker and line style: a family, mostly.
        label: for the legend; empty: none.
        x: of the points, (points,).
        y: column of the other axis.
        low: lower ends of the intervals, (points,); None: no intervals.
        high: upper ends.
        bars: whether intervals are bars, not a band.
        options: of `Axes.plot`.

    """

    panel: str
    series: str
    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None
    bars: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, ax: Any, look: FamilyStyle) -> None:
        """Plot it as its series looks."""
        drawn = {"color": look.colour, "ls": look.line, "marker": look.marker, "ms": 3.5, "lw": 1.3}
        drawn |= {"label": self.label or "_", **self.options}
        if self.bars and self.low is not None and self.high is not None:
            error_bars(ax, self.x, self.y, self.low, self.high, **drawn)
            return
        ax.plot(self.x, self.y, **{"markevery": max(1, len(np.atleast_1d(self.x)) // 8), **drawn})
        if self.low is not None and self.high is not None:
            ax.fill_between(self.x, self.low, self.high, color=drawn["color"], alpha=0.15, lw=0, label=INTERVAL)


def curves_of(
    table: pd.DataFrame, x: str, y: str, *, panel: str, series: str, label: str = "", ends: str = "", **options: Any
) -> Iterator[Curve]:
    """Yield a curve of column y over column x for each panel and series of a table; rows without a y are left out.

    Args:
        table: of a report.
        x: a column.
        y: another.
        panel: title of the panel, columns in braces: `{family} on {dataset}`.
        series: column that names the curve.
        label: column that names it in the legend.
        ends: how the columns y_low and y_high are drawn: `bars`, `band`, or not.
        options: of `Axes.plot`.

    """
    keys = dict.fromkeys(name for _, name, *_ in Formatter().parse(panel + series + label) if name)
    for _, rows in table[table[y].notna()].groupby(list(keys), sort=False):
        first = rows.iloc[0]
        here = rows.sort_values(x)
        titled, coloured, called = (text.format_map(first) for text in (panel, series, label))
        low, high = (here[f"{y}_low"], here[f"{y}_high"]) if ends else (None, None)
        yield Curve(titled, coloured, called, here[x], here[y], low, high, bars=ends == "bars", options=options)


def side_by_side(curves: Iterable[Curve]) -> list[Curve]:
    """Return the curves on a logarithmic x axis a little aside from each other by series, so that bars hide none."""
    every = list(curves)
    names = list(dict.fromkeys(curve.series for curve in every))
    moved = {name: 1.03 ** (place - len(names) / 2) for place, name in enumerate(names)}
    return [replace(curve, x=np.asarray(curve.x, dtype=np.float64) * moved[curve.series]) for curve in every]


def curve_panels(
    curves: Sequence[Curve],
    *,
    xlabel: str,
    ylabel: str,
    legend: float = 0.0,
    logs: str = "x",
    shades: bool = False,
    **options: Any,
) -> tuple[Figure, list[Any]]:
    """Return a figure in the common style with a panel for each title, in the order of the curves; and its axes.

    Args:
        curves: what to draw, in the order of the legend.
        xlabel: of every panel.
        ylabel: of every panel.
        legend: inches kept free at the right, at least, for one legend of all panels; 0: each panel has its own.
        logs: which axes are logarithmic: `x`, `y`, `xy` or none.
        shades: whether series are something ordered (sizes, window lengths), in shades of one map.
        options: of `panel_per`.

    """
    looks = {look.name: look for look in _looks([curve.series for curve in curves], shades=shades)}
    every = [curve for curve in curves if curve.series in looks]
    titles = list(dict.fromkeys(curve.panel for curve in every))
    if legend:
        legend = legend_room((curve.label for curve in every), least=legend)
        options["legend"] = legend
    with style():
        figure, axes = panel_per(titles, **options)
        say_left_out(figure, {curve.series for curve in curves})
        for ax, title in zip(axes, titles, strict=True):
            panel_curves = [curve for curve in every if curve.panel == title]
            for curve in panel_curves:
                curve.draw(ax, looks[curve.series])
            ax.set(xlabel=xlabel, ylabel=ylabel)
            for name in logs:
                shown = every if options.get(f"share{name}") else panel_curves
                values = np.concatenate([np.asarray(getattr(curve, name), dtype=np.float64) for curve in shown])
                values = values[np.isfinite(values) & (values > 0)]
                if len(values):
                    log_axis(getattr(ax, f"{name}axis"), low=values.min() / 1.2, high=values.max() * 1.2)
        if legend:
            legend_of_all(figure, legend=legend)
        else:
            family_legends(figure, axes, looks, loc="best", fontsize=8)
        return figure, axes


def _looks(series: Sequence[str], *, shades: bool) -> list[FamilyStyle]:
    if not shades:
        return family_styles(series)
    names = list(dict.fromkeys(series))
    return [FamilyStyle(name, shade, "o", "-") for name, shade in zip(names, gradient(len(names)), strict=False)]
