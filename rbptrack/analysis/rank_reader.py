"""Read the ranks of measurements, count them by document, and keep the counts for the next analyzer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from rbptrack.analysis.rank_store import RankStore, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, MissingArtifact, file_access_error
from rbptrack.base.formatting import counted, listed
from rbptrack.ranks import (
    COUNTED_COLUMNS,
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

_MAX_LAW_K = 100  # the largest k of the paper's law in k. Every k up to this one is counted
_PAPER_KS = (500, 2500, 10000)  # the larger k of the paper's table 2
_MAX_CACHE_BYTES = 200_000_000  # the most bytes of counts that are kept for the next analyzer


class RankReader(ABC):
    """Reads and counts the ranks of the runs in a table. It is the base class of `Runs`.

    Many methods have an argument `run`. It is the name of a measurement (`nano-6k/stdlib`), the beginning of its run
    ID, or its row.

    Attributes:
        frame: the table. Do not change it.
        store: the store that holds the ranks.
        unread_groups: the reason why the groups of a run could not be read, by run ID. Such a run is counted by
            document.
        unreadable: the reason why a file of a run could not be read, by run ID. Results without this file are
            incomplete. All selections from one `Runs` share the reasons.

    """

    def __init__(self, frame: pd.DataFrame, store: RankStore) -> None:
        self.frame = frame
        self.store = store
        self._groups: dict[str, Sequence[str]] = {}
        self._counts_cache: dict[str, DocumentCounts] = {}  # by run ID. All selections from one `Runs` share them
        self.unread_groups: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without counts and groups, which another process reads again."""
        empty: dict[str, Any] = {"_groups": {}, "_counts_cache": {}, "unread_groups": {}, "unreadable": {}}
        return {"frame": self.frame, "store": self.store, **empty}

    @abstractmethod
    def run_id(self, run: str | pd.Series) -> str:
        """Return the run ID of one measurement. Raises BadInput if no measurement matches, or several do."""

    def histogram(self, run: str | pd.Series) -> RankHistogram:
        """Return how often each rank occurs in one run. Raises Unreadable if the run's files cannot be read."""
        run_id = self.run_id(run)
        with self._convert_errors(run_id):
            return self.store.histogram(run_id)

    def ranks(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> RankTable:
        """Read the rank table of one run, or only some of its columns. The table is not kept in memory.

        Raises:
            MissingColumn: a rank table cannot have such a column.
            Unreadable: the rank table cannot be read.

        """
        run_id = self.run_id(run)
        _check_columns(columns)
        with self._convert_errors(run_id):
            return self.store.ranks(run_id, columns)

    def ranks_of_documents(self, run: str | pd.Series, documents: Collection[int]) -> RankTable:
        """Read the rank table of some documents of one run, by number. Raises Unreadable if it cannot be read."""
        run_id = self.run_id(run)
        with self._convert_errors(run_id):
            return self.store.ranks_of_documents(run_id, documents)

    def rank_pieces(self, run: str | pd.Series, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield the rank table of one run, or only some of its columns, in pieces of whole documents.

        The pieces are in the order of the texts. Only one piece is in memory at a time.

        Raises:
            MissingColumn: a rank table cannot have such a column.
            Unreadable: the table cannot be read. The error may occur after some pieces.

        """
        run_id = self.run_id(run)
        _check_columns(columns)
        with self._convert_errors(run_id):
            yield from self.store.rank_pieces(run_id, columns)

    def saved_token_texts(self, run: str | pd.Series) -> Mapping[int, str]:
        """Return the texts of one run's tokens, by token ID. Raises Unreadable if the file of texts is damaged."""
        run_id = self.run_id(run)
        with self._convert_errors(run_id):
            return self.store.token_texts(run_id)

    def documents(self, run: str | pd.Series) -> pd.DataFrame:
        """Return the documents of one run, as `RankStore.documents` describes them.

        Raises:
            Unreadable: the table of documents is damaged.

        """
        run_id = self.run_id(run)
        with self._convert_errors(run_id):
            return self.store.documents(run_id)

    def unscored(self, run: str | pd.Series) -> pd.DataFrame:
        """Return the tokens of one run that have no rank, as `RankStore.unscored` describes them.

        Raises:
            Unreadable: the table of these tokens is damaged.

        """
        run_id = self.run_id(run)
        with self._convert_errors(run_id):
            return self.store.unscored(run_id)

    def counts_by_document(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of one run. A hit is a token with rank <= k.

        Groups of documents are ignored. Raises Unreadable if the rank table cannot be read.
        """
        ks = whole_ks(ks)
        return self._count(self.run_id(run), ks).select(ks)

    def document_counts(self, run: str | pd.Series, ks: Sequence[int]) -> DocumentCounts:
        """Count tokens, nats and the hits at each k in each document of one run, or in each group if groups are known.

        A hit is a token with rank <= k. The counts are kept in memory for the next analyzer. A run that was imported
        without ranks has one row with its totals; the document number of this row is `stats.documents.TOTALS`.

        Raises:
            Unreadable: the rank table cannot be read.
            WithoutRanks: the run was imported without ranks, and CE or RBP_k at one of the k is unknown.

        """
        run_id = self.run_id(run)
        ks = whole_ks(ks)
        if run_id in self._without_ranks:
            return self._logged_totals(run_id, ks)
        counts = self._count(run_id, ks).select(ks)
        groups = self.groups(run_id)
        return counts.in_groups(groups) if len(groups) else counts

    def groups(self, run: str | pd.Series) -> Sequence[str]:
        """Return the group of each document that has scored tokens; empty if no run over the same texts has groups.

        All runs over the same texts get the same groups, so their errors can be paired. If the runs have different
        groups, or only some have groups, the groups of the run with the fewest groups are used for all. Groups that
        `dataset.group` names are preferred to groups of near copies. If these groups cannot be read, the result is
        empty, and `unread_groups` holds the reason. Raises Unreadable if the ranks cannot be read, or if a document has
        no group.
        """
        run_id = self.run_id(run)
        if run_id in self._groups:
            return self._groups[run_id]
        self.unread_groups.pop(run_id, None)
        groups = self._find_groups(run_id)
        if run_id not in self.unread_groups:
            self._groups[run_id] = groups
        return groups

    def _find_groups(self, run_id: str) -> Sequence[str]:
        """Read the group of each document with scored tokens, without the cache.

        If the groups cannot be read, add the reason to `unread_groups`, and return no groups.
        """
        frame = self.frame
        if not self._has_groups:
            return ()
        row = frame[frame["run_id"] == run_id].iloc[0]
        same_texts = frame["run_id"] == run_id
        if pd.notna(row["documents_hash"]):
            same_texts = frame["documents_hash"].eq(row["documents_hash"]).fillna(False)
        with_groups = frame[same_texts & frame["groups"].notna()]
        only_copies = with_groups["group"].fillna("").eq("")  # groups that a field of the dataset names come first
        with_groups = with_groups.assign(only_copies=only_copies).sort_values(["only_copies", "groups", "run_id"])
        if not len(with_groups):
            return ()
        source_id = str(with_groups["run_id"].iat[0])
        try:
            with self._convert_errors(source_id):
                group_of_document = self.store.groups(source_id)
        except Unreadable as error:
            self.unread_groups[run_id] = f"its groups cannot be read ({error})"
            return ()
        documents = self._count(run_id, ()).document
        last_document = int(documents.max(initial=-1))
        if last_document >= len(group_of_document):
            raise Unreadable(
                f"run {source_id}: it has groups for {counted(len(group_of_document), 'document')}, "
                f"but a run over the same texts has ranks of document {last_document:,}"
            )
        return [group_of_document[int(number)] for number in documents]

    def _count(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the counts by document of a run, at these k and at others."""
        cached = self._counts_cache.get(run_id)
        if cached is not None and set(ks) <= set(cached.ks):
            return cached
        needed = {*ks, *(cached.ks if cached else ())}
        parts = []
        for piece in self.rank_pieces(run_id, COUNTED_COLUMNS):
            parts.append(piece.document_counts(_add_likely_ks(needed, self._logged_ks, piece.vocab_size)))
        counts = DocumentCounts.concatenate(parts)
        if len(self._counts_cache) * counts.hits.nbytes < _MAX_CACHE_BYTES:
            self._counts_cache[run_id] = counts
        return counts

    def _logged_totals(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the logged numbers of a run without ranks as one row of counts.

        Raises WithoutRanks if CE or RBP_k at one of the k was not logged.
        """
        row = self.frame[self.frame["run_id"] == run_id].iloc[0]
        values = row.reindex(["ce", *map(rbp_name, ks)])
        if values.isna().any():
            raise WithoutRanks(f"{row['name']} was imported without ranks")
        tokens = 1.0 if pd.isna(row["num_tokens"]) else float(row["num_tokens"])
        nats, *hits = (values.to_numpy(np.float64) * tokens).tolist()
        return DocumentCounts(tuple(ks), np.array([TOTALS]), np.array([tokens]), np.array([nats]), np.array([hits]))

    @cached_property
    def _logged_ks(self) -> list[int]:
        return rbp_ks(self.frame.columns)

    @cached_property
    def _has_groups(self) -> bool:
        """Whether any run has groups of documents."""
        return bool(self.frame["groups"].notna().any())

    @cached_property
    def _without_ranks(self) -> frozenset[str]:
        return frozenset(self.frame.loc[self.frame["without_ranks"].fillna(False), "run_id"])

    @contextmanager
    def _convert_errors(self, run_id: str) -> Iterator[None]:
        """Convert errors of files and formats to Unreadable, which names the run."""
        try:
            yield
        except Unreadable:
            raise
        except MissingArtifact as error:
            if run_id in self._without_ranks:
                name = self.frame.loc[self.frame["run_id"] == run_id, "name"].iat[0]
                raise WithoutRanks(f"{name} was imported without ranks") from error
            text = f"run {run_id}: a file is missing or damaged. Run rbptrack verify"
            raise self._unreadable(text, run_id) from error
        except Exception as error:  # a file with other content than expected makes libraries raise errors of every kind
            access_error = file_access_error(error, "a file")
            if access_error:
                raise self._unreadable(f"run {run_id}: {access_error}", run_id) from error
            reason = " ".join(str(error).split())[:200]
            text = f"an artifact of run {run_id} is damaged or cannot be reached: {reason}"
            raise self._unreadable(text, run_id) from error

    def _unreadable(self, text: str, run_id: str) -> Unreadable:
        """Make the error for a file of a run that cannot be read, and add its text to `unreadable`."""
        self.unreadable[run_id] = text
        return Unreadable(text)


def whole_ks(ks: Iterable[Any]) -> list[int]:
    """Return one or several k as a list of int.

    Raises BadInput if a k is not a whole number, or is below 1.
    """
    values = list(ks) if isinstance(ks, Iterable) else [ks]
    if not all(isinstance(k, int | np.integer) and k >= 1 for k in values):
        raise BadInput(f"ks={str(ks)[:60]}: every k must be a whole number, at least 1")
    return [int(k) for k in values]


def _check_columns(columns: Sequence[str] | None) -> None:
    """Raise MissingColumn if a rank table cannot have one of the columns."""
    known_columns = [*SCHEMA.names, "rank"]
    for name in columns or ():
        if name not in known_columns:
            raise MissingColumn(f"a rank table has no column {name}; its columns are {listed(known_columns)}")


def _add_likely_ks(needed: Iterable[int], logged: Sequence[int], vocab_size: int) -> list[int]:
    """Return the needed k and all k up to |V| that analyzers often use. Most rank tables are then read only once.

    `logged` has the k at which the store has RBP_k.
    """
    likely = {*range(1, _MAX_LAW_K + 1), *_PAPER_KS, *logged, *log_grid(vocab_size).tolist()}
    return sorted({*needed, *(k for k in likely if k <= vocab_size)})
