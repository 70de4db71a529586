"""Scores of tasks in the store: a run of their own kind, with one table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SCORES_FILE = "scores.csv"
"""The artifact of a run of scores."""


def read_scores(path: Path) -> pd.DataFrame:
    """The table of a run of scores, with the columns of `rbptrack.analysis.contract.SCORES`."""
    table = pd.read_csv(path, dtype={"model": str, "revision": str, "task": str}, keep_default_na=False)
    return table.assign(n=pd.to_numeric(table["n"], errors="coerce"))


def write_scores(table: pd.DataFrame, path: Path) -> None:
    """Write what `read_scores` reads."""
    table.to_csv(path, index=False)
