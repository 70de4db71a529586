"""Which measurements are paired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import combinations, pairwise

import pandas as pd

Measured = tuple[str, str]  # run id and name


def pairs_named(models: Mapping[str, str], a: str, b: str) -> Iterator[tuple[Measured, Measured]]:
    """Yield every two whose names match patterns a and b; in one order, where both orders match."""
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
