"""Figures of the law in k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.axes import SIZE, log_axis
from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.figures import MARKERS
from rbptrack.analysis.published import published_beta

from .curves import KCurves
from .rows import SlopeRow

LARGEST_FACTOR = 1e6  # a factor in S that may be larger is unknown, and not shown
_DOTTED = (0, (1, 1.5))


def draw_against_k(fitted: Sequence[tuple[Family, KCurves]]) -> Figure:
    """Draw the paper's figure 9: one panel per dataset, one colour per size."""
    drawn = []
    for family, curves in fitted:
        fit = curves.fit
        for i, label in enumerate(family.labels):
            place = (str(family), label)
            points: dict[str, Any] = {"ls": "", "marker": MARKERS[i % len(MARKERS)], "markevery": 1}
            y = fit.y[i]
            drawn.append(Curve(*place, f"{label}: β = {fit.beta[i]:.3f}", fit.ks, y, options=points))
            drawn.append(Curve(*place, "", fit.ks, fit.fitted[i], options={"marker": "", "lw": 1.1}))
            beta = published_beta(family.name, family.dataset, label)
            if np.isfinite(beta):  # through the middle of the points: they print no B
                theirs = np.exp(np.log(y).mean()) * (fit.ks / np.exp(np.log(fit.ks).mean())) ** -beta
                drawn.append(Curve(*place, "", fit.ks, theirs, options={"marker": "", "ls": _DOTTED, "lw": 1.6}))
    return curve_panels(drawn, xlabel="k", ylabel="−ln RBP$_k$", logs="xy", shades=True, height=3.6)[0]


def draw_beta(rows: Sequence[SlopeRow], table: pd.DataFrame, *, largest: int) -> Figure:
    """Draw beta against S: one panel per dataset, one colour per family; published exponents hollow."""
    theirs = [published_beta(row.family, row.dataset, row.size) for row in rows]
    where = {"panel": "{dataset}", "series": "{family}"}
    hollow: dict[str, Any] = {"ls": "", "ms": 8, "mfc": "none", "mec": "black", "mew": 0.8}
    curves = [
        *curves_of(table, "S", "beta", **where, label="{family}", ends="bars"),
        *curves_of(table.assign(theirs=theirs), "S", "theirs", **where, **hollow),
    ]
    return curve_panels(curves, xlabel=SIZE, ylabel=f"β over k = 1 to {largest}", sharey=True)[0]


def draw_worth(table: pd.DataFrame) -> Figure:
    """Draw what doubling k is worth, against k: by eq. 10 with its interval, and as read off between sizes."""
    quantities = table[["factor_in_s", "factor_low", "factor_high", "factor_measured"]].to_numpy(dtype=np.float64)
    finite = quantities[np.isfinite(quantities)]
    bounded = table[table["factor_high"] < LARGEST_FACTOR]
    bounded = bounded.rename(columns={"factor_low": "factor_in_s_low", "factor_high": "factor_in_s_high"})
    where = {"panel": "{dataset}", "series": "{family}"}
    points: dict[str, Any] = {"ls": "", "marker": "o", "ms": 4.5, "markevery": 1}
    curves = [
        *curves_of(bounded, "k", "factor_in_s", **where, label="{family}, eq. 10", ends="band", marker=""),
        *curves_of(bounded, "k", "factor_measured", **where, label="{family}, measured", **points),
    ]
    figure, axes = curve_panels(curves, xlabel="k", ylabel="factor in S that 2k is worth over k", sharey=True)
    for ax in axes:
        ax.axhline(1, color="0.4", lw=0.8, ls=":")
        log_axis(ax.yaxis, low=max(min(finite.min(), 1) / 1.15, 0.2), high=max(min(finite.max() * 1.3, 100), 1.15))
    return figure
