"""Store ranks, and compute metrics from them without running a model again.

A `RankTable` has one row for each scored token. A `RankHistogram` holds the number of tokens with each rank.
`DocumentCounts` holds the number of tokens, the nats and the hits of each document.
"""

from rbptrack.ranks.columns import COLUMNS, COUNTED_COLUMNS, SCHEMA, MissingColumn
from rbptrack.ranks.counts import DocumentCounts, DocumentSums, first_of_group, sum_by
from rbptrack.ranks.histogram import RankHistogram
from rbptrack.ranks.names import (
    CE,
    HEADLINE_KS,
    FloatArray,
    IntArray,
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
    vllm_tokens,
)
from rbptrack.ranks.rank_and_rest import rank_and_rest_sums
from rbptrack.ranks.sums import RankSums
from rbptrack.ranks.table import RankTable

__all__ = [
    "CE",
    "COLUMNS",
    "COUNTED_COLUMNS",
    "HEADLINE_KS",
    "NO_ID",
    "SCHEMA",
    "DocumentCounts",
    "DocumentSums",
    "FloatArray",
    "IntArray",
    "MissingColumn",
    "PromptToken",
    "RankHistogram",
    "RankSums",
    "RankTable",
    "checked_token",
    "first_of_group",
    "is_rbp_column",
    "log_grid",
    "metric_label",
    "parse_rbp_name",
    "rank_and_rest_sums",
    "rbp_ks",
    "rbp_name",
    "se_name",
    "sum_by",
    "vllm_tokens",
]
