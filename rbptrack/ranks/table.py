"""The rank table: one row per scored token. Every metric derives from it, so no model runs again for a new k."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rbptrack.base import parquet
from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.columns import COMPARED, SCHEMA, SCHEMAS, VERSION, fitting, version_of
from rbptrack.ranks.counts import DocumentCounts
from rbptrack.ranks.histogram import ABOVE_ZERO, RankHistogram, vocab_size_of
from rbptrack.ranks.names import FloatArray, IntArray, check_k

if TYPE_CHECKING:
    import pandas as pd

_VERSION = b"rbptrack.table"
_TIES = b"rbptrack.ties"  # "unknown" where only ranks are known
_SPLIT = ("greater", "ties")  # what a rank is the sum of


class LacksColumn(RbptrackError):
    """A rank table was asked for a column that it does not have."""


@dataclass(frozen=True)
class RankTable:
    """The ranks of every scored token of one measurement, in text order.

    Attributes:
        table: Arrow table with the columns of `SCHEMA`; of version 2, with those of `ADDED` too; of a measurement with
            a reference, with those of `COMPARED`.
        vocab_size: |V|, the number of candidates that a target competes with, itself included.
        strict: whether `rank`, and so every metric, is the strict rank: of a measurement made with rank=strict.
        ties_known: whether `greater` and `ties` are known; of vLLM only their sum is: neither can be read.

    """

    table: pa.Table
    vocab_size: int
    strict: bool = False
    ties_known: bool = True

    def __post_init__(self) -> None:
        if not any(self.table.schema.equals(schema) for schema in SCHEMAS):
            raise RbptrackError(f"not a rank table: columns {self.table.schema.names}, expected {SCHEMA.names}")

    @classmethod
    def from_arrays(cls, *, vocab_size: int, strict: bool = False, **columns: npt.ArrayLike) -> RankTable:
        """Return a table from one array per column of `SCHEMA`, of `ADDED` and of `COMPARED` where given, (tokens,)
        each.
        """
        schema = fitting(columns)[-1]
        arrays = [pa.array(np.asarray(columns[f.name]), type=f.type) for f in schema]
        return cls(pa.Table.from_arrays(arrays, schema=schema), vocab_size, strict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def version(self) -> int:
        """1: the columns of `SCHEMA`; 2: those of `ADDED` too."""
        return version_of(self.table.schema)

    @property
    def compared(self) -> bool:
        """Whether it has the columns of `COMPARED`: it was measured with a reference."""
        return set(COMPARED.names) <= set(self.table.column_names)

    def of_version(self, version: int) -> RankTable:
        """Return the same table without the columns of later versions."""
        return self if version >= self.version else replace(self, table=self.table.select(SCHEMA.names))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one column as a numpy array of shape (tokens,).

        Raises:
            LacksColumn: version 1 lacks it, no reference was given, or only whole ranks are known.

        """
        if name in _SPLIT and not self.ties_known:
            raise LacksColumn(f"this measurement has no column {name}: its ranks include an unknown number of ties")
        if name in COMPARED.names and not self.compared:
            raise LacksColumn(f"this measurement has no column {name}: it was made without reference=MODEL")
        if name not in self.table.column_names:
            raise LacksColumn(
                f"this measurement has no column {name}: it was made before version {VERSION} of the rank table; "
                "the command that measured it, with again=columns, measures it again"
            )
        return np.asarray(self.table.column(name).to_numpy())

    def to_pandas(self) -> pd.DataFrame:
        """Return every column of the table and `rank`, a row per scored token.

        Where only whole ranks were imported, `greater` and `ties` are left out.
        """
        frame: pd.DataFrame = self.table.to_pandas().assign(rank=self.rank)
        return frame if self.ties_known else frame.drop(columns=list(_SPLIT))

    @cached_property
    def rank(self) -> IntArray:
        """R = number of entries with p >= p(target), the target included (arXiv 2510.20387, eq. 3): 1 is best.

        The strict rank where the measurement was made with rank=strict.
        """
        return self.strict_rank if self.strict else self.above + 1

    @cached_property
    def above(self) -> IntArray:
        """Entries beside the target with a logit at least as large, greater + ties, (tokens,)."""
        greater, ties = (self.table.column(name).to_numpy() for name in _SPLIT)
        return np.asarray(greater + ties)

    @cached_property
    def strict_rank(self) -> IntArray:
        """1 + number of entries with p > p(target)."""
        return np.asarray(self.column("greater") + 1)

    @cached_property
    def documents(self) -> tuple[IntArray, IntArray]:
        """Numbers of the documents that have scored tokens, ascending, and each token's place among them, (tokens,)."""
        number = self.column("document")
        if (number[1:] < number[:-1]).any():
            present, place = np.unique(number, return_inverse=True)
            return present, place
        first = np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])  # in order: no need to sort
        return number[first], np.repeat(np.arange(len(first)), np.diff(first, append=len(number)))

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

    def rbp(self, k: int) -> float:
        """Return RBP_k = Pr(R <= k), the share of scored tokens whose rank is at most k."""
        return float(np.count_nonzero(self.rank <= check_k(k, self.vocab_size)) / len(self))

    def compared_sums(self) -> FloatArray:
        """Return sums of kl, of accept, and of tokens at which model and reference rank the same first, (3,); else
        zeros.
        """
        if not self.compared:
            return np.zeros(3)
        same = self.column("top") == self.column("reference_top")
        return np.array([values.sum(dtype=np.float64) for values in (self.column("kl"), self.column("accept"), same)])

    def histogram(self) -> RankHistogram:
        """Return counts and log-probabilities by rank."""
        count = np.bincount(self.rank)
        logprob = np.bincount(self.rank, weights=self.column("logprob").astype(np.float64))
        ranks = np.flatnonzero(count)
        return RankHistogram(ranks, count[ranks], logprob[ranks], self.vocab_size)

    def document_counts(self, ks: Sequence[int]) -> DocumentCounts:
        """Return per-document sums: what a bootstrap over documents resamples."""
        present, document = self.documents
        size = len(present)
        nats = np.bincount(document, weights=-self.column("logprob").astype(np.float64), minlength=size)
        tokens = np.bincount(document, minlength=size)
        ordered, place = np.unique(np.asarray(ks, dtype=np.int64), return_inverse=True)
        ends = np.minimum(ordered, self.vocab_size)
        steps = np.diff(np.concatenate([[-1], ends, [self.vocab_size]]))
        first = np.repeat(np.arange(len(steps)), steps)[self.rank]  # for each rank, the smallest k it counts for
        width = len(ordered) + 1
        cells = np.bincount(document * width + first, minlength=size * width).reshape(size, width)
        hits = np.cumsum(cells[:, :-1], axis=1, dtype=np.int32)[:, place]  # int32: many k of many runs are kept
        return DocumentCounts(tuple(ks), present.astype(np.int64), tokens, nats, hits)

    def write(self, path: Path, *, durable: bool = False) -> None:
        """Write Parquet (zstd, with checksums), whole or not at all; durable: on the disk when this returns."""
        parquet.write(self.described(), path, durable=durable)

    def described(self) -> pa.Table:
        """Return the table with what Parquet files keep beside it: |V| and which rank counts."""
        metadata = {"rbptrack.vocab_size": str(self.vocab_size), "rbptrack.rank": "strict" if self.strict else "paper"}
        metadata |= {_VERSION.decode(): str(self.version)} if self.version > 1 else {}
        metadata |= {} if self.ties_known else {_TIES.decode(): "unknown"}
        return self.table.replace_schema_metadata(metadata)

    @classmethod
    def read(cls, path: Path) -> RankTable:
        """Read what `write` wrote; RbptrackError where the file is damaged or no rank table."""
        table = parquet.read(path)
        return cls._of(table, table.schema.metadata or {}, path)

    @classmethod
    def read_pieces(cls, path: Path, *, version: int = VERSION) -> Iterator[RankTable]:
        """Read what `write` wrote in pieces of whole documents, a row group or so at a time: flat in memory.

        Rows in text order, as measurements have them, are taken apart; others come as one piece. Columns of later
        versions than `version` are left out, which takes half the time.

        Raises:
            RbptrackError: the file is damaged or no rank table.

        """
        kept: pa.Table | None = None
        columns = SCHEMA.names if version == 1 else None
        for group, more in parquet.read_groups(path, ascending="document", columns=columns):
            kept = group if kept is None else pa.concat_tables([kept, group])
            document = kept.column("document").to_numpy() if more else np.empty(0)
            if (document[1:] >= document[:-1]).all() and len(document):  # of its last document more may come
                cut = int(np.searchsorted(document, document[-1]))
                if cut:
                    yield cls._of(kept.slice(0, cut), group.schema.metadata or {}, path).of_version(version)
                kept = kept.slice(cut)
        if kept is not None:
            yield cls._of(kept, kept.schema.metadata or {}, path).of_version(version)

    @classmethod
    def _of(cls, table: pa.Table, metadata: dict[bytes, bytes], path: Path) -> RankTable:
        strict = metadata.get(b"rbptrack.rank") == b"strict"
        wanted = fitting(table.column_names)[-1].names
        if set(wanted) <= set(table.column_names):  # also with columns of a version to come, which are left out
            table = table.select(wanted)
        ties_known = metadata.get(_TIES) != b"unknown"
        table = _at_most_zero(table).replace_schema_metadata(None)
        return cls(table, vocab_size_of(metadata, path), strict, ties_known)

    @classmethod
    def concatenate(cls, tables: Iterable[RankTable]) -> RankTable:
        """Join tables of disjoint documents (or disjoint stretches of them), in the order given.

        Columns that one of them lacks are left out.
        """
        parts = list(tables)
        shared = min((part.table.column_names for part in parts), key=len)
        parts = [replace(part, table=part.table.select(shared)) for part in parts]
        kinds = {(part.vocab_size, part.strict, part.ties_known) for part in parts}
        if len(kinds) != 1:
            sizes = sorted({kind[0] for kind in kinds})
            raise RbptrackError(f"rank tables over different vocabularies or ranks cannot be joined: {sizes}")
        return cls(pa.concat_tables([p.table for p in parts]).combine_chunks(), *kinds.pop())


def _at_most_zero(table: pa.Table) -> pa.Table:
    """Return the table with 0 for every ln p that is a little above it (see `ABOVE_ZERO`); a value far above it
    stays.
    """
    place = table.schema.get_field_index("logprob")
    if place < 0 or not len(table):
        return table
    logprob = table.column(place).to_numpy()
    above = (logprob > 0) & (logprob <= ABOVE_ZERO)
    if not above.any():
        return table
    capped = pa.array(np.where(above, np.float32(0), logprob), type=table.schema.field(place).type)
    return table.set_column(place, table.schema.field(place), capped)
