"""Finished measurements as analyzers read them: a table with one row each, and their ranks on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from rbptrack.analysis.bounded_cache import Kept
from rbptrack.analysis.selection import Selection
from rbptrack.analysis.source import Source
from rbptrack.base.errors import MissingArtifact, RbptrackError
from rbptrack.ranks import VERSION, DocumentCounts, RankHistogram, RankTable, is_rbp_column, log_grid, rbp_ks, rbp_name

COLUMNS: Mapping[str, str] = {
    "run_id": "string",
    "family": "string",
    "size": "string",
    "model": "string",
    "dataset": "string",
    "revision": "string",
    "commit": "string",
    "software": "string",
    "fingerprint": "string",
    "sweep": "string",
    "imported": "string",
    "dtype": "string",
    "sequence": "string",
    "seq_len": "Int64",
    "context": "Int64",
    "split_difference": "Float64",
    "candidates": "string",
    "rank": "string",
    "documents_hash": "string",
    "groups": "string",
    "vocab_size": "Int64",
    "non_embedding_params": "Int64",
    "total_params": "Int64",
    "training_tokens": "Float64",
    "num_tokens": "Int64",
    "num_documents": "Int64",
    "ce": "Float64",
    "ce_se": "Float64",
    "ce_rank": "Float64",
    "ce_rest": "Float64",
    "bits_per_byte": "Float64",
    "tie_rate": "Float64",
    "without_ranks": "boolean",
    "reference": "string",
    "reference_commit": "string",
    "reference_params": "Int64",
    "kl": "Float64",
    "acceptance": "Float64",
    "same_top": "Float64",
    "repo": "string",
    "dataset_repo": "string",
    "dataset_commit": "string",
    "ended": "string",
}
"""The columns of `Runs.frame` and their types; after them one Float64 pair rbp_<k>, rbp_<k>_se per logged k."""

T = TypeVar("T")
_COMPARED = ("reference", "reference_commit", "reference_params", "kl", "acceptance", "same_top")
_FROM = ("repo", "dataset_repo", "dataset_commit", "ended")
_OPTIONAL = ("training_tokens", "imported", "without_ranks", "groups", "split_difference", *_COMPARED, *_FROM)
_EVERY_K = 100  # the paper's law in k ends here; up to it every k is counted
_PAPER_K = (500, 2500, 10000)  # the larger k of its Table 2


class Unreadable(RbptrackError):
    """A measurement's artifact is missing or damaged; its text names the run."""


class WithoutRanks(Unreadable):
    """A measurement was imported without ranks: it has no artifact to read."""

    def __init__(self, text: str = "imported without ranks") -> None:
        super().__init__(text)


class Runs(Selection):
    """Finished measurements: a table with one row each, and their ranks on demand.

    Every method that takes a run takes its name (`nano-6k/stdlib`), the beginning of its run ID, or its row.

    Args:
        frame: one row per measurement with the columns of `COLUMNS` and rbp_<k>.
        source: where their ranks are read, when they are asked for.

    """

    def __init__(self, frame: pd.DataFrame, source: Source) -> None:
        frame = frame.assign(**{c: None for c in _OPTIONAL if c not in frame.columns})
        missing = [c for c in COLUMNS if c not in frame.columns]
        if missing:
            raise RbptrackError(f"a table of runs lacks the columns {', '.join(missing)}")
        rbp = [c for c in frame.columns if is_rbp_column(c)]
        self.frame = frame.astype({**COLUMNS, **dict.fromkeys(rbp, "Float64")}).reset_index(drop=True)
        self.source = source
        self._sources = dict[str, Sequence[str]]()
        self._histograms = Kept[RankHistogram]()
        self._counts = Kept[DocumentCounts]()  # no whole table: it is megabytes, and analyzers reduce it at once
        self._read: Callable[[], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, which reads runs itself; fail if its source cannot be sent there."""
        return {name: value for name, value in vars(self).items() if name not in ("_histograms", "_counts", "_read")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _read=None, _histograms=Kept[RankHistogram](), _counts=Kept[DocumentCounts]())

    def own_copy(self) -> Self:
        """Return the same measurements, with a table of its own: what an analyzer changes in it, no other sees."""
        own = type(self).__new__(type(self))
        vars(own).update(vars(self), frame=self.frame.copy())
        return own

    def _with_rows(self, rows: pd.DataFrame) -> Self:
        derived = ("_any_groups", "_logged_ks", "_run_ids", "_unranked")  # from the frame, when they were first needed
        own = type(self).__new__(type(self))
        vars(own).update({name: value for name, value in vars(self).items() if name not in derived})
        vars(own).update(frame=rows.reset_index(drop=True), _sources={})
        return own

    def watch(self, read: Callable[[], None] | None) -> None:
        """Have a function called for each measurement that an analyzer has read; None: no more."""
        self._read = read

    def was_read(self) -> None:
        """Report progress: one more measurement was read."""
        if self._read:
            self._read()

    def histogram(self, run: str | pd.Series) -> RankHistogram:
        """Return exact counts by rank of one run; loaded on demand and kept while memory is spared. Raises
        Unreadable.
        """
        run_id = self.run_id(run)
        kept = self._histograms.get(run_id)
        return self._histograms.keep(run_id, self._readable(self.source.histogram, run_id)) if kept is None else kept

    def vocabulary(self, run: str | pd.Series) -> Mapping[int, str]:
        """Return the text of every token of a run's corpus, by id; empty where texts were not kept."""
        return self.source.token_texts(self.run_id(run))

    def token_texts(self, run: str | pd.Series, tokens: Iterable[int]) -> list[str]:
        """Return the texts of tokens of one run, quoted, so that spaces show: `" the"`; `id 262` where it is not
        known.
        """
        vocabulary = self.vocabulary(run)
        return [
            json.dumps(vocabulary[t], ensure_ascii=False) if t in vocabulary else f"id {t}" for t in map(int, tokens)
        ]

    def ranks(self, run: str | pd.Series) -> RankTable:
        """Return the rank table of one run; loaded at each call: reduce it at once. Raises Unreadable."""
        return self._readable(self.source.ranks, self.run_id(run))

    def rank_pieces(self, run: str | pd.Series, *, version: int = VERSION) -> Iterator[RankTable]:
        """Yield the rank table of one run in pieces of whole documents, in text order; one at a time is in memory.

        For sums over documents, of tables that may be larger than memory. `version=1` leaves out entropy, top and all
        later columns, which takes half the time. Raises Unreadable, also in the middle.
        """
        run_id = self.run_id(run)
        pieces = self._readable(lambda run_id: iter(self.source.rank_pieces(run_id, version=version)), run_id)
        while (piece := self._readable(lambda _: next(pieces, None), run_id)) is not None:
            yield piece

    def scores(self) -> pd.DataFrame:
        """Return the scores of tasks that were imported, with the columns of `SCORES`; no row without any."""
        return self.source.scores()

    def groups(self, run: str | pd.Series) -> Sequence[str]:
        """Return the source of each document with scored tokens of a run; empty where none is named, or the list is
        gone.

        Runs that read the same texts have the same sources, so that they are drawn jointly: where only some of them, or
        several fields, name sources, those of the run that names the fewest are taken for all.
        """
        if not self._any_groups:
            return ()
        run_id = self.run_id(run)
        row = self.frame.loc[self.frame["run_id"] == run_id, ["documents_hash", "groups"]].iloc[0]
        same = self.frame["run_id"] == run_id if pd.isna(row["documents_hash"]) else self._same_texts(row)
        named = self.frame.loc[same & self.frame["groups"].notna(), ["groups", "run_id"]].to_numpy().tolist()
        if not named:
            return ()
        named_run = min(named, key=lambda source_and_run: (int(source_and_run[0].split()[0]), source_and_run))[1]
        if run_id not in self._sources:
            try:
                of_number = self._readable(self.source.groups, named_run)
                self._sources[run_id] = [of_number[document] for document in self._documents(run_id)]
            except Unreadable:
                self._sources[run_id] = ()
        return self._sources[run_id]

    @cached_property
    def _any_groups(self) -> bool:
        return bool(self.frame["groups"].notna().any())

    def _documents(self, run_id: str) -> list[int]:
        """Return the numbers of the documents of a run that have scored tokens."""
        if (kept := self._counts.get(run_id)) is not None:
            return [int(number) for number in kept.document]
        return sorted({int(number) for piece in self.rank_pieces(run_id, version=1) for number in piece.documents[0]})

    def _same_texts(self, row: pd.Series[Any]) -> pd.Series[bool]:
        same: pd.Series[bool] = self.frame["documents_hash"].eq(row["documents_hash"]).fillna(False)
        return same

    def document_counts(self, run: str | pd.Series, ks: Sequence[int], *, by_source: bool = True) -> DocumentCounts:
        """Return tokens, nats and hits of each k per document of one run; kept, for many k, while memory is spared.

        Where the documents' sources are known, of each source, unless `by_source` is False. Raises Unreadable.

        Analyzers that ask for k up to 100, the paper's, logged ones or those of `log_grid(|V|)` read each rank table
        once between them.
        """
        run_id = self.run_id(run)
        kept = self._counts.get(run_id)
        if kept is None and (logged_only := self._imported_counts(run_id, ks)):
            return logged_only
        if kept is None or not set(ks) <= set(kept.ks):
            also = (*ks, *(kept.ks if kept else ()))
            kept = self._counts.keep(run_id, self._counted(run_id, also))
        groups = self.groups(run_id) if by_source else ()
        return kept.select(ks).in_groups(groups) if len(groups) else kept.select(ks)

    def _counted(self, run_id: str, also: Sequence[int]) -> DocumentCounts:
        """Return counts for every k that analyzers are likely to ask for; a piece of the table is in memory at a
        time.
        """
        pieces = self.rank_pieces(run_id, version=1)
        parts = [piece.document_counts(_likely_ks(piece.vocab_size, self._logged_ks, tuple(also))) for piece in pieces]
        return DocumentCounts.concatenate(parts) if len(parts) > 1 else parts[0]

    @cached_property
    def _logged_ks(self) -> tuple[int, ...]:
        return tuple(rbp_ks(self.frame.columns))

    def _imported_counts(self, run_id: str, ks: Sequence[int]) -> DocumentCounts | None:
        """Return the logged numbers of an imported run without ranks as one document, so without sampling error."""
        row = self._unranked.get(run_id)
        if row is None or pd.isna(row["ce"]) or any(pd.isna(row.get(rbp_name(k))) for k in ks):
            return None
        tokens = 1.0 if pd.isna(row["num_tokens"]) else float(row["num_tokens"])
        hits = np.array([[row[rbp_name(k)] * tokens for k in ks]], dtype=np.float64).reshape(1, len(ks))
        nats = np.array([row["ce"] * tokens])
        return DocumentCounts(tuple(ks), np.array([0]), np.array([tokens]), nats, hits)

    @cached_property
    def _unranked(self) -> dict[str, dict[Hashable, Any]]:
        """The rows without |V|, by run id: imported, and without ranks."""
        return {row["run_id"]: row for row in self.frame[self.frame["vocab_size"].isna()].to_dict("records")}

    def _readable(self, load: Callable[[str], T], run_id: str) -> T:
        try:
            return load(run_id)
        except Unreadable:
            raise
        except MissingArtifact as error:
            row = self.frame[self.frame["run_id"] == run_id]
            if row["without_ranks"].fillna(False).any():
                raise WithoutRanks from error
            raise Unreadable(f"run {run_id}: its rank table or histogram is missing") from error
        except (RbptrackError, OSError, pa.ArrowException, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise Unreadable(f"an artifact of run {run_id} is damaged or cannot be reached: {reason}") from error


@lru_cache(maxsize=64)  # the measurements of a family ask for the same
def _likely_ks(vocab_size: int, logged: tuple[int, ...], also: tuple[int, ...]) -> list[int]:
    small, larger = range(1, min(_EVERY_K, vocab_size) + 1), [k for k in (*_PAPER_K, *logged) if k <= vocab_size]
    return sorted({*small, *larger, *log_grid(vocab_size).tolist(), *also})
