"""The finished rank table and the sums over it, made block by block while the model is still at work."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np

from rbptrack.base import parquet
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.parts import Block, Stretch, blocks, table_version
from rbptrack.ranks import DocumentCounts, FloatArray, RankHistogram, RankTable, split_sums


@dataclass
class Sums:
    """What derives from the rank table in one pass; see `rbptrack.ranks.measurement.Measurement`."""

    histogram: RankHistogram
    counts: DocumentCounts
    num_bytes: int
    tied: int
    compared: FloatArray
    split: FloatArray

    @classmethod
    def of(cls, table: RankTable, ks: tuple[int, ...], num_bytes: int) -> Self:
        """Return the sums over one block's table."""
        return cls(
            histogram=table.histogram(),
            counts=table.document_counts(ks),
            num_bytes=num_bytes,
            tied=int(np.count_nonzero(table.column("ties"))),
            compared=table.compared_sums(),
            split=split_sums(table),
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def parts_of_ce(self) -> tuple[float, float] | None:
        """The means of ln R and of -ln(p R); None where R and p are not of one distribution."""
        rank, rest, impossible = (self.split / self.histogram.num_tokens).tolist()
        return None if impossible else (rank, rest)


class Gathering:
    """Joins the parts of a folder into one file, a row group for each block, and sums; a context manager.

    Blocks are joined in order, each as soon as it is complete: what a process measured itself is not read again, and
    one block is in memory at a time.

    Args:
        corpus: what the parts belong to.
        part_tokens: tokens of a block.
        folder: where the parts are.
        ks: the k of the per-document sums.

    Attributes:
        path: of the finished table, which is there when the context ends without an error.

    """

    def __init__(self, corpus: Corpus, part_tokens: int, folder: Path, ks: tuple[int, ...]) -> None:
        self.path = folder / "ranks.parquet"
        self._corpus = corpus
        self._part_tokens = part_tokens
        self._folder = folder
        self._ks = ks
        self._ranges = corpus.parts(part_tokens)
        self._joined = 0  # blocks
        self._sums: Sums | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def take(self, block: Block, parts: Mapping[Stretch, RankTable]) -> None:
        """Join a block that is complete, after those before it; `parts` are those of its tables that are in memory."""
        number = self._ranges.index(block.sequences)
        self._join_up_to(number)
        self._join(block, parts)

    def finish(self) -> Sums:
        """Join the remaining blocks, and return the sums over all of them; every part is on disk."""
        self._join_up_to(len(self._ranges))
        assert self._sums is not None  # noqa: S101  a corpus has at least one block
        return self._sums

    def _join_up_to(self, number: int) -> None:
        if self._joined < number:
            for block in blocks(self._corpus, self._part_tokens, self._folder)[self._joined : number]:
                self._join(block, MappingProxyType({}))

    def _join(self, block: Block, parts: Mapping[Stretch, RankTable]) -> None:
        table = block.table(parts)
        if not self._joined:
            self._version = table_version(self._folder)
            schema = table.of_version(self._version).described().schema
            self._file = self._opened.enter_context(parquet.TableWriter(self.path, schema))
        table = table.of_version(self._version)
        self._file.add(table.described())
        num_bytes = int(self._corpus.num_bytes[self._corpus.targets(*block.sequences)].sum())
        sums = Sums.of(table, self._ks, num_bytes)
        self._sums = self._sums + sums if self._sums else sums
        self._joined += 1
