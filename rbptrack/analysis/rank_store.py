"""The interface through which `Runs` reads ranks, and a store that keeps rank tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rbptrack.base.errors import MissingArtifact, RbptrackError
from rbptrack.ranks import COUNTED_COLUMNS, RankHistogram, RankTable

SCORES = ("model", "revision", "task", "score", "n")
"""The columns of a table of task scores, such as `Runs.scores()`.

- model: the name of the model in the imported file.
- revision: its branch, tag or commit; empty for the main revision.
- task: the name of the task with its conditions, such as `gsm8k (exact_match, strict-match, 5-shot, limit=20)`.
- score: a share from 0 to 1, unless the task's name ends with a unit.
- n: the number of items of the task; missing if it is unknown.
"""


class Unreadable(RbptrackError):
    """An artifact of a measurement cannot be read, for example because it is missing. The message names the run."""


class WithoutRanks(Unreadable):
    """The measurement was imported without ranks. It has no rank table and no histogram."""


class RankStore:
    """Base class of the stores from which `Runs` reads ranks. A subclass should override `ranks`.

    A store must be picklable, because analyzers may run in other processes. Every method may raise MissingArtifact
    or FileAccessError.
    """

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        """Return the rank table of a measurement, or only some of its columns.

        Raises MissingArtifact if the store has no ranks of this run.
        """
        raise MissingArtifact(f"run {run_id} has no ranks")

    def rank_pieces(self, run_id: str, columns: Sequence[str] | None = None) -> Iterable[RankTable]:
        """Return the rank table in pieces of whole documents. A store of files keeps one piece in memory at a time."""
        return [self.ranks(run_id, columns)]

    def histogram(self, run_id: str) -> RankHistogram:
        """Return how often each rank occurs in a measurement."""
        return self.ranks(run_id, COUNTED_COLUMNS).histogram()

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        """Return the texts of a measurement's tokens, by token ID; empty if they were not saved.

        Bytes that do not form a character appear as lone surrogates. `rbptrack.base.formatting.readable_text` replaces
        them.
        """
        return {}

    def ranks_of_documents(self, run_id: str, documents: Collection[int]) -> RankTable:
        """Return the rank table of some documents of a measurement, by their numbers."""
        numbers = pa.array(sorted(documents), pa.int32())
        pieces = []
        for piece in self.rank_pieces(run_id):
            mask = pc.is_in(piece.table.column("document"), value_set=numbers)
            pieces.append(replace(piece, table=piece.table.filter(mask)))
        return RankTable.concatenate(pieces)

    def unscored(self, run_id: str) -> pd.DataFrame:
        """Return the tokens that the model read and that have no rank; without rows if they were not saved.

        The columns are document (the document's number), position (the token's index in the document), and token (the
        token's ID).
        """
        return pd.DataFrame({"document": [], "position": [], "token": []}, dtype="int64")

    def documents(self, run_id: str) -> pd.DataFrame:
        """Return the documents of a measurement; without rows if they were not saved.

        The columns are document (the document's number), id (the document's ID in the dataset), and tokens (the number
        of its tokens).
        """
        return pd.DataFrame({"document": [], "id": [], "tokens": []})

    def groups(self, run_id: str) -> Sequence[str]:
        """Return the group of each document of a measurement, in the order of the documents' numbers.

        Raises MissingArtifact if the documents have no groups.
        """
        raise MissingArtifact(f"the documents of run {run_id} have no groups")

    def scores(self) -> pd.DataFrame:
        """Return the imported scores of tasks, one row for each score, with the columns of `SCORES`."""
        return pd.DataFrame(columns=list(SCORES))


class RankTables(RankStore):
    """Rank tables in memory, by run ID."""

    def __init__(self, tables: Mapping[str, RankTable]) -> None:
        self._tables = tables

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        """Return the rank table of a measurement. It has all its columns, even if `columns` names only some."""
        return self._tables[run_id] if run_id in self._tables else super().ranks(run_id)
