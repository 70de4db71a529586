"""Where `Runs` reads the ranks of measurements: a store, or memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rbptrack.base.errors import MissingArtifact, RbptrackError
from rbptrack.ranks import RankHistogram, RankTable

SCORES = ("model", "revision", "task", "score", "n")
"""Of scores of tasks: a model's name and revision (empty: the main one), the task, its score, how many items it has."""

COUNTED = ("document", "greater", "ties", "logprob")
"""The columns of a rank table that CE and RBP_k need."""


class Unreadable(RbptrackError):
    """A measurement's artifact is missing or damaged; its text names the run."""


class WithoutRanks(Unreadable):
    """A measurement was imported without ranks: it has no artifact to read."""

    def __init__(self, text: str = "imported without ranks") -> None:
        super().__init__(text)


class RankStore(Protocol):
    """Where `Runs` reads measurements by run ID: a store, memory. It must pickle; all may raise MissingArtifact.

    Subclass it and give `ranks` at least.
    """

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        """The rank table of a measurement; all its columns, or some."""
        raise MissingArtifact(f"run {run_id} has no ranks")

    def rank_pieces(self, run_id: str, columns: Sequence[str] | None = None) -> Iterable[RankTable]:
        """Yield the rank table in pieces of whole documents. Only one piece is in memory at a time."""
        return [self.ranks(run_id, columns)]

    def histogram(self, run_id: str) -> RankHistogram:
        """How often each rank occurs in a measurement."""
        return self.ranks(run_id, COUNTED).histogram()

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        """The texts of a measurement's tokens by id, empty if they were not kept.

        Bytes that are not a character are lone surrogates. `rbptrack.base.words.readable` replaces them.
        """
        return {}

    def ranks_of(self, run_id: str, documents: Collection[int]) -> RankTable:
        """The rank table of some documents of a measurement, by their numbers."""
        wanted = pa.array(sorted(documents), pa.int32())
        pieces = []
        for piece in self.rank_pieces(run_id):
            chosen = pc.is_in(piece.table.column("document"), value_set=wanted)
            pieces.append(replace(piece, table=piece.table.filter(chosen)))
        return RankTable.concatenate(pieces)

    def unscored(self, run_id: str) -> pd.DataFrame:
        """The tokens that the model read and that have no rank: document, position, token; empty if not kept."""
        return pd.DataFrame({"document": [], "position": [], "token": []}, dtype="int64")

    def documents(self, run_id: str) -> pd.DataFrame:
        """The documents of a measurement: document (its number), id, tokens; empty if not kept."""
        return pd.DataFrame({"document": [], "id": [], "tokens": []})

    def groups(self, run_id: str) -> Sequence[str]:
        """The group of each document of a measurement, by the document's number."""
        raise MissingArtifact(f"run {run_id} names no groups of its documents")

    def scores(self) -> pd.DataFrame:
        """Imported scores of tasks, with the columns of `SCORES`."""
        return pd.DataFrame(columns=list(SCORES))


class Tables(RankStore):
    """Rank tables in memory, by run ID."""

    def __init__(self, tables: Mapping[str, RankTable]) -> None:
        self._tables = tables

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        """The rank table of a measurement, whole."""
        if run_id not in self._tables:
            raise MissingArtifact(f"run {run_id} has no ranks")
        return self._tables[run_id]
