"""Figures of the distribution of ranks: observed and fitted, misfit and parameters over sizes, the paper's appendix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import family_styles, say_left_out
from rbptrack.analysis.figures import (
    COLOURS,
    MARKERS,
    colour_and_marker,
    gradient,
    grid,
    grid_of,
    legend_of_all,
    legend_room,
    length_axis,
    log_axis,
    size_axis,
    style,
)
from rbptrack.ranks import FloatArray
from rbptrack.stats.rank_distributions import CANDIDATES
from rbptrack.stats.rank_sizes import RanksOfSize

Found = Sequence[tuple[Family, Sequence[RanksOfSize]]]


def draw_rank_distributions(found: Found) -> Figure:
    """Observed shares in bins even in ln k, and fits, of each family's largest size: figure 8 of arXiv 2510.20387."""
    return _grid(found, _draw_distribution, ylabel="P(R = k)", height=3.2, legend=2.4)


def _draw_distribution(ax: Any, family: Family, sizes: Sequence[RanksOfSize]) -> None:
    size = sizes[-1]
    h, v = size.histogram, size.histogram.vocab_size
    edges = np.unique(np.rint(np.geomspace(1, v + 1, 48)).astype(np.int64))
    mass, _ = np.histogram(h.rank, bins=edges, weights=h.count / h.num_tokens)
    centre, width = np.sqrt(edges[:-1] * (edges[1:] - 1.0)), np.diff(edges)
    seen = mass > 0
    ax.plot(centre[seen], (mass / width)[seen], "o", ms=3, color="0.35", label="observed")
    grid = np.unique(np.rint(np.geomspace(1, v, 120)).astype(np.int64))
    shown = dict.fromkeys([size.best.candidate.name, "lognormal", "zipf"])
    for name in shown:
        colour, _ = colour_and_marker(list(CANDIDATES).index(name))
        dash = {"lognormal": "--", "zipf": ":"}.get(name, "-")
        fitted = np.exp(size.fits[name].log_pmf[grid - 1])
        ax.plot(grid, fitted, ls=dash, lw=1.4, color=colour, label=CANDIDATES[name].label)
    ax.set(title=f"{family}, {family.labels[-1]}", xlabel="rank k")
    shares = (mass / width)[seen]
    log_axis(ax.xaxis, low=0.8, high=v * 1.25)
    log_axis(ax.yaxis, low=float(shares.min()) / 3, high=float(shares.max()) * 2)


def draw_misfit(found: Found) -> Figure:
    """KL divergence per token of every candidate against S, a panel per family and dataset."""
    return _grid(found, _draw_misfit, ylabel="KL, nats per token", height=3.0, legend=2.4)


def _draw_misfit(ax: Any, family: Family, sizes: Sequence[RanksOfSize]) -> None:
    values = {name: np.array([size.fits[name].kl for size in sizes]) for name in CANDIDATES}
    for number, (name, kl) in enumerate(values.items()):
        look = {"color": COLOURS[number % len(COLOURS)], "ls": "-" if number < len(COLOURS) else "--"}
        ax.plot(family.s, kl, marker=MARKERS[number % len(MARKERS)], ms=3.5, lw=1, label=CANDIDATES[name].label, **look)
    floor = [size.floor for size in sizes]
    ax.plot(family.s, floor, ":", color="0.3", lw=1.4, label="sampling alone")
    every = np.concatenate([*values.values(), floor])
    log_axis(ax.xaxis, low=family.s.min() / 1.5, high=family.s.max() * 1.5)
    log_axis(ax.yaxis, low=every.min() / 1.5, high=every.max() * 1.5)
    ax.set(title=str(family), xlabel="S, non-embedding parameters")


def draw_lognormal_parameters(table: pd.DataFrame) -> Figure:
    """beta, gamma and, where identified, mu/sigma against S."""

    def draw(ax: Any, rows: pd.DataFrame, quantity: str, looks: dict[str, Any]) -> None:
        y, low, high = (rows[f"{quantity}{end}"] for end in ("", "_low", "_high"))
        error = np.clip([y - low, high - y], 0, None)
        ax.errorbar(rows["S"], y, yerr=error, capsize=2, label=" ".join(set(rows["family"])), **looks)
        if quantity == "gamma":
            ax.axhline(0, color="0.4", lw=0.8)

    words = {"beta": "β", "gamma": "γ", "mu_over_sigma": "μ/σ, where identified"}
    return _against_size(table, words, draw, legend=1.2)


def draw_implied(table: pd.DataFrame) -> Figure:
    """Entropy and -ln RBP_1: observed, implied by the lognormal, and by the appendix's integrals."""

    def draw(ax: Any, rows: pd.DataFrame, quantity: str, looks: dict[str, Any]) -> None:
        name = " ".join(set(rows["family"]))
        ax.plot(rows["S"], rows[quantity], "-", label=f"{name}, observed", **looks)
        ax.plot(rows["S"], rows[f"{quantity}_implied"], "--", mfc="none", label=f"{name}, lognormal", **looks)
        ax.plot(rows["S"], rows[f"{quantity}_integral"], ":", color="0.45", lw=1.2, label="appendix's integral")

    words = {"entropy": "entropy of ranks, nats", "neg_log_p1": "−ln RBP$_1$"}
    return _against_size(table, words, draw, legend=1.9, said=", lognormal")


def draw_appendix_terms(table: pd.DataFrame) -> Figure:
    """The appendix's terms of -ln p_1 against S, a panel per family and dataset: side by side, and their sum."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    lines = {
        "square_term": ("μ²/(2σ²)", "-", COLOURS[1]),
        "log_c": ("ln c, exact sum", "-", COLOURS[2]),
        "log_c_integral": ("ln c, appendix's integral", ":", COLOURS[2]),
        "neg_log_p1_implied": ("their sum, −ln p$_1$", "--", COLOURS[0]),
    }
    with style():
        figure, axes = grid_of(datasets, names, legend=1.9)
        for (dataset, name), ax in axes.items():
            rows = table[(table["dataset"] == dataset) & (table["family"] == name)].sort_values("S")
            if not len(rows):
                ax.remove()
                continue
            for column, (label, line, colour) in lines.items():
                ax.plot(rows["S"], rows[column], line, marker="o", ms=3, lw=1.3, color=colour, label=label)
            ax.plot(rows["S"], rows["neg_log_p1"], "s", ms=4.5, mfc="none", color="0.2", label="−ln RBP$_1$ observed")
            ax.axhline(0, color="0.6", lw=0.8)
            size_axis(ax, rows["S"])
            ax.set(title=f"{name} on {dataset}", ylabel="nats")
        legend_of_all(figure, legend=1.9)
        return figure


def _grid(found: Found, draw: Any, *, ylabel: str, height: float, legend: float = 0.0) -> Figure:
    """One panel per dataset (rows) and family (columns)."""
    datasets, names = sorted({f.dataset for f, _ in found}), sorted({f.name for f, _ in found})
    with style():
        figure, axes = grid_of(datasets, names, height=height, legend=legend)
        for family, sizes in found:
            ax = axes.pop((family.dataset, family.name))
            draw(ax, family, sizes)
            ax.set_ylabel(ylabel)
        for spare in axes.values():
            spare.remove()
        if legend:
            legend_of_all(figure, legend=legend)
        return figure


def _against_size(table: pd.DataFrame, words: Mapping[str, str], draw: Any, *, legend: float, said: str = "") -> Figure:
    """One panel per dataset (rows) and quantity (columns), families as colours; `said`: what a label says beside it."""
    datasets, names = sorted(set(table["dataset"])), sorted(set(table["family"]))
    legend = legend_room((name + said for name in names), least=legend)
    with style():
        figure, axes = grid(len(datasets), len(words), legend=legend)
        for (i, j), ax in np.ndenumerate(axes):
            quantity, mine = list(words)[j], table[table["dataset"] == datasets[i]]
            for one in family_styles(names):
                rows = mine[(mine["family"] == one.name) & mine[quantity].notna()]
                draw(ax, rows, quantity, {"color": one.colour, "marker": one.marker, "ms": 4.5, "lw": 1.1})
            if mine[quantity].isna().all():
                ax.text(0.5, 0.5, "not identifiable", transform=ax.transAxes, ha="center", color="0.4")
                ax.set_yticks([])
            log_axis(ax.xaxis, low=mine["S"].min() / 1.5, high=mine["S"].max() * 1.5)
            ax.set(title=datasets[i], xlabel="S, non-embedding parameters", ylabel=words[quantity])
        legend_of_all(figure, legend=legend)
        say_left_out(figure, names)
        return figure


def draw_ranks_at_p(families: Mapping[str, Mapping[str, Mapping[str, FloatArray]]]) -> Figure:
    """Ranks against p(target), as figure 1 of arXiv 2510.20387: a panel per name, two sizes by label.

    Args:
        families: name of the panel -> label -> p, rank_low, rank_median and rank_high of each bin.

    """
    with style():
        figure, axes = grid_of(list(families), ["ranks"], height=3.0)
        for name, sizes in families.items():
            ax = axes[name, "ranks"]
            for (label, at), colour in zip(sizes.items(), (COLOURS[1], COLOURS[0]), strict=False):
                ax.plot(at["p"], at["rank_median"], "-o", ms=3, lw=1.3, color=colour, label=label)
                ax.fill_between(at["p"], at["rank_low"], at["rank_high"], color=colour, alpha=0.15, lw=0)
            x = np.geomspace(1e-6, 1, 50)
            ax.fill_between(x, 1 / x, 1e6, color="0.85", lw=0)
            ax.set(xlabel="p(target)", ylabel="rank", title=name)
            log_axis(ax.xaxis, low=1e-6, high=1.2)
            log_axis(ax.yaxis, low=0.8, high=4 * max(at["rank_high"].max() for at in sizes.values()))
            ax.legend(loc="lower left", fontsize=8)
        return figure


def draw_whole_windows(families: Mapping[str, Mapping[str, FloatArray]]) -> Figure:
    """Success of whole windows against their length, section 5.1 of arXiv 2510.20387.

    Args:
        families: name of the panel -> N, measured, independent, likelihood and exp(-N CE).

    """
    drawn = {
        "measured": ("measured, R = 1", "-o"),
        "independent": ("RBP$_1^N$", "--"),
        "likelihood": ("mean likelihood", "-s"),
        "exp(-N CE)": ("exp(−N CE)", ":"),
    }
    with style():
        figure, axes = grid_of(list(families), ["windows"], height=3.0)
        for name, rows in families.items():
            ax = axes[name, "windows"]
            for (column, (label, line)), colour in zip(drawn.items(), gradient(len(drawn)), strict=True):
                there = rows[column] > 0
                ax.plot(rows["N"][there], rows[column][there], line, ms=3.5, lw=1.3, color=colour, label=label)
            floor = min((value for value in rows["measured"] if value > 0), default=1e-6)
            length_axis(ax)
            log_axis(ax.yaxis, low=floor / 1e3, high=1.5)
            ax.set(title=name, ylabel="probability of the window")
            ax.legend(loc="lower left", fontsize=8)
        return figure
