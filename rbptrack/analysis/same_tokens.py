"""Which measurements scored the same tokens, and names that tell them apart."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

SAME_TOKENS = (
    "dataset", "documents_hash", "sequence", "seq_len", "context", "candidates", "rank", "vocab_size", "num_tokens"
)  # fmt: skip
"""Columns of `Runs.frame` that agree where two measurements scored the same tokens in the same way."""


def same_texts(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, str]]]:
    """Yield dataset, rows, and run id -> name, of the measurements of each set of tokens."""
    rows = frame[frame["vocab_size"].notna() & frame["documents_hash"].notna()]
    for _, same in rows.groupby(list(SAME_TOKENS), dropna=False, sort=True):
        yield str(same["dataset"].iloc[0]), same, names_apart(same)


def names_apart(same: pd.DataFrame) -> dict[str, str]:
    """Return run id -> a name that tells a measurement from the others on the same tokens: `pythia-1b step1000`."""
    names = same["model"].astype(str)
    for column in ("revision", "dtype", "commit", "run_id"):
        ambiguous = names.duplicated(keep=False)
        several = ambiguous & (same.groupby(names)[column].transform("nunique", dropna=False) > 1)
        short = (
            same[column].astype(str).str.removeprefix("sha256:").str[: 8 if column in ("commit", "run_id") else None]
        )
        names = names.where(~several, names + " " + short)
    return dict(zip(same["run_id"].astype(str), names, strict=True))
