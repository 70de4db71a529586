"""Figures of families: one panel per dataset, one colour and marker per family."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rbptrack.analysis.figures import colour_and_marker, legend_of_all, log_axis, panel_per, panels, style
from rbptrack.analysis.laws import FamilyLaw
from rbptrack.ranks import CE, parse_rbp_name, rbp_ks, rbp_name


class FamilyStyle(NamedTuple):
    """How a family is drawn, the same in every panel of a figure."""

    name: str
    colour: str
    marker: str


def dataset_panels(
    families: Iterable[tuple[str, str]], **options: Any
) -> tuple[Figure, list[tuple[Any, str, list[FamilyStyle]]]]:
    """A figure with one panel per dataset, in which each family has the same colour and marker.

    Args:
        families: (family, dataset) of all that is drawn.
        options: of `panel_per`.

    Returns:
        The figure, and for each panel its axes, its dataset, and its families.

    """
    there = set(families)
    datasets, names = sorted({dataset for _, dataset in there}), sorted({name for name, _ in there})
    figure, axes = panel_per(datasets, **options)
    styles = [FamilyStyle(name, *colour_and_marker(number)) for number, name in enumerate(names)]
    return figure, [
        (ax, dataset, [one for one in styles if (one.name, dataset) in there])
        for ax, dataset in zip(axes, datasets, strict=True)
    ]


@dataclass(frozen=True)
class Curve:
    """A line of a panel, with a band around it where one is known.

    Attributes:
        dataset: the panel.
        family: decides the colour.
        label: for the legend.
        x: of the points, (points,).
        y: likewise.
        low: lower edge of the band, (points,); None: no band.
        high: upper edge.
        options: of `Axes.plot`.

    """

    dataset: str
    family: str
    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def curve_panels(
    curves: Sequence[Curve], *, xlabel: str, ylabel: str, legend: float = 0.0, **options: Any
) -> tuple[Figure, list[Any]]:
    """A figure in the common style, one panel per dataset, its x axis logarithmic, one colour per family; and its axes.

    Args:
        curves: what to draw, in the order of the legend.
        xlabel: of every panel.
        ylabel: of every panel.
        legend: inches kept free at the right for one legend of all panels; 0: each panel has its own.
        options: of `panel_per`.

    """
    with style():
        figure, panels = dataset_panels(
            ((curve.family, curve.dataset) for curve in curves), **({"legend": legend} if legend else {}), **options
        )
        for ax, dataset, families in panels:
            colours = {family.name: family.colour for family in families}
            for curve in (one for one in curves if one.dataset == dataset):
                colour = colours[curve.family]
                ax.plot(curve.x, curve.y, label=curve.label, color=colour, **{"lw": 1.5, **curve.options})
                if curve.low is not None and curve.high is not None:
                    ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
            ax.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
            if not legend:
                ax.legend(fontsize=8)
        if legend:
            legend_of_all(figure, legend=legend)
        return figure, [ax for ax, *_ in panels]


def law_axis_label(metric: str) -> str:
    """The label of an axis with what a law is fitted to: CE, or -ln RBP_k."""
    return "CE, nats per token" if metric == CE else f"−ln RBP$_{{{parse_rbp_name(metric)}}}$"


def draw_laws(laws: Sequence[FamilyLaw], metric: str, *, xlabel: str) -> Figure:
    """Points and laws on two logarithmic axes, as in figures 3 to 5 of arXiv 2510.20387.

    Args:
        laws: of every metric: each of their families has a panel and a colour, also where it lacks this metric's law.
        metric: `ce` or `rbp_<k>`.
        xlabel: what S is.

    """
    found = {(one.family.name, one.family.dataset): one.law for one in laws if one.metric == metric}
    with style():
        figure, shown = dataset_panels((one.family.name, one.family.dataset) for one in laws)
        for ax, dataset, styles in shown:
            drawn = [(found[one.name, dataset], one) for one in styles if (one.name, dataset) in found]
            for law, (name, colour, marker) in drawn:
                line = np.geomspace(law.s.min(), law.s.max(), 50)
                label = f"{name}: α = {law.alpha:.3f}, R² = {law.r2:.3f}"
                error = 1.96 * np.sqrt(np.diag(law.covariance)) * law.y
                ax.errorbar(law.s, law.y, yerr=error, fmt=marker, ms=4.5, color=colour, label=label)
                ax.plot(line, law.predict(line), "-", lw=1.2, color=colour)
            ax.set(xlabel=xlabel, ylabel=law_axis_label(metric))
            if drawn:
                s, y = np.concatenate([law.s for law, _ in drawn]), np.concatenate([law.y for law, _ in drawn])
                log_axis(ax.xaxis, low=s.min() / 1.5, high=s.max() * 1.5)
                room = (y.max() / y.min()) ** (0.13 * len(drawn) + 0.05)  # for a legend line per family
                log_axis(ax.yaxis, low=y.min() / 1.12, high=y.max() * room)
                ax.legend(loc="upper right", fontsize=8)
        return figure


def draw_against_k(laws: Sequence[FamilyLaw], quantity: str, *, ylabel: str) -> tuple[Figure, list[Any]]:
    """A quantity of laws against k, cross-entropy's as a dashed line, as in figure 6 of arXiv 2510.20387; and its axes.

    Args:
        laws: of RBP_k at many k, and of CE.
        quantity: an attribute of `PowerLawFit`; alpha is drawn with its interval.
        ylabel: what it is.

    """
    curves = []
    for path, family in sorted({one.family.path: one.family for one in laws}.items()):
        found = {one.metric: one.law for one in laws if one.family.path == path}
        ks = rbp_ks(found)
        values = {n: [getattr(found[rbp_name(k)], n) for k in ks] for n in (quantity, "low", "high")}
        curve = Curve(family.dataset, family.name, f"{family.name}, RBP$_k$", ks, values[quantity])
        curves.append(replace(curve, low=values["low"], high=values["high"]) if quantity == "alpha" else curve)
        if CE in found and ks:
            level = [getattr(found[CE], quantity)] * 2
            dashed = Curve(family.dataset, family.name, f"{family.name}, CE", [ks[0], ks[-1]], level)
            curves.append(replace(dashed, options={"ls": "--", "lw": 1.1}))
    return curve_panels(curves, xlabel="k", ylabel=ylabel, legend=1.4, sharey=True)


def draw_verdicts(
    rows: Mapping[str, tuple[npt.ArrayLike, Sequence[str]]], fills: Mapping[str, tuple[str, str]], *, ylabel: str
) -> Figure:
    """One strip per row, from the smallest k to the largest, filled by the verdict of each k.

    Args:
        rows: name of each strip -> its k, ascending, and the verdict of each.
        fills: verdict -> colour and hatch, in the order of the legend.
        ylabel: what the rows are.

    """
    with style():
        figure, axes = panels(1, 1, width=7.2, height=0.9 + 0.32 * len(rows))
        ax = axes[0, 0]
        for row, (values, verdicts) in enumerate(rows.values()):
            ks = np.asarray(values, dtype=np.float64)
            edges = np.concatenate([[ks[0] / 1.15], np.sqrt(ks[1:] * ks[:-1]), [ks[-1] * 1.15]])
            for left, right, verdict in zip(edges[:-1], edges[1:], verdicts, strict=True):
                colour, hatch = fills[verdict]
                ax.barh(row, right - left, left=left, height=0.72, color=colour, hatch=hatch, lw=0, edgecolor="white")
        ax.set_yticks(range(len(rows)), list(rows))
        ax.invert_yaxis()
        ax.set(xscale="log", xlabel="k", ylabel=ylabel)
        ax.grid(visible=False)
        seen = {verdict for _, verdicts in rows.values() for verdict in verdicts}
        shown = [(name, *fill) for name, fill in fills.items() if name in seen]
        handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, colour, hatch in shown]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8)
        return figure
