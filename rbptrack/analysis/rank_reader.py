"""Read and count the ranks of measurements, and keep the counts for the next analyzer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.analysis.rank_store import COUNTED, RankStore, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, MissingArtifact, RbptrackError
from rbptrack.base.formatting import counted, listed
from rbptrack.ranks import (
    SCHEMA,
    DocumentCounts,
    MissingColumn,
    RankHistogram,
    RankTable,
    log_grid,
    rbp_ks,
    rbp_name,
)
from rbptrack.stats.documents import TOTALS

T = TypeVar("T")
_EVERY_K = 100  # every k up to this one is counted, because the paper's law in k ends here
_PAPER_KS = (500, 2500, 10000)  # the larger k of the paper's table 2
_MAX_KEPT_BYTES = 200_000_000  # the most bytes of counts that are kept for the next analyzer


class RankReader:
    """Reads and counts the ranks of the measurements of one table, by run ID.

    Every method raises Unreadable if a file is missing or damaged.

    Args:
        frame: the measurements, `Runs.frame`.
        store: the store that holds their ranks.

    Attributes:
        kept: the counts by document that were read, by run ID. All selections from one `Runs` share them.
        unread_groups: the reason why the groups of a run could not be read at the last attempt, by run ID.

    """

    def __init__(self, frame: pd.DataFrame, store: RankStore) -> None:
        self._frame = frame
        self._store = store
        self._groups: dict[str, Sequence[str]] = {}
        self.kept: dict[str, DocumentCounts] = {}
        self.unread_groups: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without counts and groups. Another process reads them again."""
        empty: dict[str, Any] = {"_groups": {}, "kept": {}, "unread_groups": {}}
        return {"_frame": self._frame, "_store": self._store, **empty}

    def histogram(self, run_id: str) -> RankHistogram:
        """Return how often each rank occurs in a run."""
        return self._read(self._store.histogram, run_id)

    def ranks(self, run_id: str, columns: Sequence[str] | None = None) -> RankTable:
        """Read the rank table of a run. Raises MissingColumn if a rank table cannot have one of the columns."""
        _check_columns(columns)
        return self._read(lambda run_id: self._store.ranks(run_id, columns), run_id)

    def ranks_of_documents(self, run_id: str, documents: Collection[int]) -> RankTable:
        """Read the rank table of some documents of a run, by their numbers."""
        return self._read(lambda run_id: self._store.ranks_of_documents(run_id, documents), run_id)

    def rank_pieces(self, run_id: str, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield the rank table of a run in pieces of whole documents.

        Raises MissingColumn if a rank table cannot have one of the columns.
        """
        _check_columns(columns)
        pieces = self._read(lambda run_id: iter(self._store.rank_pieces(run_id, columns)), run_id)
        while (piece := self._read(lambda _: next(pieces, None), run_id)) is not None:
            yield piece

    def token_texts(self, run_id: str) -> Mapping[int, str]:
        """Return the texts of a run's tokens, by ID."""
        return self._read(self._store.token_texts, run_id)

    def counts_by_document(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of a run."""
        ks = whole_ks(ks)
        return self._counted(run_id, ks).select(ks)

    def document_counts(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of a run, or in each group if groups are known.

        A run that was imported without ranks has one row with its totals.
        """
        ks = whole_ks(ks)
        if run_id in self._without_ranks:
            return self._totals(run_id, ks)
        counts = self._counted(run_id, ks).select(ks)
        groups = self.groups(run_id)
        return counts.in_groups(groups) if len(groups) else counts

    def groups(self, run_id: str) -> Sequence[str]:
        """Return the group of each document of a run that has scored tokens; empty if no groups are known.

        All runs over the same texts get the groups of the same run. If these cannot be read, the result is empty, and
        `unread_groups` holds the reason.
        """
        if run_id in self._groups:
            return self._groups[run_id]
        self.unread_groups.pop(run_id, None)
        groups = self._find_groups(run_id)
        if run_id not in self.unread_groups:
            self._groups[run_id] = groups
        return groups

    def _find_groups(self, run_id: str) -> Sequence[str]:
        frame = self._frame
        if not self._has_groups:
            return ()
        row = frame[frame["run_id"] == run_id].iloc[0]
        same_texts = frame["run_id"] == run_id
        if pd.notna(row["documents_hash"]):
            same_texts = frame["documents_hash"].eq(row["documents_hash"]).fillna(False)
        with_groups = frame[same_texts & frame["groups"].notna()].sort_values(["groups", "run_id"])
        if not len(with_groups):
            return ()
        named_by = str(with_groups["run_id"].iat[0])
        try:
            group_by_document = self._read(self._store.groups, named_by)
        except Unreadable as error:
            self.unread_groups[run_id] = f"its groups cannot be read ({error})"
            return ()
        documents = self._counted(run_id, ()).document
        last = int(documents.max(initial=-1))
        if last >= len(group_by_document):
            raise Unreadable(
                f"run {named_by}: it has groups for {counted(len(group_by_document), 'document')}, "
                f"but its rank table contains document {last:,}"
            )
        return [group_by_document[int(number)] for number in documents]

    def _counted(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the counts by document of a run, at these k and at others that were counted."""
        kept = self.kept.get(run_id)
        if kept is not None and set(ks) <= set(kept.ks):
            return kept
        needed = {*ks, *(kept.ks if kept else ())}
        parts = []
        for piece in self.rank_pieces(run_id, COUNTED):
            parts.append(piece.document_counts(_likely_ks(piece.vocab_size, self._logged_ks, needed)))
        counts = DocumentCounts.concatenate(parts)
        if len(self.kept) * counts.hits.nbytes < _MAX_KEPT_BYTES:
            self.kept[run_id] = counts
        return counts

    def _totals(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the logged numbers of a run without ranks as one row of counts."""
        row = self._frame[self._frame["run_id"] == run_id].iloc[0]
        values = row.reindex(["ce", *map(rbp_name, ks)])
        if values.isna().any():
            raise WithoutRanks
        tokens = 1.0 if pd.isna(row["num_tokens"]) else float(row["num_tokens"])
        nats, *hits = (values.to_numpy(np.float64) * tokens).tolist()
        return DocumentCounts(tuple(ks), np.array([TOTALS]), np.array([tokens]), np.array([nats]), np.array([hits]))

    @cached_property
    def _logged_ks(self) -> list[int]:
        return rbp_ks(self._frame.columns)

    @cached_property
    def _has_groups(self) -> bool:
        """Whether some run names groups of documents."""
        return bool(self._frame["groups"].notna().any())

    @cached_property
    def _without_ranks(self) -> frozenset[str]:
        return frozenset(self._frame.loc[self._frame["without_ranks"].fillna(False), "run_id"])

    def _read(self, load: Callable[[str], T], run_id: str) -> T:
        """Call `load` with a run ID. Raises Unreadable in place of errors of files and formats."""
        try:
            return load(run_id)
        except Unreadable:
            raise
        except MissingArtifact as error:
            if run_id in self._without_ranks:
                raise WithoutRanks from error
            raise Unreadable(f"run {run_id}: its rank table, histogram or groups are missing or damaged") from error
        except (RbptrackError, OSError, pa.ArrowException, KeyError, ValueError, IndexError) as error:
            reason = " ".join(str(error).split())[:200]
            raise Unreadable(f"an artifact of run {run_id} is damaged or cannot be reached: {reason}") from error


def whole_ks(ks: Iterable[Any]) -> list[int]:
    """Return k as a list of int. Raises BadInput if one is not a whole number or below 1.

    Args:
        ks: the k, or a single k.

    """
    values = list(ks) if isinstance(ks, Iterable) else [ks]
    if not all(isinstance(k, int | np.integer) and k >= 1 for k in values):
        raise BadInput(f"ks={str(ks)[:60]}: every k must be a whole number, at least 1")
    return [int(k) for k in values]


def _check_columns(columns: Sequence[str] | None) -> None:
    """Raise MissingColumn if a rank table cannot have one of the columns."""
    known = [*SCHEMA.names, "rank"]
    for name in columns or ():
        if name not in known:
            raise MissingColumn(f"a rank table has no column {name}; its columns are {listed(known)}")


def _likely_ks(vocab_size: int, logged: Sequence[int], needed: Iterable[int]) -> list[int]:
    """Return the needed k and all k that analyzers often use. Each rank table then has to be read only once."""
    likely = {*range(1, _EVERY_K + 1), *_PAPER_KS, *logged, *log_grid(vocab_size).tolist()}
    return sorted({*needed, *(k for k in likely if k <= vocab_size)})
