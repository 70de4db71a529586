"""Families of models in memory, for the tests of analyzers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rbptrack.analysis import Runs
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore


def family_runs(
    tables: Mapping[float, RankTable],
    *,
    family: str = "toy",
    dataset: str = "text",
    groups: Sequence[str] = (),
    texts: Mapping[int, str] | None = None,
    **columns: Any,
) -> Runs:
    """Return the runs of one family on one dataset.

    Args:
        tables: the rank table of each model, by its size S (parameters without embeddings and output head).
        family: the name of the family.
        dataset: the name of the dataset.
        groups: the group of each document; empty: the groups are unknown.
        texts: the text of each token, by its ID.
        columns: further columns of `Runs.frame`, or other values of the columns that this function sets.

    """
    tables_by_run = {f"{family}{i}": table for i, table in enumerate(tables.values())}
    rows = []
    for (run_id, table), s in zip(tables_by_run.items(), tables, strict=True):
        names = {"run_id": run_id, "family": family, "size": f"{s:g}", "model": f"{family}-{s:g}", "dataset": dataset}
        numbers = {"non_embedding_params": round(s), "vocab_size": table.vocab_size, "num_tokens": len(table)}
        group_columns = {"groups": len(set(groups)), "group": "site"} if groups else {}
        rows.append(names | numbers | group_columns | columns)
    store = MemoryRankStore(tables_by_run, groups=dict.fromkeys(tables_by_run, groups), texts=texts)
    return Runs(pd.DataFrame(rows), store)
