"""Format measurements for the terminal: the most important columns, and each number with its standard error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rbptrack.base.errors import unknown_name
from rbptrack.base.formatting import compact, number_with_error
from rbptrack.base.names import natural_key
from rbptrack.ranks.names import HEADLINE_KS, is_rbp_column, metric_label, rbp_ks, rbp_name, se_name
from rbptrack.stats.documents import MIN_UNITS


def sort_measurements(frame: pd.DataFrame, sort: str) -> pd.DataFrame:
    """Sort the rows of `Runs.frame` by the columns in `sort`, a text with commas between names.

    `-ce` sorts by `ce` from large to small. If `sort` is empty, measurements are sorted by dataset, family, size and
    name. Raises BadInput if a column does not exist.
    """
    columns = [name.strip() for name in sort.split(",") if name.strip()]
    if not columns:
        columns = ["dataset", "family", "non_embedding_params", "name"]
    for signed_column in reversed(columns):  # sorting is stable, so the first column is sorted by last
        column = signed_column.lstrip("-")
        if column not in frame.columns:
            raise unknown_name("column", column, list(frame.columns))
        frame = frame.sort_values(column, key=_sort_keys, ascending=not signed_column.startswith("-"), kind="stable")
    return frame


def _sort_keys(values: pd.Series[Any]) -> pd.Series[Any]:
    """Return keys that sort the values of a column: numbers by value, and names by size (`70m` before `1b`)."""
    if not pd.api.types.is_string_dtype(values):
        return values
    names = sorted(values.dropna().unique(), key=lambda name: natural_key(str(name).replace("-", "/")))
    return values.map({name: position for position, name in enumerate(names)})


def main_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of the most important columns, with each number and its standard error in one cell."""
    logged_ks = rbp_ks(frame.columns)
    ks = [k for k in HEADLINE_KS if k in logged_ks] or logged_ks[:3]
    table = pd.DataFrame({"name": frame["name"], "dataset": frame["dataset"]})
    if frame["name"].eq(frame["model"] + "/" + frame["dataset"]).all():
        table["name"] = frame["model"]
    table["S"] = [_compact_or_empty(value) for value in frame["non_embedding_params"]]
    table["tokens"] = [_compact_or_empty(value) for value in frame["num_tokens"]]
    for metric in ("ce", *map(rbp_name, ks)):
        table[metric_label(metric)] = [format_with_error(metric, row) for row in frame.to_dict("records")]
    return table.rename(columns={"name": "measurement"})


def format_details(row: pd.Series[Any]) -> dict[str, str]:
    """Return the values of one measurement as texts, by their labels. Missing values are left out."""
    texts = {}
    for column in map(str, row.index):
        if pd.notna(row[column]) and not column.endswith("_se"):
            label = metric_label(column) if column == "ce" or is_rbp_column(column) else column
            texts[label] = format_with_error(column, row)
    return texts


def format_with_error(column: str, row: Any) -> str:
    """Format the value of a column with its standard error, such as `3.086 ± 0.025`.

    The standard error is left out if it is unknown or zero, or if the measurement has fewer than 5 documents.
    """
    value = row[column]
    if pd.isna(value):
        return ""
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if not isinstance(value, float | np.floating):
        return str(value)
    error = row.get(se_name(column), np.nan)
    documents = row.get("documents", np.nan)
    has_few_documents = pd.notna(documents) and documents < MIN_UNITS
    return number_with_error(float(value), None if pd.isna(error) or has_few_documents else float(error))


def _compact_or_empty(value: Any) -> str:
    return "" if pd.isna(value) else compact(float(value))
