"""Read the files of measurements, count their ranks by document, and keep the counts for the next analyzer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pandas as pd

from rbptrack.analysis.rank_store import RankStore, Unreadable, WithoutRanks
from rbptrack.base.errors import MissingArtifact, file_access_error
from rbptrack.ranks import COUNTED_COLUMNS, DocumentCounts, RankTable, log_grid, rbp_ks

T = TypeVar("T")

_MAX_LAW_K = 100  # the largest k of the paper's law in k. Every k up to this one is counted
_PAPER_KS = (500, 2500, 10000)  # the larger k of the paper's table 2
_MAX_CACHE_BYTES = 200_000_000  # the most bytes of counts that are kept for the next analyzer


class RankReader:
    """Reads the files of measurements by run ID. All selections from one `Runs` share one reader and its counts.

    Args:
        store: the store that holds the ranks.
        frame: the table of `Runs`.

    Attributes:
        unreadable: the reason why a file of a run could not be read, by run ID.
        without_ranks: the names of the measurements that were imported without ranks, by run ID.

    """

    def __init__(self, store: RankStore, frame: pd.DataFrame) -> None:
        self.unreadable: dict[str, str] = {}
        rows = frame[frame["without_ranks"].fillna(False)]
        self.without_ranks: dict[str, str] = dict(zip(rows["run_id"], rows["name"], strict=True))
        self._store = store
        self._logged_ks = rbp_ks(frame.columns)
        self._counts: dict[str, DocumentCounts] = {}  # by run ID

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without counts and errors: another process reads the files again."""
        return {**vars(self), "_counts": {}, "unreadable": {}}

    def read(self, run_id: str, read: Callable[[str], T]) -> T:
        """Return what a method of the store returns for a run.

        Raises Unreadable, with the run's ID, if the method raises any exception.
        """
        with self._convert_errors(run_id):
            return read(run_id)

    def pieces(self, run_id: str, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield the rank table of a run in pieces. Raises Unreadable if it cannot be read."""
        with self._convert_errors(run_id):
            yield from self._store.rank_pieces(run_id, columns)

    def count(self, run_id: str, ks: Sequence[int]) -> DocumentCounts:
        """Return the counts by document of a run, at these k and at others.

        Raises Unreadable if the rank table cannot be read.
        """
        cached = self._counts.get(run_id)
        if cached is not None and set(ks) <= set(cached.ks):
            return cached
        needed = {*ks, *(cached.ks if cached else ())}
        parts = []
        for piece in self.pieces(run_id, COUNTED_COLUMNS):
            parts.append(piece.document_counts(_add_likely_ks(needed, self._logged_ks, piece.vocab_size)))
        counts = DocumentCounts.concatenate(parts)
        kept_bytes = sum(kept.hits.nbytes for kept in self._counts.values())
        if kept_bytes + counts.hits.nbytes <= _MAX_CACHE_BYTES:
            self._counts[run_id] = counts
        return counts

    @contextmanager
    def _convert_errors(self, run_id: str) -> Iterator[None]:
        """Convert errors of files and formats to Unreadable, which names the run."""
        try:
            yield
        except Unreadable:
            raise
        except MissingArtifact as error:
            if run_id in self.without_ranks:
                raise WithoutRanks(f"{self.without_ranks[run_id]} was imported without ranks") from error
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


def _add_likely_ks(needed: Iterable[int], logged: Sequence[int], vocab_size: int) -> list[int]:
    """Return the needed k and all k up to |V| that analyzers often use. Most rank tables are then read only once.

    `logged` has the k at which the store has RBP_k.
    """
    likely = {*range(1, _MAX_LAW_K + 1), *_PAPER_KS, *logged, *log_grid(vocab_size).tolist()}
    return sorted({*needed, *(k for k in likely if k <= vocab_size)})
