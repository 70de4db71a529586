"""The analyzers' public contract: what an analyzer reads, what it returns, and helpers for its figures.

An analyzer imports from here and from `rbptrack.stats`, and nothing else of rbptrack; `rbptrack.analysis.testing` holds
the contract as tests. `rbptrack.analysis.contract` shows a whole analyzer.
"""

from typing import TYPE_CHECKING

from rbptrack.analysis.contract import COLUMNS, Analyzer, Drawing, Report, Runs, Table, Unreadable
from rbptrack.analysis.families import KEYS, Family, families, read_families
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.ranks import (
    CE,
    DocumentCounts,
    RankHistogram,
    RankTable,
    log_grid,
    metric_label,
    parse_rbp_name,
    rbp_ks,
    rbp_name,
    se_name,
)

if TYPE_CHECKING:
    from rbptrack.analysis.figures import (
        COLOURS,
        MARKERS,
        colour_and_marker,
        error_bars,
        gradient,
        grid,
        grid_of,
        legend_of_all,
        log_axis,
        panel_per,
        panels,
        short_number,
        size_axis,
        style,
    )

__all__ = [
    "CE",
    "COLOURS",
    "COLUMNS",
    "KEYS",
    "MARKERS",
    "Analyzer",
    "BadInput",
    "DocumentCounts",
    "Drawing",
    "Family",
    "RankHistogram",
    "RankTable",
    "RbptrackError",
    "Report",
    "Runs",
    "Table",
    "Unreadable",
    "colour_and_marker",
    "error_bars",
    "families",
    "gradient",
    "grid",
    "grid_of",
    "legend_of_all",
    "log_axis",
    "log_grid",
    "metric_label",
    "panel_per",
    "panels",
    "parse_rbp_name",
    "rbp_ks",
    "rbp_name",
    "read_families",
    "se_name",
    "short_number",
    "size_axis",
    "style",
]


def __getattr__(name: str) -> object:
    """The helpers for figures load when they are first used: matplotlib takes half a second."""
    if name in __all__:
        from rbptrack.analysis import figures

        return getattr(figures, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
