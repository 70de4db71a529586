"""The histogram of ranks: how many scored tokens have each rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rbptrack.base.errors import RbptrackError
from rbptrack.base.parquet import read_table, write_table
from rbptrack.ranks.names import FloatArray, IntArray, check_k

VOCAB_SIZE = "rbptrack.vocab_size"
"""The key under which a file of ranks stores |V| in its metadata."""


@dataclass(frozen=True)
class RankHistogram:
    """The number of scored tokens with each rank.

    Attributes:
        rank: the ranks that occur, ascending, (ranks,).
        count: the number of tokens with each rank, (ranks,).
        logprob: the sum of ln p(target) over the tokens with each rank, nats, (ranks,).
        vocab_size: |V|.

    """

    rank: IntArray
    count: IntArray
    logprob: FloatArray
    vocab_size: int

    @property
    def num_tokens(self) -> int:
        return int(self.count.sum())

    @property
    def ce(self) -> float:
        """Mean of -ln p(target), nats."""
        return float(-self.logprob.sum() / self.num_tokens)

    def rbp(self, k: int) -> float:
        """Return RBP_k, the share of tokens with rank at most k.

        Raises BadInput if k is not a whole number from 1 to |V|.
        """
        return float(self.rbp_curve([check_k(k, self.vocab_size)])[0])

    def rbp_curve(self, ks: npt.ArrayLike) -> FloatArray:
        """Return RBP_k for each of some k, (len(ks),). The k are not checked."""
        cumulative = np.concatenate([[0], np.cumsum(self.count)])
        return np.asarray(cumulative[np.searchsorted(self.rank, ks, side="right")] / self.num_tokens)

    def __add__(self, other: RankHistogram) -> RankHistogram:
        if self.vocab_size != other.vocab_size:
            raise RbptrackError(f"histograms over {self.vocab_size} and {other.vocab_size} entries cannot be added")
        rank, inverse = np.unique(np.concatenate([self.rank, other.rank]), return_inverse=True)
        count = np.zeros(len(rank), dtype=np.int64)
        np.add.at(count, inverse, np.concatenate([self.count, other.count]))
        logprob = np.bincount(inverse, weights=np.concatenate([self.logprob, other.logprob]), minlength=len(rank))
        return RankHistogram(rank, count, logprob, self.vocab_size)

    def write(self, path: Path) -> None:
        """Write a Parquet file with the columns rank, count and logprob, completely or not at all."""
        table = pa.table({"rank": self.rank, "count": self.count, "logprob": self.logprob})
        write_table(path, table.replace_schema_metadata({VOCAB_SIZE: str(self.vocab_size)}))

    @classmethod
    def read(cls, path: Path) -> RankHistogram:
        """Read a histogram from a file. Raises RbptrackError if the file is damaged or is not a histogram of ranks."""
        table = read_table(path)
        vocab_size = vocab_size_of(table.schema, path)
        types = [pa.types.is_integer, pa.types.is_integer, pa.types.is_floating]
        has_types = all(has_type(kind) for has_type, kind in zip(types, table.schema.types, strict=False))
        if (
            table.column_names != ["rank", "count", "logprob"]
            or not has_types
            or any(column.null_count for column in table.columns)
        ):
            stored = ", ".join(f"{field.name} ({field.type})" for field in table.schema)
            raise RbptrackError(f"{path} is not a histogram of ranks: its columns are {stored}")
        columns = {name: table.column(name).to_numpy() for name in table.column_names}
        ranks_ascend = (np.diff([0, *columns["rank"].tolist(), vocab_size + 1]) > 0).all()
        if not ranks_ascend or (columns["count"] < 1).any() or not np.isfinite(columns["logprob"]).all():
            raise RbptrackError(f"{path} is not a histogram of ranks: a rank, a count or a sum of ln p is impossible")
        return cls(**columns, vocab_size=vocab_size)


def vocab_size_of(schema: pa.Schema, path: Path) -> int:
    """Return |V| from the metadata of a file of ranks. Raises RbptrackError if the metadata has no |V|."""
    text = (schema.metadata or {}).get(VOCAB_SIZE.encode(), b"").decode(errors="replace")
    if not text.isdecimal() or not int(text):
        raise RbptrackError(f"{path} does not hold ranks of rbptrack: its metadata has no vocabulary size")
    return int(text)
