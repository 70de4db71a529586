"""Figures of families: one panel per dataset; one colour, marker and line style per family."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rbptrack.analysis.figures import (
    COLOURS,
    LINES,
    MARKERS,
    WIDTH,
    colour_and_marker,
    grow,
    k_axis,
    legend_of_all,
    legend_room,
    log_axis,
    panel_per,
    panels,
    style,
)


class FamilyStyle(NamedTuple):
    """How a family is drawn, the same in every panel of a figure."""

    name: str
    colour: str
    marker: str
    line: Any


FEW_FAMILIES = len(COLOURS)
"""Families that a legend inside each panel has room for; more have one above all panels."""
MOST_FAMILIES = 3 * FEW_FAMILIES
"""Families that a figure draws: more cannot be told apart."""


def family_styles(names: Iterable[str]) -> list[FamilyStyle]:
    """The style of each family that is drawn, in the order of their names: the first `MOST_FAMILIES` of them.

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
    """Families in rows above the panels of a `grid`, for which the figure grows.

    Args:
        figure: laid out, with its texts.
        styles: of the families.
        more: what else the legend says.

    """
    handles = [Line2D([], [], marker=s.marker, ls=s.line, color=s.colour, label=s.name, ms=4.5) for s in styles]
    handles += more
    longest = max(len(str(one.get_label())) for one in handles)
    columns = min(len(handles), max(1, int(WIDTH / (0.7 + 0.075 * longest))))
    rows = -(-len(handles) // columns)
    grow(figure, above=0.28 + 0.2 * (rows - 1))
    figure.legend(handles=handles, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 1.0))


def family_legends(figure: Figure, axes: Sequence[Any], names: Iterable[str], **options: Any) -> None:
    """A legend in each panel of a `grid`; where there are more than seven families, one of them all above the panels.

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


def dataset_panels(
    families: Iterable[tuple[str, str]], **options: Any
) -> tuple[Figure, list[tuple[Any, str, list[FamilyStyle]]]]:
    """A figure with one panel per dataset, in which each family has the same style.

    Args:
        families: (family, dataset) of all that is drawn.
        options: of `panel_per`.

    Returns:
        The figure, and for each panel its axes, its dataset, and its families.

    """
    there = set(families)
    names = {name for name, _ in there}
    styles = family_styles(names)
    drawn = {one.name for one in styles}
    datasets = sorted({dataset for name, dataset in there if name in drawn})
    figure, axes = panel_per(datasets, **options)
    say_left_out(figure, names)
    return figure, [
        (ax, dataset, [one for one in styles if (one.name, dataset) in there])
        for ax, dataset in zip(axes, datasets, strict=True)
    ]


@dataclass(frozen=True)
class Curve:
    """A line of a panel, with a band around it where one is known.

    Attributes:
        dataset: the panel.
        family: decides the colour.
        label: for the legend.
        x: of the points, (points,).
        y: likewise.
        low: lower edge of the band, (points,); None: no band.
        high: upper edge.
        options: of `Axes.plot`.

    """

    dataset: str
    family: str
    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def curve_panels(
    curves: Sequence[Curve], *, xlabel: str, ylabel: str, legend: float = 0.0, **options: Any
) -> tuple[Figure, list[Any]]:
    """A figure in the common style, one panel per dataset, its x axis logarithmic; and its axes.

    Families differ in colour, line style and marker.

    Args:
        curves: what to draw, in the order of the legend.
        xlabel: of every panel.
        ylabel: of every panel.
        legend: inches kept free at the right, at least, for one legend of all panels; 0: each panel has its own.
        options: of `panel_per`.

    """
    if legend:
        legend = legend_room((curve.label for curve in curves), least=legend)
    with style():
        figure, panels = dataset_panels(
            ((curve.family, curve.dataset) for curve in curves), **({"legend": legend} if legend else {}), **options
        )
        for ax, dataset, families in panels:
            styles = {one.name: one for one in families}
            mine = [one for one in curves if one.dataset == dataset and one.family in styles]
            for curve in mine:
                look = styles[curve.family]
                drawn = {"color": look.colour, "ls": look.line, "marker": look.marker, "ms": 3.5, "lw": 1.3}
                drawn["markevery"] = max(1, len(np.atleast_1d(curve.x)) // 8)
                ax.plot(curve.x, curve.y, label=curve.label, **drawn | dict(curve.options))
                if curve.low is not None and curve.high is not None:
                    ax.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.15, lw=0)
            ax.set(xlabel=xlabel, ylabel=ylabel)
            x = np.concatenate([np.asarray(curve.x, dtype=np.float64) for curve in mine])
            log_axis(ax.xaxis, low=float(x[x > 0].min()) / 1.2, high=float(x.max()) * 1.2)
        axes = [ax for ax, *_ in panels]
        if legend:
            legend_of_all(figure, legend=legend)
        else:
            family_legends(figure, axes, (curve.family for curve in curves), loc="best", fontsize=8)
        return figure, axes


def draw_verdicts(
    rows: Mapping[str, tuple[npt.ArrayLike, Sequence[str]]], fills: Mapping[str, tuple[str, str]], *, ylabel: str
) -> Figure:
    """One strip per row, from the smallest k to the largest, filled by the verdict of each k.

    Args:
        rows: name of each strip -> its k, ascending, and the verdict of each.
        fills: verdict -> colour and hatch, in the order of the legend.
        ylabel: what the rows are.

    """
    with style():
        figure, axes = panels(1, 1, height=0.9 + 0.32 * len(rows))
        ax = axes[0, 0]
        for row, (values, verdicts) in enumerate(rows.values()):
            ks = np.asarray(values, dtype=np.float64)
            edges = np.concatenate([[ks[0] / 1.15], np.sqrt(ks[1:] * ks[:-1]), [ks[-1] * 1.15]])
            for left, right, verdict in zip(edges[:-1], edges[1:], verdicts, strict=True):
                colour, hatch = fills[verdict]
                ax.barh(row, right - left, left=left, height=0.72, color=colour, hatch=hatch, lw=0, edgecolor="white")
        ax.set_yticks(range(len(rows)), list(rows))
        ax.invert_yaxis()
        every = np.concatenate([np.asarray(ks, dtype=np.float64) for ks, _ in rows.values()])
        k_axis(ax, every)
        ax.set_ylabel(ylabel)
        ax.grid(visible=False)
        seen = {verdict for _, verdicts in rows.values() for verdict in verdicts}
        shown = [(name, *fill) for name, fill in fills.items() if name in seen]
        handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, colour, hatch in shown]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8)
        return figure
