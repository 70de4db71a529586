"""Stores ranks, and computes metrics from them without running a model again.

A `RankTable` has one row for each scored token. A `RankHistogram` holds the number of tokens with each rank.
`DocumentCounts` holds the number of tokens, the nats and the hits of each document.
"""

from rbptrack.ranks.columns import COLUMNS, COMPARED, COUNTED_COLUMNS, SCHEMA, Column, token_totals
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
from rbptrack.ranks.prompt_logprobs import (
    NO_ID,
    PromptToken,
    checked_token,
    find_impossible,
    vllm_prompt,
    vllm_tokens,
)
from rbptrack.ranks.rank_and_rest import rank_and_rest_sums
from rbptrack.ranks.sums import RankSums
from rbptrack.ranks.table import MissingColumn, RankTable

__all__ = [
    "CE",
    "COLUMNS",
    "COMPARED",
    "COUNTED_COLUMNS",
    "HEADLINE_KS",
    "NO_ID",
    "SCHEMA",
    "Column",
    "DocumentCounts",
    "DocumentSums",
    "FloatArray",
    "IntArray",
    "MissingColumn",
    "PromptToken",
    "RankHistogram",
    "RankSums",
    "RankTable",
    "check_k",
    "checked_token",
    "find_impossible",
    "is_rbp_column",
    "log_grid",
    "metric_label",
    "parse_rbp_name",
    "rank_and_rest_sums",
    "rbp_ks",
    "rbp_name",
    "se_name",
    "sum_by",
    "token_totals",
    "vllm_prompt",
    "vllm_tokens",
]
