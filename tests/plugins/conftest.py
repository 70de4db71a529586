"""Measurements in memory, for the tests of analyzers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from rbptrack.analysis import Report, Runs
from rbptrack.ranks import RankTable
from tests.rank_tables import MemoryRankStore


def runs_of(
    tables: Mapping[float, RankTable],
    *,
    family: str = "made",
    dataset: str = "text",
    groups: Sequence[str] = (),
    texts: Mapping[int, str] | None = None,
    **columns: Any,
) -> Runs:
    """One family of models on one dataset: a rank table for each size S."""
    by_run = {f"{family}{i}": table for i, table in enumerate(tables.values())}
    rows = []
    for (run_id, table), s in zip(by_run.items(), tables, strict=True):
        names = {"run_id": run_id, "family": family, "size": f"{s:g}", "model": f"{family}-{s:g}", "dataset": dataset}
        numbers = {"non_embedding_params": round(s), "vocab_size": table.vocab_size, "num_tokens": len(table)}
        group_count = {"groups": len(set(groups)) if groups else None}
        rows.append(names | numbers | group_count | columns)
    source = MemoryRankStore(by_run, groups=dict.fromkeys(by_run, groups), texts=texts)
    return Runs(pd.DataFrame(rows), source)


@pytest.fixture
def in_memory() -> Any:
    """`runs_of`."""
    return runs_of


def complete(report: Report) -> bool:
    """Whether its charts can be drawn and its notes are sentences; the rest is `AnalyzerContract`'s."""
    assert all(chart.to_dict() for chart in report.figures.values())
    return all(note.endswith(".") for note in report.notes)


@pytest.fixture
def is_complete() -> Any:
    """`complete`."""
    return complete
