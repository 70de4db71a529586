"""Divide the runs of a family into parts that may share a law.

The table in `rbptrack.facts` says in which columns the runs of one law, and the runs of one size, must agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.formatting import counted, listed
from rbptrack.config.patterns import natural_key
from rbptrack.facts import FACT_BY_NAME, LAW_COLUMNS, POINT_COLUMNS, SAME_RANKS_COLUMNS


def without_repeats(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop rows of `Runs.frame` whose measurements repeat the ranks of another measurement.

    A model may be measured on the same texts with and without a reference model, or with and without groups of
    documents. Such measurements have equal ranks. Rows without a reference are then kept. If all rows have a reference,
    the rows with the first reference by name and commit are kept. Of these rows, the rows with groups are kept.
    """
    reference = (frame["reference"] + "@" + frame["reference_commit"].fillna("")).fillna("")
    precedence = reference + frame["groups"].isna().map({True: " by document", False: ""})
    with_precedence = frame[list(SAME_RANKS_COLUMNS)].assign(precedence=precedence)
    groups = with_precedence.groupby(list(SAME_RANKS_COLUMNS), dropna=False, observed=True)
    return frame[precedence == groups["precedence"].transform("min")]  # keeps all rows of equal precedence


def newest_runs(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep only the newest measurement of each model and checkpoint.

    A repository may have moved to another commit, or the model in a folder may have been trained again. The old and the
    new measurement then have the same model name. They do not differ in the seed, so their counts must not be summed.

    Args:
        rows: rows of `Runs.frame` of one family on one dataset, which agree in the columns `LAW_COLUMNS`.

    Returns:
        The newest rows in their order, and a sentence for each model that has older rows.

    """
    keys = ["model", "non_embedding_params", *POINT_COLUMNS]
    if rows["model"].is_unique or not rows[keys].duplicated().any():  # the first condition is faster
        return rows, []
    by_age = rows.sort_values(["started", "run_id"], kind="stable", na_position="first")
    older = by_age.duplicated(keys, keep="last").reindex(rows.index)
    notes = []
    for model, repeated in by_age[by_age.duplicated(keys, keep=False)].groupby("model", sort=True):
        commits = [FACT_BY_NAME["commit"].format_value(commit) for commit in dict.fromkeys(repeated["commit"])]
        occasions = f"at the commits {listed(commits)}" if len(commits) > 1 else f"{len(repeated)} times"
        notes.append(f"{model} was measured {occasions}; only the newest measurement counts.")
    return rows[~older], notes


def differing_facts(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which rows differ, although the runs of one law must agree in them.

    If all rows come from one imported table, an unknown value counts as equal to the only value that the table has.
    A column that other columns usually determine (`Fact.determined_by`) is returned only if it also differs among rows
    that agree in those columns.

    Args:
        rows: rows of `Runs.frame` of one family on one dataset.

    """
    keys = [name for name in LAW_COLUMNS if rows[name].nunique(dropna=False) > 1]
    keys = [name for name in keys if name not in assumed_facts(rows)]
    for name in [key for key in keys if FACT_BY_NAME[key].determined_by]:
        causes = [key for key in FACT_BY_NAME[name].determined_by if key in keys]
        if causes and not _differs_within(rows, causes, name):
            keys.remove(name)
    for name in POINT_COLUMNS:
        if _differs_within(rows, [*keys, "non_embedding_params"], name):
            keys.append(name)
    return keys


def assumed_facts(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which an imported table has one value and some missing values.

    The missing values are assumed to be equal to this value. The result is empty if the rows do not all come from one
    imported table.
    """
    if rows["imported"].isna().any() or rows["imported_from"].nunique(dropna=False) > 1:
        return []
    assumed = []
    for name in LAW_COLUMNS:
        has_missing_values = rows[name].isna().any() and FACT_BY_NAME[name].missing == "unknown"
        if has_missing_values and rows[name].nunique() == 1:
            assumed.append(name)
    return assumed


def describe_values(rows: pd.DataFrame, key: str) -> str:
    """Return how many rows have each value of a column, such as `dtype (float32: 3 runs, bfloat16: 1 run)`."""
    counts = pd.Series([FACT_BY_NAME[key].format_value(value) for value in rows[key]]).value_counts()
    ordered = sorted(counts.items(), key=lambda item: (-item[1], natural_key(str(item[0]))))
    run_counts = [f"{value}: {counted(int(count), 'run')}" for value, count in ordered]
    return f"{key} ({', '.join(run_counts)})"


def split_by_facts(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Divide rows of `Runs.frame` into parts that agree in some columns.

    Args:
        rows: rows of `Runs.frame`.
        keys: the columns. Without columns, all rows are one part with an empty label.

    Returns:
        The parts with their labels, the part with the most rows first. A label consists of the part's values of the
        columns, such as `bfloat16`.

    """
    if not len(rows):
        return []
    if not keys:
        return [("", rows)]
    facts = [FACT_BY_NAME[key] for key in keys]
    labels_and_parts = []
    for values, part in rows.groupby(list(keys), dropna=False, observed=True):
        words = [fact.label + fact.format_value(value) for fact, value in zip(facts, values, strict=True)]
        labels_and_parts.append((" ".join(words), part))
    return sorted(labels_and_parts, key=lambda item: (-len(item[1]), natural_key(item[0])))


def _differs_within(rows: pd.DataFrame, keys: Sequence[str], column: str) -> bool:
    """Return whether a column has several values among rows that agree in all key columns."""
    if rows[column].nunique(dropna=False) < 2:
        return False
    return bool((rows.groupby(list(keys), dropna=False, observed=True)[column].nunique(dropna=False) > 1).any())
