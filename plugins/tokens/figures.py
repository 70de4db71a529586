"""Figures of classes of tokens and of positions in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis.axes import law_axis_label
from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.rows import frame_of

from .position import PositionCurves

POSITION = "position in the document, tokens"


def draw_positions(read: Sequence[tuple[Family, PositionCurves]], metric: str) -> Figure:
    """Return CE or -ln RBP_k against the position: the smallest and the largest size of each family."""
    drawn = []
    for family, curves in read:
        column = curves.metrics.index(metric)
        errors = curves.errors
        for i, width in {0: 0.8, len(family.s) - 1: 2.0}.items():
            y = curves.values[i, :, column]
            reach = 2 * errors[i, :, column]
            label = f"{family.name} {family.labels[i]}"
            curve = Curve(family.dataset, family.name, label, curves.centre, y, y - reach, y + reach)
            drawn.append(replace(curve, options={"marker": ".", "ms": 5, "lw": width}))
    return curve_panels(drawn, xlabel=POSITION, ylabel=law_axis_label(metric), legend=1.6, logs="xy")[0]


def draw_alpha_by_position(laws: Sequence[Any], label: str) -> Figure:
    """Return alpha of RBP_k and of CE (dashed) against the position.

    Args:
        laws: rows with dataset, family, metric, first, last, alpha, alpha_low and alpha_high.
        label: of RBP_k.

    """
    frame = frame_of(laws)[0]
    curves = list[Curve]()
    frame = frame.assign(at=np.sqrt(np.maximum(frame["first"], 0.5) * np.maximum(frame["last"], 0.5)))
    where = {"panel": "{dataset}", "series": "{family}", "label": "{family}, {metric}"}
    for metric, line in ((label, "-"), ("CE", "--")):
        of_metric = frame[frame["metric"] == metric]
        curves += curves_of(of_metric, "at", "alpha", **where, ends="band", ls=line, marker=".", ms=5, lw=1.4)
    figure, axes = curve_panels(curves, xlabel=POSITION, ylabel="α within the bin", legend=1.6, sharey=True)
    shown = frame.loc[frame["metric"].isin(["CE", label]), "alpha"]
    axes[0].set_ylim(min(0.0, float(shown.min()) * 1.3), float(shown.max()) * 1.4)
    return figure
