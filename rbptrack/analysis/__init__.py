"""The analyzers' public contract: what an analyzer reads, what it returns, and helpers for its figures.

An analyzer imports from here and from `rbptrack.stats`, and nothing else of rbptrack; `rbptrack.analysis.testing` holds
the contract as tests. `rbptrack.analysis.contract` shows a whole analyzer.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rbptrack.analysis.contract import COLUMNS, Analyzer, Drawing, Report, Runs, Table, Unreadable, WithoutRanks
from rbptrack.analysis.families import KEYS, Family, families, interval_columns, read_families
from rbptrack.analysis.sizes import SizeUnit
from rbptrack.analysis.tables import LAW_COLUMNS, interval_cells, k_ranges, law_cells, shared_columns
from rbptrack.analysis.words import at_least, be, counted, listed, number, p_in_words, some_of, spread, tallied
from rbptrack.errors import BadInput, RbptrackError
from rbptrack.names import metric_part
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
    from rbptrack.analysis.family_figures import (
        Curve,
        curve_panels,
        dataset_panels,
        draw_verdicts,
        family_legends,
        family_styles,
    )
    from rbptrack.analysis.figures import (
        COLOURS,
        MARKERS,
        colour_and_line,
        colour_and_marker,
        error_bars,
        gradient,
        grid,
        grid_of,
        k_axis,
        legend_of_all,
        legend_room,
        length_axis,
        log_axis,
        panel_per,
        panels,
        short_number,
        size_axis,
        style,
    )
    from rbptrack.analysis.law_figures import (
        draw_against_k,
        draw_ce_against_rbp,
        draw_exponents,
        draw_laws,
        law_axis_label,
    )
    from rbptrack.analysis.laws import FamilyLaw, LawReader, by_family, equally_trained, pooled_families
    from rbptrack.analysis.published import PUBLISHED_IN, published_beta, published_in_k, published_in_size
    from rbptrack.analysis.rank_figures import (
        draw_appendix_terms,
        draw_implied,
        draw_lognormal_parameters,
        draw_misfit,
        draw_rank_distributions,
    )

__all__ = [
    "CE",
    "COLOURS",
    "COLUMNS",
    "KEYS",
    "LAW_COLUMNS",
    "MARKERS",
    "PUBLISHED_IN",
    "Analyzer",
    "BadInput",
    "Curve",
    "DocumentCounts",
    "Drawing",
    "Family",
    "FamilyLaw",
    "LawReader",
    "RankHistogram",
    "RankTable",
    "RbptrackError",
    "Report",
    "Runs",
    "SizeUnit",
    "Table",
    "Unreadable",
    "WithoutRanks",
    "at_least",
    "be",
    "by_family",
    "colour_and_line",
    "colour_and_marker",
    "counted",
    "curve_panels",
    "dataset_panels",
    "draw_against_k",
    "draw_appendix_terms",
    "draw_ce_against_rbp",
    "draw_exponents",
    "draw_implied",
    "draw_laws",
    "draw_lognormal_parameters",
    "draw_misfit",
    "draw_rank_distributions",
    "draw_verdicts",
    "equally_trained",
    "error_bars",
    "families",
    "family_legends",
    "family_styles",
    "gradient",
    "grid",
    "grid_of",
    "interval_cells",
    "interval_columns",
    "k_axis",
    "k_ranges",
    "law_axis_label",
    "law_cells",
    "legend_of_all",
    "legend_room",
    "length_axis",
    "listed",
    "log_axis",
    "log_grid",
    "metric_label",
    "metric_part",
    "number",
    "p_in_words",
    "panel_per",
    "panels",
    "parse_rbp_name",
    "pooled_families",
    "published_beta",
    "published_in_k",
    "published_in_size",
    "rbp_ks",
    "rbp_name",
    "read_families",
    "se_name",
    "shared_columns",
    "short_number",
    "size_axis",
    "some_of",
    "spread",
    "style",
    "tallied",
]


def __getattr__(name: str) -> object:
    """Laws and figures load when they are first used: scipy and matplotlib take half a second each."""
    if name in __all__:
        for module in ("laws", "published", "figures", "family_figures", "law_figures", "rank_figures"):
            home = import_module(f"{__name__}.{module}")
            if name in vars(home):
                return vars(home)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
