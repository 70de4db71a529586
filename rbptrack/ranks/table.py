"""The rank table: one row per scored token. Every metric derives from it, so no model runs again for a new k."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import TableWriter, read_batches, read_rows, read_table, write_table
from rbptrack.ranks.counts import DocumentCounts
from rbptrack.ranks.histogram import VOCAB_SIZE, RankHistogram, vocab_size_of
from rbptrack.ranks.names import FloatArray, IntArray, check_k

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    "document": (pa.int32(), "the document's number in the selection, from 0"),
    "position": (pa.int32(), "the token's index in its tokenised document, from 0"),
    "field": (pa.int8(), "which of the dataset's fields the token came from"),
    "token": (pa.int32(), "the target's id in the vocabulary"),
    "greater": (pa.int32(), "entries with a logit strictly above the target's"),
    "ties": (pa.int32(), "other entries with a logit equal to the target's"),
    "logprob": (pa.float32(), "ln p(target), nats"),
    "entropy": (pa.float32(), "of the model's distribution, nats"),
    "top": (pa.int32(), "the id that the model ranks first; of several with one logit, the smallest"),
    "top_logprob": (pa.float32(), "ln p(top), nats"),
    "kl": (pa.float32(), "KL(reference || model), nats"),
    "accept": (pa.float32(), "sum over v of min(p, q): how often a draft of this model's is accepted"),
    "reference_top": (pa.int32(), "the id that the reference ranks first; of several with one logit, the smallest"),
    "reference_rank": (pa.int32(), "its rank in this model, greater + ties + 1"),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])
"""All columns of a rank table, in this order.

A table that was measured without a reference has none of the last four. An imported one may have fewer. Where whole
ranks were imported, `ties` is not there and `greater` counts all entries with a logit at least as large.
"""

COLUMNS = {name: meaning for name, (_, meaning) in _COLUMNS.items()}
"""The meaning of every column of a rank table."""

COMPARED = ("kl", "accept", "reference_top", "reference_rank")
"""The columns of a measurement with `reference=`, over the entries that the tokenizer can name."""

_RANK = "rbptrack.rank"  # in a file's metadata: "strict" or "paper"
_RANK_COLUMNS = ("greater", "ties")


class MissingColumn(RbptrackError):
    """A rank table was asked for a column that it does not have."""


@dataclass(frozen=True)
class RankTable:
    """The ranks of every scored token of one measurement, in text order.

    Attributes:
        table: Arrow table with columns of `SCHEMA`.
        vocab_size: |V|, the number of candidates that a target competes with, itself included.
        strict: whether `rank`, and so every metric, is the strict rank: of a measurement made with rank=strict.

    """

    table: pa.Table
    vocab_size: int
    strict: bool = False

    @classmethod
    def from_arrays(cls, *, vocab_size: int, strict: bool = False, **columns: npt.ArrayLike) -> RankTable:
        """Make a table from arrays named as the columns of `SCHEMA`, (tokens,) each."""
        schema = pa.schema([field for field in SCHEMA if field.name in columns])
        arrays = [pa.array(np.asarray(columns[field.name]), type=field.type) for field in schema]
        return cls(pa.Table.from_arrays(arrays, schema=schema), vocab_size, strict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def compared(self) -> bool:
        """Whether it was measured with a reference."""
        return set(COMPARED) <= set(self.table.column_names)

    @property
    def ties_known(self) -> bool:
        """Whether ties are told from entries strictly above; of imported whole ranks they are not."""
        return "ties" in self.table.column_names

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column, (tokens,).

        Raises:
            MissingColumn: it is not there, or `greater` where ties are not known.

        """
        if name in _RANK_COLUMNS and not self.ties_known:
            raise MissingColumn(f"this measurement has no column {name}: its ranks include an unknown number of ties")
        if name not in self.table.column_names:
            why = "it was made without reference=MODEL" if name in COMPARED else "it was imported without it"
            raise MissingColumn(f"this measurement has no column {name}: {why}")
        return np.asarray(self.table.column(name).to_numpy())

    def column_or(self, name: str, missing: float) -> npt.NDArray[Any]:
        """Return one column, (tokens,). If the table lacks it, return `missing` for every token."""
        if name in self.table.column_names:
            return self.column(name)
        return np.full(len(self), missing)

    @cached_property
    def rank(self) -> IntArray:
        """R = number of entries with p >= p(target), the target included (arXiv 2510.20387, eq. 3): 1 is best.

        The strict rank where the measurement was made with rank=strict.
        """
        return self.strict_rank if self.strict else self.above + 1

    @cached_property
    def above(self) -> IntArray:
        """Entries beside the target with a logit at least as large, greater + ties, (tokens,)."""
        greater = self.table.column("greater").to_numpy()
        if not self.ties_known:
            return np.asarray(greater)
        return np.asarray(greater + self.table.column("ties").to_numpy())

    @cached_property
    def strict_rank(self) -> IntArray:
        """1 + number of entries with p > p(target)."""
        return np.asarray(self.column("greater") + 1)

    @cached_property
    def documents(self) -> tuple[IntArray, IntArray]:
        """Numbers of the documents with scored tokens, ascending, and each token's index among them, (tokens,)."""
        number = self.column("document")
        first = self._first_of_documents
        if first is None:
            present, index = np.unique(number, return_inverse=True)
            return present, index
        return number[first], np.repeat(np.arange(len(first)), np.diff(first, append=len(number)))

    @cached_property
    def _first_of_documents(self) -> IntArray | None:
        """The index of each document's first token, (documents,); None if documents are not in order."""
        number = self.column("document")
        if (number[1:] < number[:-1]).any():
            return None
        return np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])

    def sum_by_document(self, values: npt.ArrayLike | None = None) -> FloatArray:
        """Sums of values, (tokens,), over the tokens of each of `documents`; the number of tokens without values."""
        first = self._first_of_documents
        if first is None:
            return np.bincount(self.documents[1], weights=values).astype(np.float64, copy=False)
        if values is None:
            return np.diff(first, append=len(self)).astype(np.float64)
        return np.add.reduceat(values, first, dtype=np.float64)  # a tenth of bincount's time

    @property
    def num_tokens(self) -> int:
        """The number of scored tokens: the denominator of every mean."""
        return len(self)

    @property
    def ce(self) -> float:
        """Mean of -ln p(target), nats."""
        return float(-self.column("logprob").astype(np.float64).sum() / len(self))

    @property
    def tie_rate(self) -> float:
        """Share of scored tokens whose logit another entry equals."""
        return float(np.count_nonzero(self.column("ties")) / len(self))

    @overload
    def rbp(self, k: int) -> float: ...
    @overload
    def rbp(self, k: Iterable[int]) -> FloatArray: ...
    def rbp(self, k: Any) -> Any:
        """Return RBP_k = Pr(R <= k), the share of scored tokens whose rank is at most k: an array for several k."""
        if isinstance(k, Iterable) and not isinstance(k, str):
            return np.array([self.rbp(each) for each in k])
        return float(np.count_nonzero(self.rank <= check_k(k, self.vocab_size)) / len(self))

    def compared_sums(self) -> FloatArray:
        """Sums of kl, of accept, and of tokens at which model and reference rank the same entry first, (3,).

        Raises:
            MissingColumn: it was measured without a reference.

        """
        kl = self.column("kl").sum(dtype=np.float64)
        accept = self.column("accept").sum(dtype=np.float64)
        same = np.count_nonzero(self.column("top") == self.column("reference_top"))
        return np.array([kl, accept, same])

    def histogram(self) -> RankHistogram:
        """Counts and log-probabilities by rank."""
        count = np.bincount(self.rank)
        logprob = np.bincount(self.rank, weights=self.column("logprob").astype(np.float64))
        ranks = np.flatnonzero(count)
        return RankHistogram(ranks, count[ranks], logprob[ranks], self.vocab_size)

    def document_counts(self, ks: Sequence[int]) -> DocumentCounts:
        """Sums by document for these k, in any order."""
        present, document = self.documents
        size = len(present)
        nats = self.sum_by_document(-self.column("logprob").astype(np.float64))
        tokens = np.bincount(document, minlength=size)
        ordered, column = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
        ends = np.minimum(ordered, self.vocab_size)
        steps = np.diff(np.concatenate([[-1], ends, [self.vocab_size]]))
        first = np.repeat(np.arange(len(steps)), steps)[self.rank]  # for each rank, the smallest k it counts for
        width = len(ordered) + 1
        cells = np.bincount(document * width + first, minlength=size * width).reshape(size, width)
        hits = np.cumsum(cells[:, :-1], axis=1, dtype=np.int32)[:, column]  # int32: many k of many runs are in memory
        return DocumentCounts(tuple(ks), present.astype(np.int64), tokens, nats, hits)

    def to_pandas(self) -> pd.DataFrame:
        """All columns and `rank`, a row per scored token; without `greater` where ties are not known."""
        frame: pd.DataFrame = self.table.to_pandas().assign(rank=self.rank)
        return frame if self.ties_known else frame.drop(columns="greater")

    def write(self, path: Path) -> None:
        """Write Parquet, whole, and on the disk when this returns."""
        write_table(path, self._described())

    @classmethod
    def write_pieces(cls, path: Path, pieces: Iterable[RankTable]) -> None:
        """Write tables of the same columns one after the other, a row group each, in constant memory."""
        pieces = iter(pieces)
        first = next(pieces)._described()
        with TableWriter(path, first.schema) as file:
            file.add(first)
            for piece in pieces:
                file.add(piece._described())

    def _described(self) -> pa.Table:
        """The table with |V| and which rank counts, which stand in a file's metadata."""
        metadata = {VOCAB_SIZE: str(self.vocab_size), _RANK: "strict" if self.strict else "paper"}
        return self.table.replace_schema_metadata(metadata)

    @classmethod
    def read(cls, path: Path, columns: Sequence[str] | None = None) -> RankTable:
        """Read what `write` wrote, all of it or some columns; `rank` stands for those that make it.

        Raises:
            RbptrackError: the file is damaged or no rank table.

        """
        return cls._of(read_table(path, _stored(columns)), path)

    @classmethod
    def read_pieces(cls, path: Path, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Read in pieces of whole documents, some 100,000 rows at a time: flat in memory; otherwise as `read`.

        Rows must be in text order, as measurements have them.
        """
        waiting: pa.Table | None = None  # rows of a document of which more may come
        for batch in read_batches(path, _stored(columns, "document")):
            rows = batch if waiting is None else pa.concat_tables([waiting, batch])
            number = rows.column("document").to_numpy()
            if (number[1:] < number[:-1]).any():
                raise RbptrackError(f"{path} has documents out of order: it cannot be read in pieces")
            cut = int(np.searchsorted(number, number[-1])) if len(number) else 0
            if cut:
                yield cls._of(rows.slice(0, cut), path)
            waiting = rows.slice(cut)
        if waiting is not None:
            yield cls._of(waiting, path)

    @classmethod
    def read_documents(cls, path: Path, documents: Collection[int]) -> RankTable:
        """Read the rows of some documents, by their numbers; flat in memory, and otherwise as `read`."""
        return cls._of(read_rows(path, "document", documents), path)

    @classmethod
    def _of(cls, table: pa.Table, path: Path) -> RankTable:
        vocab_size = vocab_size_of(table.schema, path)
        strict = (table.schema.metadata or {}).get(_RANK.encode()) == b"strict"
        foreign = [field.name for field in table.schema if field not in SCHEMA]
        if foreign:
            raise RbptrackError(f"{path} is not a rank table: columns {foreign} are none of {SCHEMA.names}")
        return cls(table.replace_schema_metadata(None), vocab_size, strict)

    @classmethod
    def concatenate(cls, tables: Iterable[RankTable]) -> RankTable:
        """Join tables of disjoint documents (or disjoint parts of them), in the order given.

        Columns that one of them does not have are left out.
        """
        parts = list(tables)
        kinds = {(part.vocab_size, part.strict, part.ties_known) for part in parts}
        if len(kinds) != 1:
            sizes = sorted({part.vocab_size for part in parts})
            raise RbptrackError(f"rank tables over different vocabularies or ranks cannot be joined: {sizes}")
        shared = [name for name in SCHEMA.names if all(name in part.table.column_names for part in parts)]
        joined = pa.concat_tables([part.table.select(shared) for part in parts])
        return replace(parts[0], table=joined.combine_chunks())


def _stored(columns: Sequence[str] | None, *always: str) -> list[str] | None:
    """The columns of a file that are read for these: a rank needs two, and one of the two is not read alone."""
    if columns is None:
        return None
    wanted = {*columns, *always}
    if wanted & {"rank", *_RANK_COLUMNS}:
        wanted |= set(_RANK_COLUMNS)
    return [name for name in SCHEMA.names if name in wanted]
