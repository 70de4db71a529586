"""Divide the runs of a family into parts that may share a law.

`rbptrack.measurement.columns` says in which columns the runs of one law, and the runs of one size, must agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.formatting import counted, listed
from rbptrack.base.names import natural_key
from rbptrack.measurement.columns import (
    COLUMN_PARTS,
    LAW_COLUMNS,
    POINT_COLUMNS,
    SAME_RANKS_COLUMNS,
    WEIGHTS_COLUMNS,
)


def without_repeats(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop rows of `Runs.frame` whose measurements repeat the ranks of another measurement.

    A model may be measured on the same texts with and without a reference model, or with and without groups of
    documents. Such measurements have equal ranks. Rows without a reference are then kept. If all rows have a reference,
    the rows with the first reference by name and commit are kept. Of these rows, the rows with groups are kept. Groups
    that a field of the dataset names come before groups of near copies.
    """
    reference = (frame["reference"] + "@" + frame["reference_commit"].fillna("")).fillna("")
    unit = frame["groups"].isna().map({True: " by document", False: " by copies"})  # sorted by name
    precedence = reference + unit.where(frame["group"].fillna("").eq(""), "")
    with_precedence = frame[list(SAME_RANKS_COLUMNS)].assign(precedence=precedence)
    groups = with_precedence.groupby(list(SAME_RANKS_COLUMNS), dropna=False, observed=True)
    return frame[precedence == groups["precedence"].transform("min")]  # keeps all rows of equal precedence


def without_conflicts(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Leave out measurements that have the same name although their weights differ.

    Two measurements of one model and checkpoint are replicates only if their seeds differ. If their weights differ and
    their seeds do not, nobody can say which of them the name means, so all of them are left out. If one model was
    measured several times, only the newest measurement counts.

    Args:
        rows: rows of `Runs.frame` of one family on one dataset, which agree in the columns `LAW_COLUMNS`.

    Returns:
        The other rows in their order, and a sentence for each name of which rows were left out.

    """
    keys = ["model", "non_embedding_params", *POINT_COLUMNS]
    if rows["model"].is_unique or not rows[keys].duplicated().any():  # the first condition is faster
        return rows, []
    left_out: list[object] = []
    notes = []
    repeated = rows[rows.duplicated(keys, keep=False)]
    for _, same_name in repeated.groupby(keys, dropna=False, observed=True):
        model = same_name["model"].iloc[0]
        weights = same_name[list(WEIGHTS_COLUMNS)].fillna("").drop_duplicates()
        if len(weights) == 1:
            by_age = same_name.sort_values(["started", "run_id"], kind="stable", na_position="first")
            left_out += list(by_age.index[:-1])
            notes.append(f"{model} was measured {len(same_name)} times; only the newest measurement counts.")
            continue
        left_out += list(same_name.index)
        runs = listed([f"run {run_id[:8]}" for run_id in same_name["run_id"]])
        notes.append(
            f"{model} is left out, because {len(weights)} different models have this name ({runs}). Rename one: "
            f"rbptrack label --where \"run_id == '{same_name['run_id'].iloc[-1]}'\" family=NAME, or seed=N for a "
            "replicate."
        )
    return rows.drop(index=left_out), notes


def differing_facts(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which rows differ, although the runs of one law must agree in them.

    If all rows come from one imported table, an unknown value counts as equal to the only value that the table has.
    A column that other columns usually determine (`Part.determined_by`) is returned only if it also differs among rows
    that agree in those columns.

    Args:
        rows: rows of `Runs.frame` of one family on one dataset.

    """
    assumed = assumed_facts(rows)
    keys = [name for name in LAW_COLUMNS if name not in assumed and rows[name].nunique(dropna=False) > 1]
    for name in [key for key in keys if COLUMN_PARTS[key].determined_by]:
        causes = [key for key in COLUMN_PARTS[name].determined_by if key in keys]
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
        has_missing_values = rows[name].isna().any() and COLUMN_PARTS[name].missing == "unknown"
        if has_missing_values and rows[name].nunique() == 1:
            assumed.append(name)
    return assumed


def describe_values(rows: pd.DataFrame, key: str) -> str:
    """Return how many rows have each value of a column, such as `dtype (float32: 3 runs, bfloat16: 1 run)`."""
    counts = pd.Series([COLUMN_PARTS[key].format_value(value) for value in rows[key]]).value_counts()
    ordered = sorted(counts.items(), key=lambda item: (-item[1], natural_key(str(item[0]))))
    run_counts = [f"{value}: {counted(int(count), 'run')}" for value, count in ordered]
    return f"{key} ({', '.join(run_counts)})"


def split_by_facts(name: str, rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Divide rows of `Runs.frame` into parts that agree in some columns.

    Args:
        name: the name of what the rows belong to, such as a family.
        rows: rows of `Runs.frame`.
        keys: the columns. Without columns, all rows are one part.

    Returns:
        The parts with their names, the part with the most rows first. A name also has the part's values of the columns:
        `pythia bfloat16`, or `x (llama)` if only the architecture differs.

    """
    if not len(rows):
        return []
    if not keys:
        return [(name, rows)]
    facts = [COLUMN_PARTS[key] for key in keys]
    labels_and_parts = []
    for values, part in rows.groupby(list(keys), dropna=False, observed=True):
        words = [fact.prefix + fact.format_value(value) for fact, value in zip(facts, values, strict=True)]
        label = f"({words[0]})" if list(keys) == ["architecture"] else " ".join(words)
        labels_and_parts.append((f"{name} {label}".strip(), part))
    return sorted(labels_and_parts, key=lambda item: (-len(item[1]), natural_key(item[0])))


def _differs_within(rows: pd.DataFrame, keys: Sequence[str], column: str) -> bool:
    """Return whether a column has several values among rows that agree in all key columns."""
    if rows[column].nunique(dropna=False) < 2:
        return False
    return bool((rows.groupby(list(keys), dropna=False, observed=True)[column].nunique(dropna=False) > 1).any())
