"""Figures that a notebook asks for in one call: RBP_k against size, and the ranks of one measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.axes import SIZE, error_bars, k_axis, log_axis
from rbptrack.analysis.families import Family, families
from rbptrack.analysis.family_figures import FamilyStyle, family_legends, family_styles, say_left_out
from rbptrack.analysis.figures import COLOURS, grid, style
from rbptrack.analysis.runs import Runs, Unreadable
from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray, RankHistogram, log_grid, rbp_name, se_name
from rbptrack.stats.power_law import fit_power_law

_NORMAL = 1.96  # standard errors of a 95% interval
_BINS = 40  # of ln k, in the line through P(R = k)
_ROW, _HALF = 3.0, 3.2  # inches: a row of panels; two panels side by side


def draw_against_size(runs: Runs, ks: Sequence[int]) -> Figure:
    """Return -ln RBP_k against S on logarithmic axes: a row per k, a panel per dataset, a colour per family.

    Bars are 95% sampling intervals, where standard errors were logged. Lines are power laws through families of at
    least 3 sizes, fitted as the analyzer `power_law` fits them; the legend gives their exponents.

    Args:
        runs: the measurements; a k that was not logged is counted from their ranks.
        ks: the k of RBP_k, at least one.

    Raises:
        BadInput: a k is below 1 or above |V|, or no measurement has a size S.

    """
    parts = families(runs, [])
    if not ks:
        raise BadInput("nothing to plot: give k=10, or several")
    if not parts:
        raise BadInput("nothing to plot: no measurement has a size S")
    datasets = sorted({family.dataset for family in parts})
    looks = {look.name: look for look in family_styles(family.name for family in parts)}
    with style():
        figure, axes = grid(len(ks), len(datasets), height=_ROW, left=0.9, legend=0.0)
        for (row, column), ax in np.ndenumerate(axes):
            here = [family for family in parts if family.dataset == datasets[column] and family.name in looks]
            sizes = [_draw_family(ax, family, looks[family.name], runs, ks[row]) for family in here]
            every = np.concatenate(sizes)
            ax.set(xlabel=SIZE, ylabel=f"−ln RBP$_{{{ks[row]}}}$", title=datasets[column] if not row else "")
            log_axis(ax.xaxis, low=float(every.min()) / 1.6, high=float(every.max()) * 1.6)
            log_axis(ax.yaxis, low=ax.dataLim.minposy / 1.15, high=ax.dataLim.y1 * 1.15)  # a bar may reach below 0
        family_legends(figure, list(axes.flat), looks, fontsize=8.5)
        say_left_out(figure, {family.name for family in parts})
    return figure


def _draw_family(ax: Any, family: Family, look: FamilyStyle, runs: Runs, k: int) -> FloatArray:
    """Draw one family's points and its law; returns their sizes."""
    y, error = _values(runs, family, k)
    drawn = np.isfinite(y) & (y > 0)  # where every rank is at most k, -ln RBP_k is 0 and has no logarithm
    s = family.s[drawn]
    y = y[drawn]
    error = error[drawn]
    label = look.name
    if len(s) >= 3:
        law = fit_power_law(s, y)
        label = f"{look.name}, α = {law.alpha:.3f}"
        ax.plot(s, law.predict(s), ls=look.line, lw=1.2, color=look.colour)
    points: dict[str, Any] = {"marker": look.marker, "ls": "", "ms": 4.5, "color": look.colour, "label": label}
    error_bars(ax, s, y, y - _NORMAL * error, y + _NORMAL * error, **points)
    return family.s


def _values(runs: Runs, family: Family, k: int) -> tuple[FloatArray, FloatArray]:
    """Return -ln RBP_k per size and its standard error, the mean over the runs of a size, (m,) each; NaN if unknown."""
    shares_by_run = {str(row["run_id"]): _share(runs, row, k) for _, row in family.rows.iterrows()}
    shares = np.array([np.mean([shares_by_run[run_id] for run_id in ids]) for ids in family.run_ids])
    error = family.column(se_name(rbp_name(k)))
    with np.errstate(divide="ignore"):
        return -np.log(shares), error / shares


def _share(runs: Runs, row: pd.Series, k: int) -> float:
    """Return RBP_k as it was logged, else from the ranks; NaN without ranks."""
    logged = row.get(rbp_name(k))
    if logged is not None and not pd.isna(logged):
        return float(logged)
    try:
        return runs.histogram(row).rbp(k)
    except Unreadable:
        return float("nan")


def draw_ranks(histogram: RankHistogram, title: str) -> Figure:
    """Return two panels: P(R = k) against k on logarithmic axes, and RBP_k against k."""
    grid_of_k = log_grid(histogram.vocab_size)
    edges = np.unique(np.rint(np.geomspace(1, histogram.vocab_size + 1, _BINS)).astype(np.int64))
    share = histogram.count / histogram.num_tokens
    mass, _ = np.histogram(histogram.rank, bins=edges, weights=share)
    centre = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    density = mass / np.diff(edges)
    with style():
        figure, axes = grid(1, 2, height=_HALF)
        ranks, hits = axes.flat
        ranks.plot(histogram.rank, share, ".", ms=3, color=COLOURS[4], label="each observed rank")
        ranks.plot(centre[mass > 0], density[mass > 0], lw=1.4, color=COLOURS[0], label="mean in bins of ln k")
        ranks.set(title=title, ylabel="P(R = k)", yscale="log")
        ranks.legend()
        hits.plot(grid_of_k, histogram.rbp_curve(grid_of_k), lw=1.4, color=COLOURS[0])
        hits.set(title="share of tokens with rank at most k", ylabel="RBP$_k$", ylim=(0, 1.02))
        for ax in (ranks, hits):
            k_axis(ax, [1, histogram.vocab_size])
    return figure
