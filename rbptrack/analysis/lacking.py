"""Measurements that lack a column of the rank table, and the commands that measure them again."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pandas as pd


def lacking(frame: pd.DataFrame, run_ids: Collection[str], column: str) -> Iterator[str]:
    """Yield, for each dataset, the measurements that lack a column of the rank table, and the command that adds it.

    Args:
        frame: `Runs.frame`.
        run_ids: of the measurements that lack it, as `RankTable.version` says.
        column: entropy, top or top_logprob.

    Examples:
        >>> one = {"run_id": "r", "family": "nano", "size": "6k", "model": "nano-6k", "dataset": "wiki"}
        >>> next(lacking(pd.DataFrame([one]), ["r"], "top")).rpartition(": ")[2]
        'python -m rbptrack -m model=nano/6k dataset=wiki again=columns'

    """
    rows = frame[frame["run_id"].isin(run_ids)].drop_duplicates(["model", "dataset"])
    for dataset, same in rows.groupby("dataset", sort=True):
        cells = ",".join(same["family"] + "/" + same["size"])
        yield (
            f"{', '.join(same['model'])} on {dataset}: no column {column}. With the options they were measured with, "
            f"this adds it: python -m rbptrack -m model={cells} dataset={dataset} again=columns"
        )
