"""What makes runs comparable: in which columns those of one law must agree, and the parts where they do not."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

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


def marked_candidates(candidates: object) -> str:
    """Return what marks probabilities among the tokenizer's tokens only, which are other quantities; else nothing."""
    return " (candidates=tokenizer)" if str(candidates) == "tokenizer" else ""


def on_each_dataset(rows: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, bool]]:
    """Yield the rows of each family on a dataset, which are beside each other; whether only their size differs,
    ascending.
    """
    columns = ["family", "dataset", *COMPARABLE, "revision"]
    codes = np.column_stack([pd.factorize(rows[key])[0] for key in columns])
    sizes = rows["non_embedding_params"].to_numpy(np.float64, na_value=np.nan)
    first = np.flatnonzero((codes[1:, :2] != codes[:-1, :2]).any(axis=1)) + 1
    for low, high in pairwise([0, *first.tolist(), len(rows)] if len(rows) else []):
        alike = (codes[low:high] == codes[low]).all() and (np.diff(sizes[low:high], prepend=-np.inf) > 0).all()
        yield rows.iloc[low:high], bool(alike)


def disagreeing(rows: pd.DataFrame) -> list[str]:
    """Return columns in which runs differ that one law may not mix."""
    keys = [key for key in COMPARABLE if rows[key].nunique(dropna=False) > 1]
    if "documents_hash" in keys and "num_tokens" in keys:
        keys.remove("num_tokens")  # other texts have other tokens; once is enough
    if "context" in keys and rows.loc[rows["sequence"] == "slide", "context"].nunique(dropna=False) <= 1:
        keys.remove("context")  # the other rules repeat no tokens, whatever the setting
    checkpoints = rows.groupby([*keys, "non_embedding_params"], dropna=False)["revision"].nunique(dropna=False)
    return [*keys, "revision"] if (checkpoints > 1).any() else keys


def mixture(rows: pd.DataFrame, key: str) -> str:
    """Return how many runs have each value of a column."""
    counts = rows[key].astype("string").fillna("unknown").value_counts()
    several = [f"{_short(key, value)}: {n} run{'s' * (n != 1)}" for value, n in counts.items()]
    return f"{key} ({', '.join(several)})"


def parts(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows taken apart by keys, the part of most runs first, each with its label."""
    if not keys:
        return [("", rows)] if len(rows) else []
    labelled = [
        (" ".join(COMPARABLE.get(k, "") + _short(k, v) for k, v in zip(keys, values, strict=True)), part)
        for values, part in rows.groupby(list(keys), dropna=False, sort=True)
    ]
    return sorted(labelled, key=lambda p: -len(p[1]))


def _short(key: str, value: Hashable) -> str:
    text = "unknown" if pd.isna(value) else str(value)  # type: ignore[call-overload]
    return text[:8] if key in ("documents_hash", "revision") else text
