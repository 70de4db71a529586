"""Which measurements are paired, and by which names they are told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import combinations, pairwise

import pandas as pd

Measured = tuple[str, str]  # run id and name

_SAME_TEXTS = (
    "dataset", "documents_hash", "sequence", "seq_len", "context", "candidates", "rank", "vocab_size", "num_tokens"
)  # fmt: skip


def same_texts(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, dict[str, str]]]:
    """Yield dataset, rows, and run id -> name, of the measurements of each set of tokens."""
    rows = frame[frame["vocab_size"].notna() & frame["documents_hash"].notna()]
    for _, same in rows.groupby(list(_SAME_TEXTS), dropna=False, sort=True):
        yield str(same["dataset"].iloc[0]), same, _names(same)


def pairs_named(models: Mapping[str, str], a: str, b: str) -> Iterator[tuple[Measured, Measured]]:
    """Yield every two of which pattern a names the one and b the other; in one order, where both orders fit."""
    for left, right in combinations(models.items(), 2):
        for first, second in ((left, right), (right, left)):
            if fnmatchcase(first[1], a or "*") and fnmatchcase(second[1], b or "*"):
                yield first, second
                break


def pairs_of_one_model(rows: pd.DataFrame, models: Mapping[str, str]) -> Iterator[tuple[Measured, Measured]]:
    """Yield, for each model, every checkpoint with the next, or all others with the first; `compare` has two
    families.
    """
    for _, equal in rows.groupby(["family", "non_embedding_params"], sort=True):
        descending = equal.sort_values(["dtype", "run_id"], ascending=[False, True])  # float32 first
        ordered = descending.sort_values("training_tokens", kind="stable")
        same_model = [(run_id, models[run_id]) for run_id in map(str, ordered["run_id"])]
        checkpoints = ordered["training_tokens"].nunique() == len(ordered)
        yield from pairwise(same_model) if checkpoints else ((same_model[0], other) for other in same_model[1:])


def _names(same: pd.DataFrame) -> dict[str, str]:
    """Run id -> a name that tells a measurement from the others on the same tokens: `pythia-1b step1000`."""
    names = same["model"].astype(str)
    for column in ("revision", "dtype", "commit", "run_id"):
        ambiguous = names.duplicated(keep=False)
        several = ambiguous & (same.groupby(names)[column].transform("nunique", dropna=False) > 1)
        short = (
            same[column].astype(str).str.removeprefix("sha256:").str[: 8 if column in ("commit", "run_id") else None]
        )
        names = names.where(~several, names + " " + short)
    return dict(zip(same["run_id"].astype(str), names, strict=True))
