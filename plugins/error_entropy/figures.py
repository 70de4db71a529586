"""Figures of the parts of cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rbptrack.analysis.axes import SIZE, log_axis
from rbptrack.analysis.family_figures import Curve, curve_panels

from .parts import FITS, PARTS, Parts

_SYMBOLS = {"ce": "CE", "error_entropy": "H(P)", "self_alignment": "KL", "confidence": "−ln Z"}


def draw_parts(families: Sequence[Parts]) -> Figure:
    """Draw the parts in nats on the left, and on the right those that are positive, with their laws, on log axes."""
    curves = list[Curve]()
    for parts in families:
        curves += _nats(parts)
        curves += _laws(parts)
    figure, axes = curve_panels(curves, xlabel=SIZE, ylabel="nats per token", columns=2, height=3.2)
    for ax, parts in zip(axes[1::2], families, strict=True):
        above = np.concatenate([parts.values[part] for part in parts.shown if (parts.values[part] > 0).all()])
        low = above.min()
        high = above.max()
        log_axis(ax.yaxis, low=low / (high / low) ** 0.45, high=high * 1.3)
    return figure


def _labels(parts: Parts) -> dict[str, str]:
    """Return each shown part, and how the legend calls it."""
    words = zip(parts.shown.items(), PARTS, strict=True)
    return {part: word if part == "ce" else f"{word} {_SYMBOLS[name]}" for (part, word), name in words}


def _nats(parts: Parts) -> list[Curve]:
    panel = str(parts.family)
    curves = []
    for part, label in _labels(parts).items():
        y = parts.values[part]
        half = 1.96 * parts.errors[part]
        curves.append(Curve(panel, label, label, parts.family.s, y, y - half, y + half, bars=True))
    return curves


def _laws(parts: Parts) -> list[Curve]:
    panel = f"{parts.family}: laws"
    s = parts.family.s
    line = np.geomspace(s.min(), s.max(), 40)
    curves = []
    for part, label in _labels(parts).items():
        y = parts.values[part]
        if not (y > 0).all():
            continue
        half = 1.96 * parts.errors[part]
        law = parts.laws.get(part)
        holds = law is not None and law.low > 0 and law.r2 >= FITS
        legend = f"{label}: α = {law.alpha:.3f}" if law and holds else f"{label}: no law"
        curves.append(Curve(panel, label, legend, s, y, y - half, y + half, bars=True, options={"ls": ""}))
        if law:
            look = {"ls": "-" if holds else ":", "marker": "", "lw": 1.1}
            curves.append(Curve(panel, label, "", line, law.predict(line), options=look))
    return curves
