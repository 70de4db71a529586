"""Which measurements share a law: the parts of a family whose runs agree in what `rbptrack.facts` says they must."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.words import counted, listed
from rbptrack.facts import BY_NAME, ONE_LAW, ONE_POINT, SAME_RANKS


def without_twins(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without repeated ranks.

    A model that was measured on the same texts with and without a reference, or with and without groups, has the same
    ranks twice. The rows without a reference are kept, or those with the first one by name and commit; of these the
    rows whose documents have groups.
    """
    reference = (frame["reference"] + "@" + frame["reference_commit"].fillna("")).fillna("")
    order = reference + frame["groups"].isna().map({True: " by document", False: ""})
    keyed = frame[list(SAME_RANKS)].assign(order=order)
    first = keyed.groupby(list(SAME_RANKS), dropna=False, observed=True)["order"].transform("min")
    return frame[order == first]  # rows that are equal in this, too, are runs of one size, or imports


def newest(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep only the newest measurement of each model and checkpoint, and say which others are left out.

    A repository may have moved to another commit, and a folder may hold a model that was trained anew. Measurements of
    both have the same model name. They are not seeds, so they are not summed.

    Args:
        rows: rows of `Runs.frame`, of one family on one dataset, which agree in the columns of `ONE_LAW`.

    Returns:
        The rows that count, in their order, and a sentence for each model that several rows are of.

    """
    keys = ["model", "non_embedding_params", *ONE_POINT]
    if not rows.duplicated(keys).any():
        return rows, []
    by_age = rows.sort_values(["started", "run_id"], kind="stable", na_position="first")
    older = by_age.duplicated(keys, keep="last").reindex(rows.index)
    notes = []
    for model, repeated in by_age[by_age.duplicated(keys, keep=False)].groupby("model", sort=True):
        commits = [BY_NAME["commit"].text(commit) for commit in dict.fromkeys(repeated["commit"])]
        where = f"at the commits {listed(commits)}" if len(commits) > 1 else f"{len(repeated)} times"
        notes.append(f"{model} was measured {where}; only the newest measurement counts.")
    return rows[~older], notes


def disagreeing(rows: pd.DataFrame) -> list[str]:
    """Return the columns in which the rows of one family on one dataset differ though one law needs them to agree."""
    keys = [name for name in ONE_LAW if rows[name].nunique(dropna=False) > 1]
    for name in [key for key in keys if BY_NAME[key].follows]:
        deciding = [key for key in BY_NAME[name].follows if key in keys]
        if deciding and not _differs_within(rows, deciding, name):
            keys.remove(name)
    for name in ONE_POINT:
        if _differs_within(rows, [*keys, "non_embedding_params"], name):
            keys.append(name)
    return keys


def mixture(rows: pd.DataFrame, key: str) -> str:
    """Say how many runs have each value of a column: `dtype (float32: 3 runs, bfloat16: 1 run)`."""
    counts = pd.Series([BY_NAME[key].text(value) for value in rows[key]]).value_counts()
    several = [f"{value}: {counted(int(n), 'run')}" for value, n in counts.items()]
    return f"{key} ({', '.join(several)})"


def parts(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows in groups that agree in the columns, each with a label; the group with the most rows is first."""
    if not len(rows):
        return []
    if not keys:
        return [("", rows)]
    labelled = []
    for values, part in rows.groupby(list(keys), dropna=False, observed=True):
        facts = [BY_NAME[key] for key in keys]
        words = [fact.label + fact.text(value) for fact, value in zip(facts, values, strict=True)]
        labelled.append((" ".join(words), part))
    return sorted(labelled, key=lambda label_and_part: -len(label_and_part[1]))


def _differs_within(rows: pd.DataFrame, keys: Sequence[str], column: str) -> bool:
    """Whether a column takes several values among rows that agree in the keys."""
    if rows[column].nunique(dropna=False) < 2:
        return False
    return bool((rows.groupby(list(keys), dropna=False, observed=True)[column].nunique(dropna=False) > 1).any())
