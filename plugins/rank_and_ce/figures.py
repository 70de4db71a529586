"""Figures of RBP_k at equal loss, of ranks against probabilities, and of whole windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.axes import length_axis, log_axis
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.rows import frame_of
from rbptrack.ranks import FloatArray, metric_label

from .rows import SpectrumRow


def draw_ranks_at_p(families: Mapping[str, Mapping[str, Mapping[str, FloatArray]]]) -> Figure:
    """Return ranks against p(target), as figure 1 of arXiv 2510.20387: a panel per name, two sizes by label.

    Args:
        families: name of the panel -> label -> p, rank_low, rank_median and rank_high of each bin.

    """
    curves = [
        Curve(name, f"{number}", label, at["p"], at["rank_median"], at["rank_low"], at["rank_high"])
        for name, sizes in families.items()
        for number, (label, at) in enumerate(reversed(list(sizes.items())))
    ]
    figure, axes = curve_panels(curves, xlabel="p(target)", ylabel="rank")
    for ax, sizes in zip(axes, families.values(), strict=True):
        x = np.geomspace(1e-6, 1, 50)
        ax.fill_between(x, 1 / x, 1e6, color="0.85", lw=0)
        log_axis(ax.xaxis, low=1e-6, high=1.2)
        log_axis(ax.yaxis, low=0.8, high=4 * max(at["rank_high"].max() for at in sizes.values()))
    return figure


def draw_whole_windows(families: Mapping[str, Mapping[str, FloatArray]]) -> Figure:
    """Return success of whole windows against their length, section 5.1 of arXiv 2510.20387.

    Args:
        families: name of the panel -> N, measured, independent, likelihood and exp(-N CE).

    """
    drawn = {
        "measured": "measured, R = 1",
        "independent": "RBP$_1^N$",
        "likelihood": "mean likelihood",
        "exp(-N CE)": "exp(−N CE)",
    }
    curves = [
        Curve(name, label, label, rows["N"], rows[column])
        for name, rows in families.items()
        for column, label in drawn.items()
    ]
    figure, axes = curve_panels(curves, xlabel="", ylabel="probability of the window", legend=1.5, logs="")
    for ax, rows in zip(axes, families.values(), strict=True):
        length_axis(ax)
        floor = min((value for value in rows["measured"] if value > 0), default=1e-6)
        log_axis(ax.yaxis, low=floor / 1e3, high=1.5)
    return figure


def draw_equal_loss(points: pd.DataFrame, metric: str) -> Figure:
    """Return figure 8a of arXiv 2510.20387, with both axes logarithmic: -ln RBP_k against CE."""
    drawn = points.assign(y=-np.log(points[metric].where(points[metric].between(0, 1, inclusive="neither"))))
    curves = list(curves_of(drawn, "ce", "y", panel="{dataset}", series="{family}", label="{family}"))
    return curve_panels(curves, xlabel="CE, nats", ylabel=f"−ln {metric_label(metric)}", logs="xy", sharey=True)[0]


def draw_spectrum(rows: Sequence[SpectrumRow]) -> Figure:
    """Return the share of the fall of CE in each band of k, a panel per dataset."""
    table = frame_of(rows)[0]
    curves = curves_of(table, "k", "share", panel="{dataset}", series="{family}", label="{family}", ends="bars")
    figure, axes = curve_panels(list(curves), xlabel="k, first of the band", ylabel="share of the fall of CE", logs="x")
    for ax in axes:
        ax.axhline(0, lw=0.8, color="0.5")
    return figure
