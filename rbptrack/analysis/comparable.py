"""Divide the runs of a family into parts that may share a law.

The table in `rbptrack.facts` says in which columns the runs of one law, and the runs of one size, must agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from rbptrack.base.formatting import counted, listed
from rbptrack.facts import BY_NAME, ONE_LAW, ONE_POINT, SAME_RANKS


def without_repeats(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `Runs.frame`, without measurements that repeat the ranks of another measurement.

    A model may be measured on the same texts with and without a reference model, or with and without groups of
    documents. The ranks are then the same. Of such rows, those without a reference are kept. If all have a reference,
    those with the first one by name and commit are kept. Of the remaining rows, those with groups are kept.
    """
    reference = (frame["reference"] + "@" + frame["reference_commit"].fillna("")).fillna("")
    order = reference + frame["groups"].isna().map({True: " by document", False: ""})
    keyed = frame[list(SAME_RANKS)].assign(order=order)
    first = keyed.groupby(list(SAME_RANKS), dropna=False, observed=True)["order"].transform("min")
    return frame[order == first]  # several rows are kept if they are equal in this, too: runs of one size, or imports


def newest_runs(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep only the newest measurement of each model and checkpoint.

    A repository may have moved to another commit, or the model in a folder may have been trained again. The old and the
    new measurement then have the same model name. They are not seeds, and must not be summed.

    Args:
        rows: rows of `Runs.frame` of one family on one dataset. They agree in the columns of `ONE_LAW`.

    Returns:
        The newest rows in their order, and a sentence for each model that has older rows.

    """
    keys = ["model", "non_embedding_params", *ONE_POINT]
    if rows["model"].is_unique or not rows[keys].duplicated().any():  # the first test is faster
        return rows, []
    by_age = rows.sort_values(["started", "run_id"], kind="stable", na_position="first")
    older = by_age.duplicated(keys, keep="last").reindex(rows.index)
    notes = []
    for model, repeated in by_age[by_age.duplicated(keys, keep=False)].groupby("model", sort=True):
        commits = [BY_NAME["commit"].text(commit) for commit in dict.fromkeys(repeated["commit"])]
        times = f"at the commits {listed(commits)}" if len(commits) > 1 else f"{len(repeated)} times"
        notes.append(f"{model} was measured {times}; only the newest measurement counts.")
    return rows[~older], notes


def differing_facts(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which rows of one family on one dataset differ, although the runs of one law must agree.

    A column that usually follows from another one (`Fact.follows`) is only returned if it also differs among rows that
    agree in the other one.
    """
    keys = [name for name in ONE_LAW if rows[name].nunique(dropna=False) > 1]
    for name in [key for key in keys if BY_NAME[key].follows]:
        deciding = [key for key in BY_NAME[name].follows if key in keys]
        if deciding and not _differs_within(rows, deciding, name):
            keys.remove(name)
    for name in ONE_POINT:
        if _differs_within(rows, [*keys, "non_embedding_params"], name):
            keys.append(name)
    return keys


def describe_values(rows: pd.DataFrame, key: str) -> str:
    """Describe how many rows have each value of a column, such as `dtype (float32: 3 runs, bfloat16: 1 run)`."""
    counts = pd.Series([BY_NAME[key].text(value) for value in rows[key]]).value_counts()
    ordered = sorted(counts.items(), key=lambda value_and_n: (-value_and_n[1], numeric_key(str(value_and_n[0]))))
    run_counts = [f"{value}: {counted(int(n), 'run')}" for value, n in ordered]
    return f"{key} ({', '.join(run_counts)})"


def split_by_facts(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Divide rows of `Runs.frame` into parts that agree in some columns.

    Args:
        rows: the rows.
        keys: the columns. If empty, all rows are one part with an empty label.

    Returns:
        Each part with a label made of its values of the columns, such as `bfloat16`. The part with the most rows is
        first.

    """
    if not len(rows):
        return []
    if not keys:
        return [("", rows)]
    labelled = []
    for values, part in rows.groupby(list(keys), dropna=False, observed=True):
        facts = [BY_NAME[key] for key in keys]
        labels = [fact.label + fact.text(value) for fact, value in zip(facts, values, strict=True)]
        labelled.append((" ".join(labels), part))
    return sorted(labelled, key=lambda label_and_part: (-len(label_and_part[1]), numeric_key(label_and_part[0])))


def numeric_key(text: str) -> list[str | int]:
    """Return a key that sorts texts by the numbers in them: step1000 < step16000 < step128000."""
    parts = re.split("([0-9]+)", text)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def _differs_within(rows: pd.DataFrame, keys: Sequence[str], column: str) -> bool:
    """Whether a column has several values among rows that agree in other columns, the keys."""
    if rows[column].nunique(dropna=False) < 2:
        return False
    return bool((rows.groupby(list(keys), dropna=False, observed=True)[column].nunique(dropna=False) > 1).any())
