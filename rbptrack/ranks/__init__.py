"""Ranks as data: one row per scored token (`RankTable`), counts by rank (`RankHistogram`), sums per document.

Every metric derives from these, so that no model runs again for a new k, window or fit; `rbptrack.ranks.measurement` is
one model's.
"""

from rbptrack.ranks.columns import ADDED, COMPARED, IDS, SCHEMA, VERSION, version_of
from rbptrack.ranks.counts import DocumentCounts, DocumentMeans, DocumentSums, sum_by
from rbptrack.ranks.histogram import ABOVE_ZERO, RankHistogram
from rbptrack.ranks.names import (
    CE,
    HEADLINE_KS,
    FloatArray,
    IntArray,
    check_k,
    is_rbp_column,
    log_grid,
    metric_label,
    parse_rbp_name,
    rbp_ks,
    rbp_name,
    se_name,
)
from rbptrack.ranks.rank_and_rest import BANDS, RankAndRest, histogram_parts, split_sums
from rbptrack.ranks.table import LacksColumn, RankTable

__all__ = [
    "ABOVE_ZERO",
    "ADDED",
    "BANDS",
    "CE",
    "COMPARED",
    "HEADLINE_KS",
    "IDS",
    "SCHEMA",
    "VERSION",
    "DocumentCounts",
    "DocumentMeans",
    "DocumentSums",
    "FloatArray",
    "IntArray",
    "LacksColumn",
    "RankAndRest",
    "RankHistogram",
    "RankTable",
    "check_k",
    "histogram_parts",
    "is_rbp_column",
    "log_grid",
    "metric_label",
    "parse_rbp_name",
    "rbp_ks",
    "rbp_name",
    "se_name",
    "split_sums",
    "sum_by",
    "version_of",
]
