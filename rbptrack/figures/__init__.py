"""Altair charts for analyzers and for the page, and functions that save charts as files."""

from rbptrack.figures.charts import (
    as_data,
    axis_of,
    by_colour,
    by_shape,
    facets,
    intervals,
    legend_choice,
    rank_distribution,
    save,
    themed,
)
from rbptrack.figures.drawing import CannotDraw
from rbptrack.figures.explorer import explorer

__all__ = [
    "CannotDraw",
    "as_data",
    "axis_of",
    "by_colour",
    "by_shape",
    "explorer",
    "facets",
    "intervals",
    "legend_choice",
    "rank_distribution",
    "save",
    "themed",
]
