"""Altair charts for analyzers and for the page, and functions that save charts as files."""

from rbptrack.figures.charts import (
    axis_encoding,
    by_colour,
    facets,
    inline_data,
    intervals,
    legend_selection,
    save,
    themed,
)
from rbptrack.figures.drawing import CannotDraw
from rbptrack.figures.explorer import explorer

__all__ = [
    "CannotDraw",
    "axis_encoding",
    "by_colour",
    "explorer",
    "facets",
    "inline_data",
    "intervals",
    "legend_selection",
    "save",
    "themed",
]
