"""Names of a drawing's parts, which its SVG keeps: what a page shows, hides and labels them by."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure

_POINT = 72  # per inch


def mark(artist: Any, *, titles: Sequence[str] = (), **names: str) -> None:
    """Name a part of a drawing.

    Args:
        artist: a panel, line or legend.
        titles: one for each point that it draws, in their order: shown where the point is pointed at.
        names: such as `metric="rbp_10"`; they become `data-metric` and so on.

    """
    artist.set_gid(json.dumps(names | ({"titles": list(titles)} if titles else {})))


def mark_boxes(figure: Figure) -> None:
    """Mark every panel, legend and text of a laid-out figure with the box that it fills, so that it can stand alone."""
    scale = _POINT / figure.dpi
    down = figure.get_size_inches()[1] * _POINT
    width, height = figure.bbox.size
    # one for all: without it, each panel makes its own, in 10 ms
    pen = RendererAgg(width, height, figure.dpi)  # type: ignore[no-untyped-call]
    parts: list[tuple[Any, str, Any]]
    parts = [(ax, "panel", ax.get_tightbbox(pen, bbox_extra_artists=list(ax.texts))) for ax in figure.axes]
    parts += [(legend, "legend", legend.get_window_extent(pen)) for legend in figure.legends]
    parts += [(text, "text", text.get_window_extent(pen)) for text in figure.texts if text.get_text()]
    boxes = [(part, kind, box) for part, kind, box in parts if box is not None]  # None: not visible
    panels = [box for _, kind, box in boxes if kind == "panel"]
    across = max((box.width for box in panels), default=0.0)
    high = max((box.height for box in panels), default=0.0)
    for part, kind, box in boxes:
        wide, tall = (across, high) if kind == "panel" else (box.width, box.height)  # so that panels are alike
        corner = f"{(box.x1 - wide) * scale - 1:.0f} {down - box.y1 * scale - 1:.0f}"
        names = json.loads(part.get_gid() or "{}")
        label = _plain(part.get_label() or part.get_title()) if kind == "panel" else kind
        names |= {"part": kind, "label": label, "box": f"{corner} {wide * scale + 2:.0f} {tall * scale + 2:.0f}"}
        mark(part, **names)


def _plain(text: str) -> str:
    """Return a title without formulas."""
    return re.sub(r"\$_\{?(\w+)\}?\$", r"_\1", text).replace("\n", " ").replace("$", "")
