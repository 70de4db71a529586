"""Figures of the distribution of ranks: observed and fitted, misfit and parameters over sizes, the paper's appendix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rbptrack.analysis.axes import SIZE
from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.figures import COLOURS, colour_and_marker

from .rank_distributions import CANDIDATES
from .rank_sizes import RanksOfSize

Fitted = Sequence[tuple[Family, Sequence[RanksOfSize]]]


def draw_rank_distributions(fitted: Fitted) -> Figure:
    """Return observed shares in bins even in ln k, and fits, of each family's largest size: figure 8 of arXiv
    2510.20387.
    """
    curves = [curve for family, sizes in fitted for curve in _distribution(family, sizes[-1])]
    return curve_panels(curves, xlabel="rank k", ylabel="P(R = k)", legend=2.4, logs="xy")[0]


def _distribution(family: Family, size: RanksOfSize) -> Iterator[Curve]:
    panel = f"{family}, {family.labels[-1]}"
    h = size.histogram
    v = h.vocab_size
    edges = np.unique(np.rint(np.geomspace(1, v + 1, 48)).astype(np.int64))
    mass, _ = np.histogram(h.rank, bins=edges, weights=h.count / h.num_tokens)
    seen = mass > 0
    shares = mass / np.diff(edges)
    points = {"ls": "", "marker": "o", "ms": 3, "color": "0.35", "markevery": 1}
    centre = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    yield Curve(panel, "observed", "observed", centre[seen], shares[seen], options=points)
    grid = np.unique(np.rint(np.geomspace(1, v, 120)).astype(np.int64))
    for name in dict.fromkeys([size.best.candidate.name, "lognormal", "zipf"]):
        y = np.exp(size.fits[name].log_pmf[grid - 1])
        shown = y > shares[seen].min() / 3
        label = CANDIDATES[name].label
        look = {"color": colour_and_marker(list(CANDIDATES).index(name))[0], "marker": ""}
        look["ls"] = {"lognormal": "--", "zipf": ":"}.get(name, "-")
        yield Curve(panel, label, label, grid[shown], y[shown], options=look)


def draw_misfit(fitted: Fitted) -> Figure:
    """Return KL divergence per token of every candidate against S, a panel per family and dataset."""
    curves = []
    for family, sizes in fitted:
        for name, candidate in CANDIDATES.items():
            kl = [size.fits[name].kl for size in sizes]
            curves.append(Curve(str(family), candidate.label, candidate.label, family.s, kl))
        floor = [size.floor for size in sizes]
        look = {"ls": ":", "marker": "", "color": "0.3"}
        curves.append(Curve(str(family), "sampling alone", "sampling alone", family.s, floor, options=look))
    return curve_panels(curves, xlabel=SIZE, ylabel="KL, nats per token", legend=2.4, logs="xy")[0]


def draw_lognormal_parameters(table: pd.DataFrame) -> Figure:
    """Return beta, gamma and, where identified, mu/sigma against S."""
    curves: list[Curve] = []
    for dataset, rows in table.groupby("dataset", sort=False):
        for quantity, word in {"beta": "β", "gamma": "γ", "mu_over_sigma": "μ/σ, where identified"}.items():
            panel = f"{dataset}: {word}"
            curves += curves_of(rows, "S", quantity, panel=panel, series="{family}", label="{family}", ends="bars")
    return curve_panels(curves, xlabel=SIZE, ylabel="parameter", legend=1.2)[0]


def draw_implied(table: pd.DataFrame) -> Figure:
    """Return entropy and -ln RBP_1: observed, implied by the lognormal, and by the appendix's integrals."""
    curves: list[Curve] = []
    for quantity, word in {"entropy": "entropy of ranks", "neg_log_p1": "−ln RBP$_1$"}.items():
        lines = {"": ("{family}, observed", {"ls": "-"})}
        lines["_implied"] = ("{family}, lognormal", {"ls": "--", "mfc": "none"})
        lines["_integral"] = ("appendix's integral", {"ls": ":", "marker": "", "color": "0.45"})
        for end, (label, look) in lines.items():
            panel = "{dataset}: " + word
            named = curves_of(table, "S", quantity + end, panel=panel, series="{family}", label=label, **look)
            curves += named if "{" in label else (replace(curve, label=label) for curve in named)
    return curve_panels(curves, xlabel=SIZE, ylabel="nats", legend=1.9, columns=2)[0]


def draw_appendix_terms(table: pd.DataFrame) -> Figure:
    """Return the appendix's terms of -ln p_1 against S, a panel per family and dataset: side by side, and their sum."""
    lines = {
        "square_term": ("μ²/(2σ²)", "-", COLOURS[1]),
        "log_c": ("ln c, exact sum", "-", COLOURS[2]),
        "log_c_integral": ("ln c, appendix's integral", ":", COLOURS[2]),
        "neg_log_p1_implied": ("their sum, −ln p$_1$", "--", COLOURS[0]),
        "neg_log_p1": ("−ln RBP$_1$ observed", "", "0.2"),
    }
    curves: list[Curve] = []
    for column, (label, line, colour) in lines.items():
        look = {"ls": line, "color": colour, "marker": "o" if line else "s", "mfc": colour if line else "none"}
        curves += curves_of(table, "S", column, panel="{family} on {dataset}", series=label, label=label, **look)
    figure, axes = curve_panels(curves, xlabel=SIZE, ylabel="nats", legend=1.9)
    for ax in axes:
        ax.axhline(0, color="0.6", lw=0.8)
    return figure
