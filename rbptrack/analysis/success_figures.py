"""Figures of sequences of successes: windows against S and N, where half of them succeed, and whole answers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.figures import (
    COLOURS,
    colour_and_marker,
    error_bars,
    gradient,
    grid,
    grid_of,
    legend_of_all,
    length_axis,
    log_axis,
    panel_per,
    size_axis,
    style,
)
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.thresholds import Threshold

NULLS = {
    "independent": "independent",
    "position": "share of hits by\nposition",
    "documents": "hits anywhere in\ntheir document",
    "markov": "first-order\nMarkov chain",
}
"""The nulls of `SuccessByLength`, as legends name them."""


def draw_success(table: pd.DataFrame) -> Figure:
    """The paper's figure 7: p against S, a row of panels per dataset, N as colour; dashes: RBP_k^N."""
    datasets, ks, lengths = (sorted(set(table[column])) for column in ("dataset", "k", "N"))
    colours = dict(zip(lengths, gradient(len(lengths)), strict=True))
    with style():
        figure, axes = grid(len(datasets), len(ks), legend=1.3)
        for (i, j), ax in np.ndenumerate(axes):
            rows = table[(table["dataset"] == datasets[i]) & (table["k"] == ks[j])]
            if not len(rows):
                ax.remove()
                continue
            floor = max(min(rows["p"].dropna(), default=1.0) / 5, 1e-7)
            for n, one in rows.groupby("N"):
                seen, shown = one[one["p"].notna()], one[one["p_independent"] > floor / 3]
                drawn = {"fmt": "o-", "lw": 1, "ms": 3.5, "capsize": 0, "color": colours[n], "label": f"N = {n}"}
                if len(seen):
                    error_bars(ax, seen["S"], seen["p"], seen["p_low"], seen["p_high"], **drawn)
                ax.plot(shown["S"], shown["p_independent"], "--", lw=1, color=colours[n])
            ax.plot([], [], "--", lw=1, color="0.3", label="RBP$_k^N$,\nindependent")
            size_axis(ax, rows["S"])
            log_axis(ax.yaxis, low=floor, high=2.0)
            ax.set(title=f"{datasets[i]}, k = {ks[j]}", ylabel="windows with all R ≤ k")
        legend_of_all(figure, legend=1.3)
        return figure


def draw_ladder(table: pd.DataFrame) -> Figure:
    """-ln p against N for the largest size of each family: measured, and what each null predicts."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    with style():
        figure, axes = grid_of(datasets, names, legend=1.5)
        for (dataset, name), ax in axes.items():
            rows = table[(table["dataset"] == dataset) & (table["family"] == name)]
            seen = rows[(rows["S"] == rows["S"].max()) & rows["p"].notna() & (rows["p"] < 1)]
            if not len(seen):
                ax.remove()
                continue
            for number, (null, label) in enumerate(NULLS.items(), start=1):
                predicted = seen[seen[f"p_{null}"] > 0]
                y = -np.log(predicted[f"p_{null}"])
                ax.plot(predicted["N"], y, "--", lw=1.2, color=COLOURS[number], label=label)
            y, low, high = (-np.log(seen[column]) for column in ("p", "p_high", "p_low"))
            error_bars(ax, seen["N"], y, low, high, fmt="o-", color=COLOURS[0], lw=1.2, ms=4, label="measured")
            log_axis(ax.yaxis, low=y.min() / 1.3, high=max(-np.log(seen["p_independent"].min()), y.max()) * 1.3)
            length_axis(ax)
            ax.set(title=f"{name} {seen['size'].iloc[0]} on {dataset}, k = {seen['k'].iloc[0]}", ylabel="−ln p")
        legend_of_all(figure, legend=1.5)
        return figure


def draw_alpha_of_n(laws: pd.DataFrame) -> Figure:
    """alpha_N against N; independence predicts a level line."""
    datasets, names, ks = (sorted(set(laws[column])) for column in ("dataset", "family", "k"))
    several = [(name, k) for name in names for k in ks]
    with style():
        figure, axes = panel_per(datasets, legend=1.5)
        for ax, dataset in zip(axes, datasets, strict=True):
            for number, (name, k) in enumerate(several):
                rows = laws[(laws["dataset"] == dataset) & (laws["family"] == name) & (laws["k"] == k)]
                rows = rows[(rows["N"] == 1) | (rows["sizes"] >= 4)]  # three sizes leave no interval worth drawing
                colour, _ = colour_and_marker(number if len(names) == 1 else names.index(name))
                _, marker = colour_and_marker(ks.index(k))
                shifted = rows["N"] * 1.03 ** (number - len(several) / 2)
                drawn = {"fmt": f"{marker}-", "color": colour, "lw": 1, "ms": 4, "label": f"{name}, k = {k}"}
                error_bars(ax, shifted, rows["alpha"], rows["alpha_low"], rows["alpha_high"], **drawn)
            length_axis(ax)
            ax.set_ylabel("α$_N$ of −ln p = C$_N$ S$^{−α_N}$")
        legend_of_all(figure, legend=1.5)
        return figure


def draw_half(table: pd.DataFrame, laws: Mapping[tuple[str, str], tuple[PowerLawFit, Threshold]]) -> Figure:
    """Linear success against ln S with its laws and S_50: a panel per family and dataset, N as colour.

    Args:
        table: windows at one k: dataset, family, S, k, N, p, p_low, p_high.
        laws: by `family on dataset` and N.

    """
    named = table.assign(name=table["family"] + " on " + table["dataset"])
    names, k = list(dict.fromkeys(named["name"])), named["k"].iloc[0]
    lengths = sorted(set(named["N"]))
    colours = dict(zip(map(str, lengths), gradient(len(lengths)), strict=True))
    with style():
        figure, axes = grid_of(names, ["success"], height=3.0, legend=1.3)
        for name in names:
            ax, here = axes[name, "success"], named[(named["name"] == name) & named["p"].notna()]
            s = np.unique(named.loc[named["name"] == name, "S"])
            for n, points in here.groupby("N"):
                drawn = {"fmt": "o", "ms": 4, "capsize": 0, "color": colours[str(n)], "label": f"N = {n}"}
                error_bars(ax, points["S"], points["p"], points["p_low"], points["p_high"], **drawn)
            for (of, n), (law, found) in laws.items():
                if of != name:
                    continue
                colour = colours.get(n, COLOURS[1])
                for low, high, line in ((s[0], s[-1], "-"), (s[-1], 30 * s[-1], "--")):
                    x = np.geomspace(low, high, 60)
                    ax.plot(x, np.exp(-law.predict(x)), line, lw=1.2, color=colour)
                if np.isfinite(found.size.value):
                    ax.plot(found.size.value, 0.5, "x", ms=7, mew=2, color=colour)
            size_axis(ax, [s[0], 20 * s[-1]])
            ax.axhline(0.5, lw=0.8, color="0.5")
            ax.set(title=f"{name}, k = {k}", ylabel="share of windows that succeed", ylim=(-0.03, 1.03))
        legend_of_all(figure, legend=1.3)
        return figure


def draw_answers(table: pd.DataFrame) -> Figure:
    """The share of whole answers against S, k as colour."""
    datasets, ks, names = (sorted(set(table[column])) for column in ("dataset", "k", "family"))
    with style():
        figure, axes = grid_of(datasets, names, legend=1.6)
        for (dataset, name), ax in axes.items():
            mine = table[(table["dataset"] == dataset) & (table["family"] == name)]
            if not len(mine):
                ax.remove()
                continue
            for number, k in enumerate(ks):
                rows, (colour, _) = mine[mine["k"] == k], colour_and_marker(number)
                drawn = {"fmt": "o", "color": colour, "ms": 4, "label": f"k = {k}"}
                error_bars(ax, rows["S"], rows["share"], rows["share_low"], rows["share_high"], **drawn)
                ax.plot(rows["S"], rows["share_by_law"], "-", lw=1, color=colour)
                ax.plot(rows["S"], rows["share_independent"], ":", lw=1.4, color=colour)
            ax.plot([], [], "-", lw=1, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ by its law")
            ax.plot([], [], ":", lw=1.4, color="0.3", label="RBP$_k^{length}$,\nRBP$_k$ measured")
            ax.set(title=f"{name} on {dataset}", ylim=(-0.02, None), ylabel="whole answers with R ≤ k")
            size_axis(ax, mine["S"])
        legend_of_all(figure, legend=1.6)
        return figure
