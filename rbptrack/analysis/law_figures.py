"""Figures of the laws in size: every law beside every other, exponents by family and by k, CE against -ln RBP_1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from scipy import stats

from rbptrack.analysis.family_figures import (
    Curve,
    FamilyStyle,
    curve_panels,
    dataset_panels,
    family_legends,
    family_styles,
    legend_above,
    say_left_out,
)
from rbptrack.analysis.figures import WIDTH, error_bars, grid, log_axis, style
from rbptrack.analysis.laws import FamilyLaw, by_family
from rbptrack.analysis.published import published_alpha
from rbptrack.ranks import CE, parse_rbp_name, rbp_ks, rbp_name
from rbptrack.stats.power_law import PowerLawFit

_GREY = "#57606a"
_WIDE, _FINE = 2.5, (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)  # ticks where a panel spans less than that squared
_DOTTED = (0, (1, 1.5))  # published


def law_axis_label(metric: str) -> str:
    """The label of an axis with what a law is fitted to: CE, or -ln RBP_k."""
    return "CE, nats per token" if metric == CE else f"−ln RBP$_{{{parse_rbp_name(metric)}}}$"


def draw_laws(laws: Sequence[FamilyLaw], metrics: Sequence[str], *, xlabel: str) -> Figure:
    """Points and laws on logarithmic axes, a row per dataset and a column per metric; figures 3 to 5 of the paper.

    Every panel spans the same factor in y, so that equal exponents have equal slopes. Where the authors published an
    exponent of the family on the dataset, it is drawn too: through the middle of the points, as they print no A.

    Args:
        laws: of the metrics; each family has one colour, marker and line style in all panels.
        metrics: `ce` or `rbp_<k>`, in the order of the columns.
        xlabel: what S is.

    """
    found = {(one.family.dataset, one.metric, one.family.name): one.law for one in laws if one.metric in metrics}
    names = {key[2] for key in found}
    styles = family_styles(names)
    drawn_names = {one.name for one in styles}
    found = {key: law for key, law in found.items() if key[2] in drawn_names}
    datasets = sorted({key[0] for key in found})
    shown = [m for m in metrics if any(key[1] == m for key in found)]
    s = np.concatenate([law.s for law in found.values()])
    spans = {}
    for dataset in datasets:
        for metric in shown:
            y = [law.y for (at, what, _), law in found.items() if (at, what) == (dataset, metric)]
            if y:
                spans[dataset, metric] = float(np.concatenate(y).min()), float(np.concatenate(y).max())
    factor = np.sqrt(max(high / low for low, high in spans.values())) * 1.12
    published = False
    with style():
        height = 2.1 if len(datasets) < 3 else 1.6
        figure, axes = grid(len(datasets), len(shown), height=height, left=0.56, between=0.25, sharex=True)
        for (i, j), ax in np.ndenumerate(axes):
            dataset, metric = datasets[i], shown[j]
            ax.set(xlabel=xlabel, ylabel=law_axis_label(metric), title="" if i else law_axis_label(metric))
            ax.set_label(f"{dataset}: {law_axis_label(metric)}")
            ax.xaxis.label.set_visible(False)
            ax.yaxis.label.set_visible(False)
            for one in styles:
                law = found.get((dataset, metric, one.name))
                if law:
                    error = 1.96 * np.sqrt(np.diag(law.covariance)) * law.y
                    drawn = {"fmt": one.marker, "ms": 4, "color": one.colour, "label": one.name}
                    error_bars(ax, law.s, law.y, law.y - error, law.y + error, capsize=0, **drawn)
                    line = np.array([law.s.min(), law.s.max()])
                    ax.plot(line, law.predict(line), ls=one.line, lw=1.2, color=one.colour)
                    published |= _draw_published(ax, one, dataset, metric, law.s, law.y)
                    if len(styles) == 1:
                        ax.text(0.96, 0.93, f"α = {law.alpha:.3f}", transform=ax.transAxes, ha="right", va="top")
            log_axis(ax.xaxis, low=s.min() / 1.6, high=s.max() * 1.6)
            if (dataset, metric) in spans:
                middle = np.sqrt(np.prod(spans[dataset, metric]))
                log_axis(ax.yaxis, low=middle / factor, high=middle * factor)
                ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if factor > _WIDE else _FINE))
        for dataset, row in zip(datasets, axes, strict=True):
            box = row[0].get_position()
            figure.text(0.008, (box.y0 + box.y1) / 2, dataset, rotation=90, va="center", weight="bold")
        down = figure.get_size_inches()[1]
        figure.text(0.5, 0.06 / down, xlabel, ha="center")
        if len(styles) > 1 or published:
            _legend_above(figure, styles, published=published)
        say_left_out(figure, names)
        return figure


def _draw_published(ax: Any, one: FamilyStyle, dataset: str, metric: str, s: Any, y: Any) -> bool:
    """The published slope through the middle of the points, if there is one."""
    alpha = published_alpha(one.name, dataset, metric)
    if not np.isfinite(alpha):
        return False
    line, middle = np.array([s.min(), s.max()]), np.exp(np.log(s).mean())
    ax.plot(line, np.exp(np.log(y).mean()) * (line / middle) ** -alpha, ls=_DOTTED, lw=1.6, color=one.colour)
    return True


def _legend_above(figure: Figure, styles: Sequence[Any], *, published: bool) -> None:
    """Families in rows above the panels, and what a dotted line means."""
    more = [Line2D([], [], ls=_DOTTED, lw=1.6, color=_GREY, label="published exponent")] if published else []
    legend_above(figure, styles, more)


def draw_exponents(laws: Sequence[FamilyLaw], metrics: Sequence[str]) -> Figure:
    """Alpha of every family with its interval: a panel per metric, a row per dataset; hollow: published."""
    shown = [m for m in metrics if any(one.metric == m for one in laws)]
    datasets = sorted({one.family.dataset for one in laws})
    styles = family_styles(one.family.name for one in laws)
    step = 0.8 / max(len(styles), 1)
    of: dict[tuple[str, str], list[FamilyLaw]] = {}
    for known in laws:
        of.setdefault((known.metric, known.family.name), []).append(known)
    with style():
        height = 1.3 + 0.17 * len(datasets) * max(len(styles), 2)
        longest = max(map(len, datasets), default=0)
        figure, axes = grid(1, len(shown), height=height, left=0.3, sharex=True, sharey=True)
        figure.subplots_adjust(left=(0.45 + 0.085 * longest) / WIDTH)
        for ax, metric in zip(axes[0], shown, strict=True):
            for number, one in enumerate(styles):
                for each in of.get((metric, one.name), []):
                    at = datasets.index(each.family.dataset) + (number - (len(styles) - 1) / 2) * step
                    law = each.law
                    ends = [[max(law.alpha - law.low, 0)], [max(law.high - law.alpha, 0)]]
                    drawn = {"fmt": one.marker, "ms": 4.5, "color": one.colour, "lw": 1.1, "label": one.name}
                    ax.errorbar(law.alpha, at, xerr=np.where(np.isfinite(ends), ends, 0), **drawn)
                    theirs = published_alpha(one.name, each.family.dataset, metric)
                    if np.isfinite(theirs):
                        ax.plot(theirs, at, one.marker, ms=7, mfc="none", mec="black", mew=0.8)
            ax.axvline(0, lw=0.9, color=_GREY)
            title = "α of CE" if metric == CE else f"α of RBP$_{{{parse_rbp_name(metric)}}}$"
            ax.set(title=title, xlabel="α", yticks=range(len(datasets)))
            ax.xaxis.set_major_locator(MaxNLocator(4))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.set_yticklabels(datasets)
            ax.grid(visible=False, axis="y")
        axes[0, 0].set_ylabel("dataset")
        axes[0, 0].set_ylim(len(datasets) - 0.4, -0.6)
        _legend_above(figure, styles, published=False)
        say_left_out(figure, {one.family.name for one in laws})
        return figure


def draw_against_k(laws: Sequence[FamilyLaw], quantity: str, *, ylabel: str) -> tuple[Figure, list[Any]]:
    """A quantity of laws against k, cross-entropy's as a thin line, as in figure 6 of the paper; and its axes.

    Args:
        laws: of RBP_k at many k, and of CE.
        quantity: an attribute of `PowerLawFit`; alpha is drawn with its interval, and published ones beside it.
        ylabel: what it is.

    """
    curves = []
    for _, mine in sorted(by_family(laws).items()):
        family, found = mine[-1].family, {one.metric: one.law for one in mine}
        ks = rbp_ks(found)
        values = {n: [getattr(found[rbp_name(k)], n) for k in ks] for n in (quantity, "low", "high")}
        curve = Curve(family.dataset, family.name, f"{family.name}, RBP$_k$", ks, values[quantity])
        curves.append(replace(curve, low=values["low"], high=values["high"]) if quantity == "alpha" else curve)
        if CE in found and ks:
            level = [getattr(found[CE], quantity)] * 2
            flat = Curve(family.dataset, family.name, f"{family.name}, CE", [ks[0], ks[-1]], level)
            curves.append(replace(flat, options={"lw": 0.8, "markevery": 1}))
        theirs = {k: published_alpha(family.name, family.dataset, rbp_name(k)) for k in ks}
        theirs = {k: alpha for k, alpha in theirs.items() if np.isfinite(alpha)}
        if theirs and quantity == "alpha":
            label = f"{family.name}, published"
            curve = Curve(family.dataset, family.name, label, list(theirs), list(theirs.values()))
            curves.append(replace(curve, options={"ls": "", "mfc": "none", "mec": "black", "ms": 7, "markevery": 1}))
    return curve_panels(curves, xlabel="k", ylabel=ylabel, legend=1.5, sharey=True)


def draw_ce_against_rbp(laws: Sequence[FamilyLaw], k: int) -> tuple[Figure, dict[tuple[str, str], float]]:
    """CE against -ln RBP_k, a point per model and a line per family, as in figure 8a of the paper.

    Returns:
        The figure, and R^2 of each line by dataset and family.

    """
    both: dict[tuple[str, str], dict[str, PowerLawFit]] = {}
    for law in laws:
        if law.metric in (CE, rbp_name(k)):
            both.setdefault((law.family.dataset, law.family.name), {})[law.metric] = law.law
    both = {key: pair for key, pair in both.items() if len(pair) == 2 and len(pair[CE].y) == len(pair[rbp_name(k)].y)}
    r2 = {}
    with style():
        figure, shown = dataset_panels(((name, dataset) for dataset, name in both), height=3.2)
        for ax, dataset, styles in shown:
            for one in styles:
                pair = both[dataset, one.name]
                x, y = pair[rbp_name(k)].y, pair[CE].y
                label = one.name
                if np.ptp(x) > 0:  # else no line is defined: imported shares of few digits may all be equal
                    line = stats.linregress(x, y)
                    r2[dataset, one.name] = float(line.rvalue**2)
                    ends = np.array([x.min(), x.max()])
                    ax.plot(ends, line.intercept + line.slope * ends, ls=one.line, lw=1.2, color=one.colour)
                    label = f"{one.name}: R² = {r2[dataset, one.name]:.4f}"
                ax.plot(x, y, one.marker, ms=4.5, color=one.colour, label=label)
            ax.set(xlabel=law_axis_label(rbp_name(k)), ylabel=law_axis_label(CE))
        family_legends(figure, [ax for ax, *_ in shown], (name for _, name in both), loc="upper left")
        return figure, r2
