"""Where the ranks of measurements are read: from a store, a bundle, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import pandas as pd

from rbptrack.base.errors import MissingArtifact
from rbptrack.ranks import VERSION, RankHistogram, RankTable

SCORES = ("model", "revision", "task", "score", "n")
"""Of scores of tasks: a model's name and revision (empty: the main one), the task, its score, how many items it has."""


class Source(Protocol):
    """What `Runs` reads of measurements, by run ID. Give `ranks` at least; each may raise MissingArtifact."""

    def ranks(self, run_id: str) -> RankTable:
        """Read the rank table of a measurement."""
        raise MissingArtifact(f"run {run_id} has no ranks")

    def rank_pieces(self, run_id: str, *, version: int = VERSION) -> Iterable[RankTable]:
        """Read it in pieces of whole documents, one in memory at a time, without columns of later versions."""
        return [self.ranks(run_id).of_version(version)]

    def histogram(self, run_id: str) -> RankHistogram:
        """Read how often each rank occurs in a measurement."""
        return self.ranks(run_id).histogram()

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        """Read the texts of a measurement's tokens, by ID; empty where they were not kept."""
        return {}

    def groups(self, run_id: str) -> Sequence[str]:
        """Read the source of each document of a measurement, by its number."""
        raise MissingArtifact(f"run {run_id} names no sources of its documents")

    def scores(self) -> pd.DataFrame:
        """Read the imported scores of tasks, with the columns of `SCORES`."""
        return pd.DataFrame(columns=list(SCORES))


class Tables(Source):
    """Rank tables in memory.

    Args:
        tables: by run ID.

    """

    def __init__(self, tables: Mapping[str, RankTable]) -> None:
        self._tables = tables

    def ranks(self, run_id: str) -> RankTable:
        """Return the rank table of a measurement."""
        return self._tables[run_id]
