"""Figures of the limits of the law in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rbptrack.analysis import Drawing
from rbptrack.analysis.axes import k_axis
from rbptrack.analysis.families import Family
from rbptrack.analysis.family_figures import Curve, curve_panels, curves_of
from rbptrack.analysis.figures import COLOURS, panels, style

from .each_k import EachK, LawAtK

_OFF = "departure from a line, ln y"
_LOG = "R² of the fit on log axes"
_EACH_K = "Verdict on the law in size at each k, from k = 1 to |V|."
_DEPARTURE = "Largest departure of the points from a line, in ln y; a power law has 0. Dotted: the margin."
_R2 = "Lines: R² observed; bands: R² that noise and the usual scatter between models leave of a true law ({:z.0%})."
_FILLS: dict[str, tuple[str, str]] = {
    LawAtK.NO_BEND: (COLOURS[0], ""),
    LawAtK.NOISE: ("#d9d9d9", "..."),
    LawAtK.BENDS: (COLOURS[1], "///"),
    LawAtK.INVERSE: (COLOURS[3], "xxx"),
}


def draw(
    judged: Sequence[tuple[Family, EachK]], verdicts: pd.DataFrame, *, margin: float, level: float
) -> dict[str, Drawing]:
    """Draw the verdict of each k, departures from a line, and R² observed and expected.

    Args:
        judged: each family on a dataset, and its law at each k.
        verdicts: the table of that name.
        margin: departure within which a law counts as straight.
        level: nominal coverage of the bands.

    """
    strips = {
        f"{f.name} / {f.dataset}": ([law.k for law in at_each_k.laws], at_each_k.verdicts) for f, at_each_k in judged
    }
    drawings = {"verdict_of_each_k": Drawing(draw_verdicts(strips, _FILLS, ylabel="family / dataset"), _EACH_K)}
    if any(at_each_k.surface for _, at_each_k in judged):
        figure, axes = curve_panels(_curves(verdicts, "departure"), xlabel="k", ylabel=_OFF)
        for ax, edge in product(axes, (-margin, 0.0, margin)):
            ax.axhline(edge, ls=":" if edge else "-", lw=0.8, color="#57606a")
        drawings["departure"] = Drawing(figure, _DEPARTURE)
    figure, axes = curve_panels(_curves(verdicts, "r2", "expected"), xlabel="k", ylabel=_LOG, sharey=True)
    axes[0].set_ylim(max(0.0, np.nanmin([law.r2 for _, at_each_k in judged for law in at_each_k.laws]) - 0.02), 1.003)
    drawings["r2_observed_and_expected"] = Drawing(figure, _R2.format(level))
    return drawings


def _curves(verdicts: pd.DataFrame, quantity: str, ends: str = "") -> list[Curve]:
    """Return a quantity against k, with the ends of its own band or another's."""
    low, high = (verdicts[f"{ends or quantity}_{end}"] for end in ("low", "high"))
    table = verdicts.assign(**{f"{quantity}_low": low, f"{quantity}_high": high})
    return list(curves_of(table, "k", quantity, panel="{dataset}", series="{family}", label="{family}", ends="band"))


def draw_verdicts(
    rows: Mapping[str, tuple[npt.ArrayLike, Sequence[str]]], fills: Mapping[str, tuple[str, str]], *, ylabel: str
) -> Figure:
    """Draw one strip per row, from the smallest k to the largest, filled by the verdict of each k.

    Args:
        rows: name of each strip -> its k, ascending, and the verdict of each.
        fills: verdict -> colour and hatch, in the order of the legend.
        ylabel: what the rows are.

    """
    with style():
        figure, axes = panels(1, 1, height=0.9 + 0.32 * len(rows))
        ax = axes[0, 0]
        for row, (values, verdicts) in enumerate(rows.values()):
            ks = np.asarray(values, dtype=np.float64)
            edges = np.concatenate([[ks[0] / 1.15], np.sqrt(ks[1:] * ks[:-1]), [ks[-1] * 1.15]])
            for left, right, verdict in zip(edges[:-1], edges[1:], verdicts, strict=True):
                colour, hatch = fills[verdict]
                ax.barh(row, right - left, left=left, height=0.72, color=colour, hatch=hatch, lw=0, edgecolor="white")
        ax.set_yticks(range(len(rows)), list(rows))
        ax.invert_yaxis()
        every = np.concatenate([np.asarray(ks, dtype=np.float64) for ks, _ in rows.values()])
        k_axis(ax, every)
        ax.set_ylabel(ylabel)
        ax.grid(visible=False)
        seen = {verdict for _, verdicts in rows.values() for verdict in verdicts}
        shown = [(name, *fill) for name, fill in fills.items() if name in seen]
        handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, colour, hatch in shown]
        figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8)
        return figure
