"""Figures of families: one panel per dataset; one colour, marker and line style per family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rbptrack.analysis.figures import (
    LINES,
    colour_and_marker,
    k_axis,
    legend_of_all,
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


def family_styles(names: Iterable[str]) -> list[FamilyStyle]:
    """The style of each family, in the order of their names."""
    return [
        FamilyStyle(name, *colour_and_marker(number), LINES[number % len(LINES)])
        for number, name in enumerate(sorted(set(names)))
    ]


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
    datasets, names = sorted({dataset for _, dataset in there}), sorted({name for name, _ in there})
    figure, axes = panel_per(datasets, **options)
    styles = family_styles(names)
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
        legend: inches kept free at the right for one legend of all panels; 0: each panel has its own.
        options: of `panel_per`.

    """
    with style():
        figure, panels = dataset_panels(
            ((curve.family, curve.dataset) for curve in curves), **({"legend": legend} if legend else {}), **options
        )
        for ax, dataset, families in panels:
            styles, mine = {one.name: one for one in families}, [one for one in curves if one.dataset == dataset]
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
            if not legend:
                ax.legend(loc="best", fontsize=8)
        if legend:
            legend_of_all(figure, legend=legend)
        return figure, [ax for ax, *_ in panels]


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
