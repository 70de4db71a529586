"""The rank table of a measurement, with one row per scored token. All metrics are computed from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import read_batches, read_rows, read_table, write_table, writing_table
from rbptrack.ranks.columns import COMPARED, SCHEMA, MissingColumn
from rbptrack.ranks.counts import DocumentCounts
from rbptrack.ranks.histogram import VOCAB_SIZE, RankHistogram, vocab_size_of
from rbptrack.ranks.names import FloatArray, IntArray, check_k

if TYPE_CHECKING:
    import pandas as pd

_RANK_KIND = "rbptrack.rank"  # key in a file's metadata, with the value "strict" or "paper"
_RANK_COLUMNS = ("greater", "ties")


@dataclass(frozen=True)
class RankTable:
    """The ranks of every scored token of one measurement, in text order.

    Attributes:
        table: an Arrow table with columns of `SCHEMA`.
        vocab_size: |V|, the number of entries among which a target is ranked, the target included.
        strict: whether `rank` and all metrics use the strict rank (rank=strict).

    """

    table: pa.Table
    vocab_size: int
    strict: bool = False

    @classmethod
    def from_arrays(cls, *, vocab_size: int, strict: bool = False, **columns: npt.ArrayLike) -> RankTable:
        """Make a table from arrays (tokens,), which are given by the names of their columns in `SCHEMA`."""
        schema = pa.schema([field for field in SCHEMA if field.name in columns])
        arrays = [pa.array(np.asarray(columns[field.name]), type=field.type) for field in schema]
        return cls(pa.Table.from_arrays(arrays, schema=schema), vocab_size, strict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def has_reference(self) -> bool:
        """Whether the measurement had a reference model."""
        return set(COMPARED) <= set(self.table.column_names)

    @property
    def ties_known(self) -> bool:
        """Whether the number of ties is known. It is unknown if ranks were imported without it."""
        return "ties" in self.table.column_names

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one column, (tokens,).

        Raises MissingColumn if the table does not have the column, or if the column is `greater` and ties are unknown.
        """
        if name in _RANK_COLUMNS and not self.ties_known:
            raise MissingColumn(f"this measurement has no column {name}: the number of ties in its ranks is unknown")
        if name not in self.table.column_names:
            reason = "it was made without reference=MODEL" if name in COMPARED else "it was imported without it"
            raise MissingColumn(f"this measurement has no column {name}: {reason}")
        return np.asarray(self.table.column(name).to_numpy())

    def column_or(self, name: str, missing: float) -> npt.NDArray[Any]:
        """Return one column, (tokens,). If the table lacks it, return `missing` for every token."""
        if name in self.table.column_names:
            return self.column(name)
        return np.full(len(self), missing)

    @cached_property
    def rank(self) -> IntArray:
        """The rank that metrics use, (tokens,). 1 is best.

        It is R, the number of entries with p >= p(target), the target included (arXiv 2510.20387, eq. 3). With
        rank=strict it is the strict rank.
        """
        return self.strict_rank if self.strict else self.above + 1

    @cached_property
    def above(self) -> IntArray:
        """The number of other entries with a logit at least as large as the target's (greater + ties), (tokens,)."""
        greater = self.table.column("greater").to_numpy()
        if not self.ties_known:
            return np.asarray(greater)
        return np.asarray(greater + self.table.column("ties").to_numpy())

    @cached_property
    def strict_rank(self) -> IntArray:
        """The strict rank, 1 + the number of entries with p > p(target), (tokens,)."""
        return np.asarray(self.column("greater") + 1)

    @cached_property
    def documents(self) -> tuple[IntArray, IntArray]:
        """The documents with scored tokens.

        Returns:
            The numbers of these documents, ascending, (documents,), and for each token the index of its document among
            them, (tokens,).

        """
        document = self.column("document")
        first = self._first_tokens
        if first is None:
            numbers, index = np.unique(document, return_inverse=True)
            return numbers, index
        return document[first], np.repeat(np.arange(len(first)), np.diff(first, append=len(document)))

    @cached_property
    def _first_tokens(self) -> IntArray | None:
        """The index of each document's first token, (documents,), or None if documents are not in order."""
        document = self.column("document")
        if (document[1:] < document[:-1]).any():
            return None
        return np.flatnonzero(np.append(True, document[1:] != document[:-1])[: len(document)])

    def sum_by_document(self, values: npt.ArrayLike | None = None) -> FloatArray:
        """Sum values (tokens,) over the tokens of each document. Without values, count the tokens.

        Returns an array (documents,), in the order of `documents`.
        """
        first = self._first_tokens
        if first is None:
            return np.bincount(self.documents[1], weights=values).astype(np.float64, copy=False)
        if values is None:
            return np.diff(first, append=len(self)).astype(np.float64)
        return np.add.reduceat(values, first, dtype=np.float64)  # takes a tenth of bincount's time

    @property
    def num_tokens(self) -> int:
        """The number of scored tokens."""
        return len(self)

    @property
    def ce(self) -> float:
        """The mean of -ln p(target), nats."""
        return float(-self.column("logprob").astype(np.float64).sum() / len(self))

    def rbp(self, k: int) -> float:
        """Return RBP_k, the share of scored tokens with rank at most k.

        Raises BadInput if k is not a whole number from 1 to |V|.
        """
        return float(np.count_nonzero(self.rank <= check_k(k, self.vocab_size)) / len(self))

    def histogram(self) -> RankHistogram:
        """Return the number of tokens and the sum of log-probabilities for each rank."""
        count = np.bincount(self.rank)
        logprob = np.bincount(self.rank, weights=self.column("logprob").astype(np.float64))
        ranks = np.flatnonzero(count)
        return RankHistogram(ranks, count[ranks], logprob[ranks], self.vocab_size)

    def document_counts(self, ks: Sequence[int]) -> DocumentCounts:
        """Return the tokens, nats and hits of each document. The k may be in any order."""
        numbers, document = self.documents
        nats = self.sum_by_document(-self.column("logprob").astype(np.float64))
        tokens = np.bincount(document, minlength=len(numbers))
        sorted_ks, column = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
        # A token is in class j if the j-th smallest k is the first one that is at least the token's rank.
        last_ranks = np.concatenate([[-1], np.minimum(sorted_ks, self.vocab_size), [self.vocab_size]])
        class_sizes = np.diff(last_ranks)
        token_class = np.repeat(np.arange(len(class_sizes)), class_sizes)[self.rank]
        classes = len(class_sizes)
        in_class = np.bincount(document * classes + token_class, minlength=len(numbers) * classes)
        in_class = in_class.reshape(len(numbers), classes)
        # int32, because many k of many runs are in memory at once
        hits = np.cumsum(in_class[:, :-1], axis=1, dtype=np.int32)[:, column]
        return DocumentCounts(tuple(ks), numbers.astype(np.int64), tokens, nats, hits)

    def to_pandas(self) -> pd.DataFrame:
        """Return all columns and `rank` as a DataFrame with a row per scored token.

        `greater` is left out if ties are unknown.
        """
        frame: pd.DataFrame = self.table.to_pandas().assign(rank=self.rank)
        return frame if self.ties_known else frame.drop(columns="greater")

    def write(self, path: Path) -> None:
        """Write a Parquet file, completely or not at all. It is on the disk when the function returns."""
        write_table(path, self._with_metadata())

    @classmethod
    @contextmanager
    def writing(cls, path: Path) -> Iterator[Callable[[RankTable], None]]:
        """Yield a function that appends tables with equal columns to one file, each as one row group.

        When the block ends, the whole file is on the disk. If the block raises an exception, no file is written. At
        least one table must be appended.
        """
        with ExitStack() as stack:
            writers: list[pq.ParquetWriter] = []

            def append(piece: RankTable) -> None:
                table = piece._with_metadata()
                if not writers:
                    writers.append(stack.enter_context(writing_table(path, table.schema)))
                writers[0].write_table(table)

            yield append

    def _with_metadata(self) -> pa.Table:
        """Return the Arrow table with |V| and the kind of rank in its metadata."""
        metadata = {VOCAB_SIZE: str(self.vocab_size), _RANK_KIND: "strict" if self.strict else "paper"}
        return self.table.replace_schema_metadata(metadata)

    @classmethod
    def read(cls, path: Path, columns: Sequence[str] | None = None) -> RankTable:
        """Read some columns of a rank table from a file, or all columns.

        Among `columns`, `rank` stands for the columns from which ranks are computed. Raises RbptrackError if the file
        is damaged, or is not a rank table.
        """
        return cls._from_file(read_table(path, _stored_columns(columns)), path)

    @classmethod
    def read_pieces(cls, path: Path, columns: Sequence[str] | None = None) -> Iterator[RankTable]:
        """Yield a rank table in pieces of whole documents, about 100,000 rows each. Only one piece is in memory.

        Among `columns`, `rank` stands for the columns from which ranks are computed. Without `columns`, all are read.
        Raises RbptrackError if the file is damaged, is not a rank table, or has documents out of order.
        """
        unfinished: pa.Table | None = None  # rows of the last document, which may continue in the next batch
        for batch in read_batches(path, _stored_columns(columns, "document")):
            _check_schema(batch.schema, path)
            rows = batch if unfinished is None else pa.concat_tables([unfinished, batch])
            document = rows.column("document").to_numpy()
            if (document[1:] < document[:-1]).any():
                raise RbptrackError(f"{path} has documents out of order: it cannot be read in pieces")
            end = int(np.searchsorted(document, document[-1])) if len(document) else 0
            if end:
                yield cls._from_file(rows.slice(0, end), path)
            unfinished = rows.slice(end)
        if unfinished is not None:
            yield cls._from_file(unfinished, path)

    @classmethod
    def read_documents(cls, path: Path, documents: Collection[int]) -> RankTable:
        """Read the rows of some documents, which are given by their numbers. Other rows are not kept in memory.

        Raises RbptrackError if the file is damaged, or is not a rank table.
        """
        return cls._from_file(read_rows(path, "document", documents), path)

    @classmethod
    def _from_file(cls, table: pa.Table, path: Path) -> RankTable:
        """Make a rank table from an Arrow table that was read from a file, and check its columns and metadata."""
        vocab_size = vocab_size_of(table.schema, path)
        strict = (table.schema.metadata or {}).get(_RANK_KIND.encode()) == b"strict"
        _check_schema(table.schema, path)
        return cls(table.replace_schema_metadata(None), vocab_size, strict)

    @classmethod
    def concatenate(cls, tables: Iterable[RankTable]) -> RankTable:
        """Join tables of different documents or different parts of documents, in their order.

        A column that one of the tables lacks is left out. Raises RbptrackError if the tables differ in |V|, in the kind
        of rank, or in whether ties are known.
        """
        parts = list(tables)
        conventions = {(part.vocab_size, part.strict, part.ties_known) for part in parts}
        if len(conventions) != 1:
            raise RbptrackError("rank tables with different |V|, kinds of rank or known ties cannot be joined")
        shared = [name for name in SCHEMA.names if all(name in part.table.column_names for part in parts)]
        joined = pa.concat_tables([part.table.select(shared) for part in parts])
        return replace(parts[0], table=joined.combine_chunks())


def _check_schema(schema: pa.Schema, path: Path) -> None:
    """Raise RbptrackError if a column of a file is not a column of rank tables, or has another type."""
    wrong = [f"{field.name} ({field.type})" for field in schema if field not in SCHEMA]
    if wrong:
        raise RbptrackError(f"{path} is not a rank table: its columns {', '.join(wrong)} must not be there")


def _stored_columns(columns: Sequence[str] | None, *needed: str) -> list[str] | None:
    """Return the columns to read from a file: the requested and the needed ones, or None for all.

    `rank`, `greater` and `ties` are each computed from both `greater` and `ties`.
    """
    if columns is None:
        return None
    names = {*columns, *needed}
    if names & {"rank", *_RANK_COLUMNS}:
        names |= set(_RANK_COLUMNS)
    return [name for name in SCHEMA.names if name in names]
