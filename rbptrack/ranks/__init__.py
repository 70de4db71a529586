"""Stores ranks and computes metrics from them, without running a model again.

`RankTable` has one row per scored token, `RankHistogram` counts tokens by rank, and `DocumentCounts` sums by document.
"""

from rbptrack.ranks.counts import DocumentCounts, DocumentSums, sum_by
from rbptrack.ranks.histogram import RankHistogram
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
from rbptrack.ranks.rank_and_rest import rank_and_rest_sums
from rbptrack.ranks.table import COLUMNS, COMPARED, SCHEMA, MissingColumn, RankTable

__all__ = [
    "CE",
    "COLUMNS",
    "COMPARED",
    "HEADLINE_KS",
    "SCHEMA",
    "DocumentCounts",
    "DocumentSums",
    "FloatArray",
    "IntArray",
    "MissingColumn",
    "RankHistogram",
    "RankTable",
    "check_k",
    "is_rbp_column",
    "log_grid",
    "metric_label",
    "parse_rbp_name",
    "rank_and_rest_sums",
    "rbp_ks",
    "rbp_name",
    "se_name",
    "sum_by",
]
