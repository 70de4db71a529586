"""An unfinished measurement on disk: parts of the rank table, each whole or not there.

A corpus is measured in blocks of consecutive sequences. Within a block the sequences are batched by falling length, so
a part holds the scores of a stretch of that order. The parts that exist depend on time; the texts and their
batches do not, so an interrupted measurement continues to the same numbers.
"""

from __future__ import annotations

import logging
import re
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rbptrack.base.errors import MeasurementError, RbptrackError
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import Batch, batch_of, by_length, compose
from rbptrack.ranks import RankTable, version_of
from rbptrack.scoring.scores import Scores

log = logging.getLogger(__name__)

_NAME = re.compile(r"part-(\d+)-(\d+)-(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, order=True)
class Stretch:
    """Sequences begin..end-1 of a block, counted in the order in which they are batched."""

    begin: int
    end: int


class Block:
    """Consecutive sequences that are sorted and batched together, and their parts on disk.

    Args:
        corpus: the measured texts.
        sequences: number of the first, and one past the last.
        folder: where the parts are.
        saved: the stretches whose parts are on disk, in order.

    Attributes:
        wanted: the stretch that is to be measured here: all of it, unless `cut` made it less.

    """

    def __init__(self, corpus: Corpus, sequences: tuple[int, int], folder: Path, saved: list[Stretch]) -> None:
        self.corpus = corpus
        self.sequences = sequences
        self._folder = folder
        self._saved = saved
        self.wanted = Stretch(0, self.size)

    def cut(self, wanted: Stretch) -> Block:
        """Return the same block, limited to a stretch."""
        block = Block(self.corpus, self.sequences, self._folder, self._saved)
        block.wanted = wanted
        return block

    @property
    def size(self) -> int:
        """Number of its sequences."""
        return self.sequences[1] - self.sequences[0]

    def path(self, stretch: Stretch) -> Path:
        """Return the file of a stretch's part."""
        low, high = self.sequences
        return self._folder / f"part-{low:09d}-{high:09d}-{stretch.begin:06d}-{stretch.end:06d}.parquet"

    @property
    def num_targets(self) -> int:
        """Scored tokens of the stretch that is to be measured."""
        order = by_length(self.corpus, range(*self.sequences))[self.wanted.begin : self.wanted.end]
        return sum(len(self.corpus.targets(sequence, sequence + 1)) for sequence in order)

    def lacking(self) -> list[Stretch]:
        """Return the stretches to measure that have no part, in order."""
        gaps = []
        done, end = (self.wanted.begin, self.wanted.end)
        for stretch in [*self._saved, Stretch(end, end)]:
            if done < min(stretch.begin, end):
                gaps.append(Stretch(done, min(stretch.begin, end)))
            done = max(done, stretch.end)
        return gaps

    def batches(self, batch_tokens: int) -> Iterator[tuple[Stretch, Batch]]:
        """Yield the batches that are not on disk, each with its stretch."""
        missing = self.lacking()
        order = by_length(self.corpus, range(*self.sequences)) if missing else []
        for gap in missing:
            begin = gap.begin
            for sequences in compose(self.corpus, order[gap.begin : gap.end], batch_tokens):
                yield Stretch(begin, begin + len(sequences)), batch_of(self.corpus, sequences)
                begin += len(sequences)

    def read_saved(self) -> Iterator[RankTable]:
        """Yield the parts on disk that begin in the wanted stretch; a damaged one is removed, to be measured again."""
        for stretch in [s for s in self._saved if self.wanted.begin <= s.begin < self.wanted.end]:
            path = self.path(stretch)
            try:
                yield RankTable.read(path)
            except RbptrackError:  # damaged, perhaps where a file says what it is
                log.warning("%s is damaged: it is measured again", path)
                path.unlink()
                self._saved.remove(stretch)

    def write(
        self, stretch: Stretch, scored: Sequence[tuple[Tensor, Scores]], vocab_size: int, *, strict: bool
    ) -> RankTable:
        """Write the part of a stretch and return it.

        Args:
            stretch: which sequences were scored.
            scored: for each batch, its targets' indices in the corpus, (targets,), and their scores.
            vocab_size: |V|.
            strict: whether the table counts strict ranks.

        Raises:
            MeasurementError: a log-probability is not a finite number; names the first document and position.

        """
        target_index = torch.cat([index for index, _ in scored]).cpu().numpy()
        scores = Scores.concatenate([part for _, part in scored])
        order = np.argsort(target_index, kind="stable")  # fast where a few stretches are ascending
        index = target_index[order]
        columns = {name: column.cpu().numpy()[order] for name, column in scores.columns.items()}
        for name, whose in (("logprob", "model"), ("kl", "reference")):
            finite = np.isfinite(columns.get(name, 0.0))
            if finite.all():
                continue
            bad = index[int(np.argmin(finite))]
            document = self.corpus.document_ids[self.corpus.document[bad]]
            raise MeasurementError(
                f"the {whose}'s logits hold a NaN or an infinity at document {document}, position "
                f"{self.corpus.position[bad]}; the weights are damaged, or the precision (model.dtype) is too low for "
                "them"
            )
        columns |= {name: getattr(self.corpus, name)[index] for name in ("document", "position", "field", "token")}
        table = RankTable.from_arrays(vocab_size=vocab_size, strict=strict, **columns)
        table.write(self.path(stretch), durable=True)  # readers rely on it
        insort(self._saved, stretch)
        return table

    def table(self, parts: Mapping[Stretch, RankTable] = MappingProxyType({})) -> RankTable:
        """Return the block's whole table in text order, from its parts; those that are not given are read.

        Raises:
            MeasurementError: the parts are not those of this corpus.

        """
        read = (parts[s] if s in parts else RankTable.read(self.path(s)) for s in self._saved)
        table = RankTable.concatenate(read)
        if len(self._saved) > 1:  # each is in text order by itself
            order = np.lexsort((table.column("position"), table.column("document")))
            table = replace(table, table=table.table.take(order))
        index = self.corpus.targets(*self.sequences)
        if not all(np.array_equal(table.column(n), getattr(self.corpus, n)[index]) for n in ("document", "position")):
            raise MeasurementError(f"the parts in {self._folder} belong to other documents; remove them and run again")
        return table


def blocks(corpus: Corpus, part_tokens: int, folder: Path) -> list[Block]:
    """Return the blocks of a corpus, of about `part_tokens` tokens each, with what a folder keeps of them."""
    saved: dict[tuple[int, int], list[Stretch]] = {}
    for path in folder.glob("part-*.parquet"):
        if name := _NAME.fullmatch(path.name):
            low, high, begin, end = map(int, name.groups())
            saved.setdefault((low, high), []).append(Stretch(begin, end))
    return [Block(corpus, part, folder, sorted(saved.get(part, []))) for part in corpus.parts(part_tokens)]


def table_version(folder: Path) -> int:
    """Return the oldest version among a folder's parts: a measurement begun without some columns is completed without
    them.
    """
    return min(version_of(pq.read_schema(path)) for path in folder.glob("part-*.parquet"))


def saved_tokens(folder: Path) -> int:
    """Return number of scored tokens in the parts that a folder keeps."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("part-*.parquet"))
