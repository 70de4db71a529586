"""Charts of Altair: the shapes that analyzers share, the page's explorer, and charts as files."""

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
