"""Measurements as people read them: which columns, in which words, with how many digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from numbers import Integral, Real

import pandas as pd

from rbptrack.base.words import compact, for_spreadsheets
from rbptrack.ranks import HEADLINE_KS, is_rbp_column, parse_rbp_name, rbp_ks, rbp_name, se_name

INTERVAL = "_interval"
"""The label of bars and bands in figures, which no legend shows: the interval."""

TITLES = {
    "non_embedding_params": "S",
    "num_tokens": "tokens",
    "num_documents": "documents",
    "ce": "CE",
    "run_id": "run",
    "vocab_size": "|V|",
    "total_params": "parameters",
    "ce_rank": "CE by ranks",
    "ce_rest": "rest of CE",
    "bits_per_byte": "bits per byte",
    "seq_len": "sequence length",
    "documents_hash": "hash of the texts",
    "kl": "KL to the reference",
    "same_top": "same top token",
}
"""Human titles of columns of `Runs.frame` that are called otherwise there."""

_MOST_KS = 4  # of a summary, where others than those were logged
_SHORT_ID = 8  # characters of a run id that tell it from others in almost every store
_FOUR_DIGITS = ("ce", "ce_se", "ce_rank", "ce_rest", "bits_per_byte", "kl", "acceptance", "same_top")
_COMPACT = ("non_embedding_params", "total_params", "training_tokens")


def title(column: str) -> str:
    """Return a column's title: `rbp_10` is RBP_10, `non_embedding_params` is S."""
    metric = column.removesuffix("_se")
    k = parse_rbp_name(metric)
    named = f"RBP_{k}" if k is not None else TITLES.get(metric, metric)
    return f"± se of {named}" if metric != column else named


def cell(column: str, value: object) -> str:
    """Return a value as text; nothing where it is missing."""
    if value is None or value is pd.NA or value != value:
        return ""
    if column == "run_id":
        return str(value)[:_SHORT_ID]
    if column == "started":
        return f"{datetime.fromtimestamp(float(str(value)) / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    if column in _COMPACT and isinstance(value, Real):
        return compact(float(value))
    if is_rbp_column(column) or column in _FOUR_DIGITS:
        return f"{float(str(value)):.4f}"
    if isinstance(value, Integral):
        return f"{value:,}" if column != "seq_len" else str(value)
    return f"{float(value):.4g}" if isinstance(value, Real) else str(value)


def default_columns(columns: Iterable[str]) -> list[str]:
    """Return the columns that a summary shows: names, S, tokens, CE, RBP at k = 1, 10, 100 where logged, the run."""
    there = list(columns)
    logged = rbp_ks(there)
    ks = [k for k in HEADLINE_KS if k in logged]
    ks = ks if len(ks) > 1 else logged[:_MOST_KS]
    return ["model", "dataset", "non_embedding_params", "num_tokens", "ce", *map(rbp_name, ks), "run_id"]


def presented(frame: pd.DataFrame, columns: Sequence[str] = (), *, errors: bool = False) -> pd.DataFrame:
    """Return the rows as texts under human titles.

    Args:
        frame: of `Runs`.
        columns: of it; those of `default_columns`, if none is given.
        errors: whether numbers stand with their standard errors, where these were logged: `6.6215±0.0321`.

    """
    chosen = list(columns) or default_columns(frame.columns)
    texts: dict[str, list[str]] = {}
    for column in chosen:
        values = _texts(frame, column)
        if errors and (error := se_name(column)) in frame.columns:
            pairs = zip(values, _texts(frame, error), strict=True)
            texts[f"{title(column)} ± se"] = [f"{value}±{se}" if se else value for value, se in pairs]
        else:
            texts[title(column)] = values
    return pd.DataFrame(texts, dtype=str)


def _texts(frame: pd.DataFrame, column: str) -> list[str]:
    return [cell(column, value) for value in frame[column].tolist()]


def as_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV, numbers in full; texts so that no spreadsheet takes them for formulas."""
    return frame.map(lambda value: for_spreadsheets(value) if isinstance(value, str) else value).to_csv(index=False)
