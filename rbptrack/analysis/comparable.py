"""What makes runs comparable: in which columns those of one law must agree, and the parts where they do not."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rbptrack.base.words import counted

COMPARABLE = {
    "dtype": "",
    "sequence": "",
    "seq_len": "seq_len ",
    "context": "context ",
    "candidates": "candidates ",
    "rank": "rank ",
    "documents_hash": "texts ",
    "num_tokens": "tokens ",
}
"""Columns in which the runs of one law must agree, and the word that marks a part in which they do."""

_SAME_RANKS = ["model", "commit", "revision", "vocab_size", "dataset", *COMPARABLE]


def without_twins(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows; of those that have the same ranks and differ in the reference only, those of one reference: without
    any, or the first by name and commit.
    """
    reference = frame["reference"] + "@" + frame["reference_commit"].fillna("")
    keyed = frame[_SAME_RANKS].assign(reference=reference.fillna(""))
    first = keyed.groupby(_SAME_RANKS, dropna=False)["reference"].transform("min")
    return frame[keyed["reference"] == first]  # those of one reference are runs of one size, or imports


def disagreeing(rows: pd.DataFrame) -> list[str]:
    """Columns in which runs differ that one law may not mix."""
    keys = [key for key in COMPARABLE if rows[key].nunique(dropna=False) > 1]
    if "documents_hash" in keys and "num_tokens" in keys:
        keys.remove("num_tokens")  # other texts have other tokens; once is enough
    if "context" in keys and rows.loc[rows["sequence"] == "slide", "context"].nunique(dropna=False) <= 1:
        keys.remove("context")  # the other rules repeat no tokens, whatever the setting
    checkpoints = rows.groupby([*keys, "non_embedding_params"], dropna=False)["revision"].nunique(dropna=False)
    return [*keys, "revision"] if (checkpoints > 1).any() else keys


def mixture(rows: pd.DataFrame, key: str) -> str:
    """How many runs have each value of a column, in words."""
    counts = rows[key].astype("string").fillna("unknown").value_counts()
    several = [f"{_short(key, value)}: {counted(int(n), 'run')}" for value, n in counts.items()]
    return f"{key} ({', '.join(several)})"


def parts(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """The rows taken apart by columns, the part of most runs first, each with its label."""
    if not len(rows):
        return []
    if not keys:
        return [("", rows)]
    labelled = []
    for values, part in rows.groupby(list(keys), dropna=False, sort=True):
        words = [COMPARABLE.get(key, "") + _short(key, value) for key, value in zip(keys, values, strict=True)]
        labelled.append((" ".join(words), part))
    return sorted(labelled, key=lambda label_and_part: -len(label_and_part[1]))


def _short(key: str, value: object) -> str:
    text = "unknown" if pd.isna(value) else str(value)  # type: ignore[call-overload]
    return text[:8] if key in ("documents_hash", "revision") else text
