"""Convert the values of imported rows, and describe them in messages."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import pandas as pd

from rbptrack.analysis.input_files import whole_number
from rbptrack.measurement.columns import DTYPE_BY_COLUMN
from rbptrack.ranks import is_rbp_column

RESULTS = ("ce", "ce_rank", "ce_rest", "bits_per_byte", "tie_rate")
"""Columns of results, beside RBP_k. In these columns, NaN is a fault and not a missing value."""

_MISSING_TEXTS = ("", "nan", "na", "n/a", "<na>", "none", "null")  # what programs write for missing values
_ROUNDED_COUNTS = ("non_embedding_params", "total_params", "training_tokens", "num_tokens", "n")  # such as `70M`


def to_number(name: str, value: object) -> object:
    """Convert a cell of a table to the type of its column. A text that is not a number is returned unchanged.

    Booleans and texts such as `0_5`, which Python reads as numbers, are returned as texts, which the rules refuse.
    """
    dtype = DTYPE_BY_COLUMN.get(name, "Float64" if is_rbp_column(name) or name in ("score", "n") else "string")
    if dtype == "string":
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        return str(value) if is_number else value
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return f"{value} (not a number)"
    if dtype == "Int64" or name in _ROUNDED_COUNTS:
        return whole_number(value, with_letters=name in _ROUNDED_COUNTS)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def drop_missing(columns: Mapping[str, Any]) -> dict[str, object]:
    """Return the columns without missing values.

    Missing are None, an empty text and, except in a column of results, NaN and texts such as `nan`, `NA` or `None`.
    """
    present = {}
    for name, value in columns.items():
        result = name.removesuffix("_se")
        is_missing = pd.api.types.is_scalar(value) and (value == "" if isinstance(value, str) else pd.isna(value))
        if result in (*RESULTS, "score") or result.startswith("rbp_"):
            is_missing = is_missing and not isinstance(value, float)
        elif isinstance(value, str):
            is_missing = value.strip().lower() in _MISSING_TEXTS
        if not is_missing:
            present[name] = value
    return present


def place_prefix(place: str) -> str:
    return f"{place}: " if place else ""


def shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters)"
