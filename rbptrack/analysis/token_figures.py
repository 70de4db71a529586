"""Figures of classes of tokens and of positions in the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import Curve, curve_panels, family_legends, family_styles
from rbptrack.analysis.figures import grid_of, log_axis, style
from rbptrack.analysis.law_figures import law_axis_label
from rbptrack.analysis.rows import frame_of
from rbptrack.stats.position import PositionCurves


def draw_classes(rows: Sequence[Mapping[str, Any]], label: str) -> Figure:
    """Exponents by class: a panel per dataset and way of classing, the classes below each other, families as colours.

    Args:
        rows: dataset, family, by, class, alpha, alpha_low and alpha_high of each.
        label: of the metric.

    """
    panels = list(dict.fromkeys(f"{row['dataset']}, {row['by']}" for row in rows))
    families = family_styles(row["family"] for row in rows)
    apart = min(0.15, 0.9 / len(families))
    with style():
        figure, axes = grid_of(panels, ["alpha"], height=3.0, left=1.35)
        for panel in panels:
            ax = axes[panel, "alpha"]
            mine = [row for row in rows if f"{row['dataset']}, {row['by']}" == panel]
            names = list(dict.fromkeys(row["class"] for row in mine))
            for number, one in enumerate(families):
                points = [row for row in mine if row["family"] == one.name]
                middle = [row["alpha"] for row in points]
                places = [names.index(row["class"]) + apart * (number - (len(families) - 1) / 2) for row in points]
                bars = [[row["alpha"] - row["alpha_low"], row["alpha_high"] - row["alpha"]] for row in points]
                drawn = {"fmt": one.marker, "ms": 5, "capsize": 2, "color": one.colour, "label": one.name}
                ax.errorbar(middle, places, xerr=np.array(bars).reshape(-1, 2).T, **drawn)
            ax.set_yticks(range(len(names)), names)
            ax.axvline(0, lw=0.8, color="0.5")
            ax.set(title=panel, xlabel=f"α of {label}", ylim=(len(names) - 0.5, -0.5))
            ax.set_ylabel("class of token")
        if len(families) > 1:
            family_legends(figure, list(axes.values()), (one.name for one in families), loc="best", fontsize=8)
        return figure


POSITION = "position in the document, tokens"


def draw_positions(found: Sequence[tuple[Family, PositionCurves]], metric: str) -> Figure:
    """CE or -ln RBP_k against the position: the smallest and the largest size of each family."""
    drawn = []
    for family, curves in found:
        column = curves.metrics.index(metric)
        for i, width in {0: 0.8, len(family.s) - 1: 2.0}.items():
            y, reach = curves.values[i, :, column], 2 * curves.errors[i, :, column]
            label, options = f"{family.name} {family.labels[i]}", {"marker": ".", "ms": 5, "lw": width}
            curve = Curve(family.dataset, family.name, label, curves.centre, y, y - reach, y + reach)
            drawn.append(replace(curve, options=options))
    figure, axes = curve_panels(drawn, xlabel=POSITION, ylabel=law_axis_label(metric), legend=1.6)
    for ax in axes:
        y = np.concatenate([line.get_ydata() for line in ax.get_lines()])
        log_axis(ax.yaxis, low=y[y > 0].min() / 1.2, high=y[np.isfinite(y)].max() * 1.2)
    return figure


def draw_alpha_by_position(laws: Sequence[Any], label: str) -> Figure:
    """Alpha of RBP_k and of CE (dashed) against the position.

    Args:
        laws: rows with dataset, family, metric, first, last, alpha, alpha_low and alpha_high.
        label: of RBP_k.

    """
    frame, curves = frame_of(laws)[0], []
    for metric, line in ((label, "-"), ("CE", "--")):
        for (name, dataset), rows in frame[frame["metric"] == metric].groupby(["family", "dataset"]):
            x = np.sqrt(np.maximum(rows["first"], 0.5) * np.maximum(rows["last"], 0.5))
            curve = Curve(str(dataset), str(name), f"{name}, {metric}", x, rows["alpha"])
            options = {"ls": line, "marker": ".", "ms": 5, "lw": 1.4}
            curves.append(replace(curve, low=rows["alpha_low"], high=rows["alpha_high"], options=options))
    figure, axes = curve_panels(curves, xlabel=POSITION, ylabel="α within the bin", legend=1.6, sharey=True)
    shown = frame.loc[frame["metric"].isin(["CE", label]), "alpha"]
    axes[0].set_ylim(min(0.0, float(shown.min()) * 1.3), float(shown.max()) * 1.4)
    return figure
