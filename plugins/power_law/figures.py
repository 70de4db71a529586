"""Figures of the laws in size: every law beside every other, exponents by k, CE against -ln RBP_1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from rbptrack.analysis.axes import error_bars, law_axis_label, log_axis
from rbptrack.analysis.family_figures import (
    Curve,
    FamilyStyle,
    curve_panels,
    family_styles,
    legend_above,
    say_left_out,
)
from rbptrack.analysis.figures import grid, style
from rbptrack.analysis.laws import FamilyLaw, by_family
from rbptrack.analysis.marks import mark
from rbptrack.analysis.published import published_alpha
from rbptrack.base.words import short_number
from rbptrack.ranks import CE, FloatArray, rbp_ks, rbp_name
from rbptrack.stats.linear import straight_line
from rbptrack.stats.power_law import PowerLawFit

_WIDE, _FINE = 2.5, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # ticks where a panel spans less than that squared
Curves = Mapping[tuple[str, str, str], tuple[FloatArray, FloatArray]]
"""S and y of curves, by dataset, metric and family."""
_DOTTED = (0, (1, 1.5))  # published


def draw_laws(
    laws: Sequence[FamilyLaw], metrics: Sequence[str], *, xlabel: str, curves: Curves | None = None
) -> Figure:
    """Return points and laws on logarithmic axes, a row per dataset and a column per metric; figures 3 to 5 of the
    paper.

    Every panel spans the same factor in y, so that equal exponents have equal slopes. Where the authors published an
    exponent of the family on the dataset, it is drawn too: through the middle of the points, as they print no A.

    Args:
        laws: of the metrics; each family has one colour, marker and line style in all panels.
        metrics: `ce` or `rbp_<k>`, in the order of the columns.
        xlabel: what S is.
        curves: others through the same points, drawn as black dashes.

    """
    by_panel = {(law.family.dataset, law.metric, law.family.name): law.law for law in laws if law.metric in metrics}
    names = {key[2] for key in by_panel}
    styles = family_styles(names)
    drawn = {look.name for look in styles}
    by_panel = {key: law for key, law in by_panel.items() if key[2] in drawn}
    datasets = sorted({key[0] for key in by_panel})
    shown = [m for m in metrics if any(key[1] == m for key in by_panel)]
    s = np.concatenate([law.s for law in by_panel.values()])
    spans = {}
    for dataset in datasets:
        for metric in shown:
            y = [law.y for (at, what, _), law in by_panel.items() if (at, what) == (dataset, metric)]
            if y:
                spans[dataset, metric] = float(np.concatenate(y).min()), float(np.concatenate(y).max())
    factor = np.sqrt(max(high / low for low, high in spans.values())) * 1.12
    published = False
    with style():
        figure, axes = grid(len(datasets), len(shown), height=2.4, left=0.5, between=0.85)
        for (i, j), ax in np.ndenumerate(axes):
            dataset = datasets[i]
            metric = shown[j]
            title = f"{dataset}: {law_axis_label(metric)}"
            ax.set(xlabel=xlabel, title=title)
            ax.set_label(title)
            mark(ax, dataset=dataset, metric=metric)
            for look in styles:
                law = by_panel.get((dataset, metric, look.name))
                if law:
                    _draw_law(ax, look, law)
                    if curve := (curves or {}).get((dataset, metric, look.name)):
                        ax.plot(*curve, ls="--", lw=1.0, color="black")
                    published |= _draw_published(ax, look, dataset, metric, law.s, law.y)
                    if len(styles) == 1:
                        ax.text(0.96, 0.93, f"α = {law.alpha:.3f}", transform=ax.transAxes, ha="right", va="top")
            log_axis(ax.xaxis, low=s.min() / 1.6, high=s.max() * 1.6)
            if (dataset, metric) in spans:
                middle = np.sqrt(np.prod(spans[dataset, metric]))
                log_axis(ax.yaxis, low=middle / factor, high=middle * factor)
                ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if factor > _WIDE else _FINE))
        if len(styles) > 1 or published:
            dotted = Line2D([], [], ls=_DOTTED, lw=1.6, color="#57606a", label="published exponent")
            legend_above(figure, styles, [dotted] * published)
        say_left_out(figure, names)
        return figure


def _draw_law(ax: Any, look: FamilyStyle, law: PowerLawFit) -> None:
    """Points with their intervals, and the line through them."""
    error = 1.96 * np.sqrt(np.diag(law.covariance)) * law.y
    low = law.y - error
    high = law.y + error
    titles = [
        f"{look.name}, S = {short_number(law.s[i])}: {law.y[i]:.3f} ({low[i]:.3f} to {high[i]:.3f})"
        for i in range(len(law.s))
    ]
    drawn = {"marker": look.marker, "ls": "", "ms": 4, "color": look.colour, "label": look.name}
    error_bars(ax, law.s, law.y, low, high, series=look.name, titles=titles, **drawn)
    ends = np.array([law.s.min(), law.s.max()])
    (line,) = ax.plot(ends, law.predict(ends), ls=look.line, lw=1.2, color=look.colour)
    mark(line, series=look.name)


def _draw_published(ax: Any, look: FamilyStyle, dataset: str, metric: str, s: Any, y: Any) -> bool:
    """Return the published slope through the middle of the points, if one was published."""
    alpha = published_alpha(look.name, dataset, metric)
    if not np.isfinite(alpha):
        return False
    line = np.array([s.min(), s.max()])
    middle = np.exp(np.log(s).mean())
    level = np.exp(np.log(y).mean())
    (drawn,) = ax.plot(line, level * (line / middle) ** -alpha, ls=_DOTTED, lw=1.6, color=look.colour)
    mark(drawn, series=look.name)
    return True


def draw_against_k(laws: Sequence[FamilyLaw], quantity: str, *, ylabel: str) -> tuple[Figure, list[Any]]:
    """Return a quantity of laws against k, cross-entropy's as a thin line, as in figure 6 of the paper; and its axes.

    Args:
        laws: of RBP_k at many k, and of CE.
        quantity: an attribute of `PowerLawFit`; alpha is drawn with its interval, and published ones beside it.
        ylabel: what it is.

    """
    curves = []
    for _, family_laws in sorted(by_family(laws).items()):
        family = family_laws[-1].family
        by_metric = {law.metric: law.law for law in family_laws}
        ks = rbp_ks(by_metric)
        values = {n: [getattr(by_metric[rbp_name(k)], n) for k in ks] for n in (quantity, "low", "high")}
        curve = Curve(family.dataset, family.name, family.name, ks, values[quantity])
        curves.append(replace(curve, low=values["low"], high=values["high"]) if quantity == "alpha" else curve)
        if CE in by_metric and ks:
            level = [getattr(by_metric[CE], quantity)] * 2
            flat = Curve(family.dataset, family.name, "", [ks[0], ks[-1]], level)
            curves.append(replace(flat, options={"lw": 0.8, "markevery": 1}))
        theirs = {k: published_alpha(family.name, family.dataset, rbp_name(k)) for k in ks}
        theirs = {k: alpha for k, alpha in theirs.items() if np.isfinite(alpha)}
        if theirs and quantity == "alpha":
            label = f"{family.name}, published"
            curve = Curve(family.dataset, family.name, label, list(theirs), list(theirs.values()))
            curves.append(replace(curve, options={"ls": "", "mfc": "none", "mec": "black", "ms": 7, "markevery": 1}))
    return curve_panels(curves, xlabel="k", ylabel=ylabel, legend=1.5, sharey=True)


def draw_ce_against_rbp(laws: Sequence[FamilyLaw], k: int) -> tuple[Figure, dict[tuple[str, str], float]]:
    """Return CE against -ln RBP_k, a point per model and a line per family, as in figure 8a of the paper.

    Returns:
        The figure, and R^2 of each line by dataset and family.

    """
    both: dict[tuple[str, str], dict[str, PowerLawFit]] = {}
    for law in laws:
        if law.metric in (CE, rbp_name(k)):
            both.setdefault((law.family.dataset, law.family.name), {})[law.metric] = law.law
    both = {key: pair for key, pair in both.items() if len(pair) == 2 and len(pair[CE].y) == len(pair[rbp_name(k)].y)}
    r2 = {}
    curves = []
    for (dataset, name), pair in both.items():
        x = pair[rbp_name(k)].y
        y = pair[CE].y
        label = name
        look = {"marker": ""}
        if np.ptp(x) > 0:  # else no line is defined: imported shares of few digits may all be equal
            line = straight_line(x, y)
            r2[dataset, name] = float(line.r2)
            ends = np.array([x.min(), x.max()])
            curves.append(Curve(dataset, name, "", ends, line.intercept + line.slope * ends, options=look))
            label = f"{name}: R² = {r2[dataset, name]:.4f}"
        curves.append(Curve(dataset, name, label, x, y, options={"ls": "", "ms": 4.5, "markevery": 1}))
    xlabel = law_axis_label(rbp_name(k))
    ylabel = law_axis_label(CE)
    return curve_panels(curves, xlabel=xlabel, ylabel=ylabel, logs="", height=3.2)[0], r2
