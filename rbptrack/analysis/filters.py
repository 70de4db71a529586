"""Filters that select measurements by their names and by conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rbptrack.base.errors import BadInput, shortened_list, suggestion
from rbptrack.base.expression import rows_that_pass
from rbptrack.base.names import matches_patterns


@dataclass(frozen=True)
class Filters:
    """Filters that select measurements. A measurement is selected if it passes all of them.

    A list of patterns selects the names that match one of its patterns, such as `pythia*`, and that match no exclusion,
    such as `!pythia-12b`. An empty filter selects every measurement.

    Attributes:
        where: a condition over the columns of `Runs.frame`, such as `ce < 4 and dtype == "float32"`.
        family: patterns for the names of families.
        size: patterns for published sizes, such as `70m`.
        model: patterns for the names of models, such as `pythia-70m` or `pythia/70m`.
        dataset: patterns for the names of datasets.
        sweep: patterns for the names of sweeps. A store also selects the measurements that such a sweep reused.

    """

    where: str = ""
    family: Sequence[str] = ()
    size: Sequence[str] = ()
    model: Sequence[str] = ()
    dataset: Sequence[str] = ()
    sweep: Sequence[str] = ()


NO_FILTERS = Filters()
"""Filters that every measurement passes."""


def passing_rows(frame: pd.DataFrame, filters: Filters) -> pd.DataFrame:
    """Return the rows of `Runs.frame` that pass all filters.

    Raises BadInput if no measurement passes, or if the condition `filters.where` cannot be evaluated.
    """
    rows = frame
    for column in ("family", "size", "model", "dataset", "sweep"):
        patterns = getattr(filters, column)
        if not patterns:
            continue
        names = [rows[column].astype("string").fillna("")]
        if column == "model":  # a model can also be named by family and size, such as nano/6k
            names.append(family_size_names(rows).fillna(""))
        passed = rows[[matches_patterns(run_names, patterns) for run_names in zip(*names, strict=True)]]
        if not len(passed):
            holder = "The store has"
            if len(rows) < len(frame):
                holder = "The measurements that pass the other filters have"
            raise _no_measurement_error(rows, column, patterns, holder)
        rows = passed
    if filters.where:
        rows = rows_that_pass(rows, filters.where)
        if not len(rows):
            raise BadInput(f"no measurement meets the condition where={filters.where}")
    return rows


def _no_measurement_error(rows: pd.DataFrame, column: str, patterns: Sequence[str], holder: str) -> BadInput:
    """Return the error for patterns that match no value of a column of these rows. It lists the values.

    `holder` is the beginning of the list, such as `The store has`.
    """
    names = shortened_list(list(dict.fromkeys(rows[column].dropna())))
    families = [pattern for pattern in patterns if column == "model" and (rows["family"] == pattern).any()]
    suggested = suggestion([f"'{family}/*'" for family in families])
    values = f"{holder} {names}" if names else f"No measurement has a {column}"
    return BadInput(f"no measurement has {column}={','.join(patterns)}.{suggested} {values}")


def family_size_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return family and size of each row as one name, such as `nano/6k`."""
    return frame["family"] + "/" + frame["size"].astype("string")
