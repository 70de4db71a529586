"""Ranks as data: one row per scored token (`RankTable`), counts by rank (`RankHistogram`), sums per document.

Every metric derives from these, so that no model runs again for a new k, window or fit; `rbptrack.ranks.measurement` is
one model's.
"""

from rbptrack.ranks.counts import DocumentCounts, DocumentMeans, DocumentSums, sum_by
from rbptrack.ranks.histogram import ABOVE_ZERO, RankHistogram
from rbptrack.ranks.names import (
    CE,
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
from rbptrack.ranks.table import ADDED, COMPARED, IDS, SCHEMA, VERSION, LacksColumn, RankTable, version_of

__all__ = [
    "ABOVE_ZERO",
    "ADDED",
    "CE",
    "COMPARED",
    "IDS",
    "SCHEMA",
    "VERSION",
    "DocumentCounts",
    "DocumentMeans",
    "DocumentSums",
    "FloatArray",
    "IntArray",
    "LacksColumn",
    "RankHistogram",
    "RankTable",
    "check_k",
    "is_rbp_column",
    "log_grid",
    "metric_label",
    "parse_rbp_name",
    "rbp_ks",
    "rbp_name",
    "se_name",
    "sum_by",
    "version_of",
]
