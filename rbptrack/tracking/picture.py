"""The picture of a measurement, drawn in milliseconds and without matplotlib, which takes a second to load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from rbptrack.base.words import short_number
from rbptrack.ranks import RankHistogram

_WIDE, _HIGH = 1040, 784  # pixels; halved at the end, so that edges are smooth
_LEFT, _RIGHT, _TOP, _BOTTOM = 130, 24, 90, 96  # around the plot
_POINT = (190, 224, 244)
_LINE = (0, 114, 178)
_GRID = (232, 232, 232)
_INK = (30, 30, 30)
_LETTERS = 22


def draw_rank_distribution(histogram: RankHistogram, title: str, path: Path) -> None:
    """Draw P(R = k) against k, log-log, as a PNG: observed ranks as points, means over bins even in ln k as a line."""
    share = histogram.count / histogram.num_tokens
    across = _Scale(0.8, histogram.vocab_size * 1.25, _LEFT, _WIDE - _RIGHT)
    down = _Scale(float(share.min()) / 2, 2.0, _HIGH - _BOTTOM, _TOP)
    image = Image.new("RGB", (_WIDE, _HIGH), "white")
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(_LETTERS)
    options: dict[str, Any] = {"fill": _INK, "font": font}
    for decade in across.decades():
        x = int(across(decade))
        pen.line([x, _TOP, x, _HIGH - _BOTTOM], fill=_GRID, width=2)
        pen.text((x, _HIGH - _BOTTOM + 24), short_number(decade), anchor="mm", **options)
    for decade in down.decades():
        y = int(down(decade))
        pen.line([_LEFT, y, _WIDE - _RIGHT, y], fill=_GRID, width=2)
        pen.text((_LEFT - 12, y), f"{decade:g}", anchor="rm", **options)
    pixels = np.array(image)
    right = across(histogram.rank).astype(int)
    below = down(share).astype(int)
    for step in np.ndindex(5, 5):
        pixels[below + step[1] - 2, right + step[0] - 2] = _POINT
    image = Image.fromarray(pixels)
    pen = ImageDraw.Draw(image)
    edges = np.unique(np.rint(np.geomspace(1, histogram.vocab_size + 1, 40)).astype(np.int64))
    mass, _ = np.histogram(histogram.rank, bins=edges, weights=share)
    centre = np.sqrt(edges[:-1] * (edges[1:] - 1.0))[mass > 0]
    height = (mass / np.diff(edges))[mass > 0]
    pen.line(np.stack([across(centre), down(height)], axis=1).ravel().tolist(), fill=_LINE, width=4, joint="curve")
    pen.line([_LEFT, _TOP, _LEFT, _HIGH - _BOTTOM, _WIDE - _RIGHT, _HIGH - _BOTTOM], fill=_INK, width=2)
    pen.text((_WIDE / 2, 30), title, anchor="mm", **options)
    pen.text((12, 66), "P(R = k)", anchor="lm", **options)
    legend = "rank k; points: each observed rank, line: mean in bins of ln k"
    pen.text((_WIDE / 2, _HIGH - 26), legend, anchor="mm", **options)
    image.reduce(2).save(path, compress_level=6)


class _Scale:
    """A log10 axis from low to high as pixels."""

    def __init__(self, low: float, high: float, first: int, last: int) -> None:
        self._low = np.log10(low)
        self._high = np.log10(high)
        self._first = first
        self._last = last

    def __call__(self, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        part = (np.log10(np.asarray(values, dtype=np.float64)) - self._low) / (self._high - self._low)
        return np.asarray(self._first + part * (self._last - self._first), dtype=np.float64)

    def decades(self) -> list[float]:
        """Return powers of ten on the axis."""
        return [10.0**power for power in range(int(np.ceil(self._low)), int(np.floor(self._high)) + 1)]
