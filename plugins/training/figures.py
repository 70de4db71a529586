"""Figures of the law in size and training tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis import Drawing
from rbptrack.analysis.family_figures import Curve, curve_panels
from rbptrack.base.words import short_number
from rbptrack.ranks import metric_label

from .rows import Fitted


def draw(laws: Sequence[Fitted]) -> dict[str, Drawing]:
    """Draw each law against training tokens, and at constant compute."""
    against = _panels(laws, _against_tokens, "D, training tokens")
    isoflop = _panels(laws, _isoflop, "S")
    return {
        "against_tokens": Drawing(against, "Points: checkpoints. Lines: the law at each size."),
        "isoflop": Drawing(isoflop, "The law at constant compute C = 6 S D. Dots: the best size."),
    }


def _panels(laws: Sequence[Fitted], curves: Callable[[Fitted], Iterator[Curve]], xlabel: str) -> Figure:
    """Return a panel per law."""
    drawn = []
    for law in laws:
        panel = f"{law.keys['family']}, {law.keys['dataset']}: {metric_label(law.metric)}"
        drawn += [replace(curve, panel=panel) for curve in curves(law)]
    ylabel = "CE in nats, or −ln RBP$_k$"
    return curve_panels(drawn, xlabel=xlabel, ylabel=ylabel, legend=1.5, logs="xy", shades=True)[0]


def _against_tokens(law: Fitted) -> Iterator[Curve]:
    for s in np.unique(law.s):
        label = f"S = {short_number(float(s))}"
        d = law.d[law.s == s]
        line = np.geomspace(d.min(), d.max(), 40)
        yield Curve("", label, "", line, law.law.predict(np.full(40, s), line), options={"marker": ""})
        yield Curve("", label, label, d, law.y[law.s == s], options={"ls": "", "ms": 4, "markevery": 1})


def _isoflop(law: Fitted) -> Iterator[Curve]:
    sizes = np.geomspace(law.s.min() / 2, law.s.max() * 2, 60)
    for i, c in enumerate(law.budgets):
        y = law.law.predict(sizes, c / 6 / sizes)
        best = float(law.law.optimal_size(c))
        series = f"budget {i + 1}"
        yield Curve("", series, f"{series}: C = {c:.1e}", sizes, y, options={"marker": ""})
        if sizes[0] <= best <= sizes[-1]:
            yield Curve("", series, "", [best], law.law.predict([best], [c / 6 / best]), options={"ms": 5})
