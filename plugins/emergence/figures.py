"""Figures of sequences of successes: windows against S and N, where half of them succeed, and whole answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.axes import SIZE, length_axis, log_axis
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of, side_by_side
from rbptrack.analysis.figures import COLOURS
from rbptrack.stats.power_law import PowerLawFit

from .thresholds import Threshold

NULLS = {
    "independent": "independent",
    "position": "share of hits by\nposition",
    "documents": "hits anywhere in\ntheir document",
    "markov": "first-order\nMarkov chain",
}
"""The nulls of `SuccessByLength`, as legends name them."""
_MEASURED: Any = {"ends": "bars", "ls": "-", "marker": "o", "color": COLOURS[0]}


def draw_success(table: pd.DataFrame) -> Figure:
    """Return the paper's figure 7: p against S, a panel per dataset and k, N as colour; dashes: RBP_k^N."""
    where = {"panel": "{dataset}, k = {k}", "series": "N = {N}"}
    n = "N = {N}"
    table, floor = table.sort_values(["dataset", "k", "N"]), np.nanmax([table["p"].min() / 15, 1e-7])
    independent = curves_of(
        table[table["p_independent"] > floor], "S", "p_independent", **where, ls="--", marker="", lw=1
    )
    curves = [
        *curves_of(table, "S", "p", **where, label=n, ends="bars"),
        *(replace(curve, label="RBP$_k^N$,\nindependent") for curve in independent),
    ]
    return curve_panels(curves, xlabel=SIZE, ylabel="windows with all R ≤ k", legend=1.3, logs="xy", shades=True)[0]


def draw_ladder(table: pd.DataFrame) -> Figure:
    """Return -ln p against N for the largest size of each family: measured, and what each null predicts."""
    largest = table.groupby(["dataset", "family"])["S"].transform("max")
    seen = table[(table["S"] == largest) & (table["p"] > 0) & (table["p"] < 1)]
    with np.errstate(divide="ignore"):
        logs = {name: -np.log(seen[name]) for name in ("p", *(f"p_{null}" for null in NULLS))}
        seen = seen.assign(**logs, p_low=-np.log(seen["p_high"]), p_high=-np.log(seen["p_low"]))
    panel = "{family} {size} on {dataset}, k = {k}"
    curves = list(curves_of(seen, "N", "p", panel=panel, series="measured", label="measured", **_MEASURED))
    for number, (null, label) in enumerate(NULLS.items(), start=1):
        finite = seen[np.isfinite(seen[f"p_{null}"])]
        look = {"ls": "--", "marker": "", "color": COLOURS[number]}
        curves += curves_of(finite, "N", f"p_{null}", panel=panel, series=null, label=label, **look)
    figure, axes = curve_panels(curves, xlabel="", ylabel="−ln p", legend=1.5, logs="y")
    for ax in axes:
        length_axis(ax)
    return figure


def draw_alpha_of_n(laws: pd.DataFrame) -> Figure:
    """Return alpha_N against N; independence predicts a level line."""
    shown = laws[(laws["N"] == 1) | (laws["sizes"] >= 4)]  # three sizes leave no interval worth drawing
    of_k = "{family}, k = {k}"
    curves = side_by_side(curves_of(shown, "N", "alpha", panel="{dataset}", series=of_k, label=of_k, ends="bars"))
    figure, axes = curve_panels(curves, xlabel="", ylabel="α$_N$ of −ln p = C$_N$ S$^{−α_N}$", legend=1.5, logs="")
    for ax in axes:
        length_axis(ax)
    return figure


def draw_half(table: pd.DataFrame, laws: Mapping[tuple[str, str], tuple[PowerLawFit, Threshold]]) -> Figure:
    """Return linear success against ln S with its laws and S_50: a panel per family and dataset, N as colour.

    Args:
        table: windows at one k: dataset, family, S, k, N, p, p_low, p_high.
        laws: by `family on dataset` and N.

    """
    k = table["k"].iloc[0]
    n = "N = {N}"
    panel = "{family} on {dataset}, k = {k}"
    curves = list(curves_of(table.sort_values("N"), "S", "p", panel=panel, series=n, label=n, ends="bars", ls=""))
    for (name, length), (law, half) in laws.items():
        place = (f"{name}, k = {k}", f"N = {length}", "")
        for low, high, line in ((law.s[0], law.s[-1], "-"), (law.s[-1], 20 * law.s[-1], "--")):
            x = np.geomspace(low, high, 60)
            curves.append(Curve(*place, x, np.exp(-law.predict(x)), options={"ls": line, "marker": "", "lw": 1.2}))
        if np.isfinite(half.size.value):
            curves.append(Curve(*place, [half.size.value], [0.5], options={"marker": "x", "ms": 7, "mew": 2}))
    label = "share of windows that succeed"
    figure, axes = curve_panels(curves, xlabel=SIZE, ylabel=label, legend=1.3, shades=True)
    for ax in axes:
        ax.axhline(0.5, lw=0.8, color="0.5")
        ax.set_ylim(-0.03, 1.03)
        log_axis(ax.xaxis, low=table["S"].min() / 1.5, high=table["S"].max() * 30)
    return figure


def draw_answers(table: pd.DataFrame) -> Figure:
    """Return the share of whole answers against S, k as colour."""
    where = {"panel": "{family} on {dataset}", "series": "k = {k}"}
    k = "k = {k}"
    curves = list(curves_of(table, "S", "share", **where, label=k, ends="bars", ls=""))
    lines = {"share_by_law": ("RBP$_k^{length}$,\nRBP$_k$ by its law", "-")}
    lines["share_independent"] = ("RBP$_k^{length}$,\nRBP$_k$ measured", ":")
    for column, (label, line) in lines.items():
        curves += [replace(curve, label=label) for curve in curves_of(table, "S", column, **where, ls=line, marker="")]
    figure, axes = curve_panels(curves, xlabel=SIZE, ylabel="whole answers with R ≤ k", legend=1.6)
    for ax in axes:
        ax.set_ylim(-0.02, None)
    return figure
