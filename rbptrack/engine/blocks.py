"""Cut a corpus into sections and batches, and keep the scores of an unfinished section on disk as blocks.

A section is a range of consecutive sequences. Within a section, sequences are sorted by falling length and grouped into
batches. A block holds the scores of consecutive sequences in this order. It is written completely or not at all. The
borders of blocks depend on the speed of the machine. The borders of sections and batches do not, so an interrupted
measurement gives the same numbers when it is continued.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rbptrack.base.errors import FileAccessError, MeasurementError, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.engine.batches import Batch, group_sequences, make_batch
from rbptrack.ranks import IntArray, RankTable

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

log = logging.getLogger(__name__)

SECTION_TOKENS = 2**20
"""The largest number of tokens in a section. Only a section of a single sequence can be longer.

In a longer section, sequences of similar length are found more often: batches of 32,768 tokens then hold 1 to 2% of
padding. The scores of one section are in memory, at 40 bytes a token.
"""

_BLOCK_NAME = re.compile(r"(\d+)-(\d+)\.parquet")
_CORPUS_FILE = "corpus.txt"
_TEXT_COLUMNS = ("document", "position", "token")


class Blocks:
    """The sections of one corpus, and the blocks of scores in a folder.

    Args:
        corpus: the corpus that is measured.
        folder: the folder of the blocks. It is created if it does not exist. Damaged blocks in it are deleted, and
            their sequences are measured again.

    Attributes:
        sections: the sequences of each section, in order. Sequences are counted in the order in which they are
            measured. A section holds the same numbers in this order and in the order of the text.
        saved: the sequences of each block on disk, in order. No block crosses the border of a section.

    Raises:
        MeasurementError: the folder holds blocks of another corpus.

    """

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._corpus = corpus
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._check_corpus()
        self.sections = _sections(corpus.lengths)
        order = []
        for section in self.sections:  # by falling length; sequences of equal length stay in the order of the text
            order.append(section.start + np.argsort(-corpus.lengths[section.start : section.stop], kind="stable"))
        self._order: IntArray = np.concatenate(order)
        self.saved = list(self._find_saved())

    def batches(self, batch_tokens: int) -> Iterator[tuple[range, Batch]]:
        """Yield the batches whose scores are not on disk, each with the range of its sequences.

        A batch has at most `batch_tokens` tokens, padding included, or a single longer sequence. Batches without a
        target are left out.
        """
        for missing in self._missing_ranges():
            begin = missing.start
            for sequences in group_sequences(self._corpus, self._order[missing.start : missing.stop], batch_tokens):
                batch = make_batch(self._corpus, sequences)
                if len(batch):
                    yield range(begin, begin + len(sequences)), batch
                begin += len(sequences)

    def targets(self, block: range) -> IntArray:
        """Return the indices of a block's targets in the corpus, ascending. The rows of the block have this order."""
        corpus = self._corpus
        sequences = self._order[block.start : block.stop]
        begin = corpus.first[sequences].min()
        end = corpus.stop[sequences].max()
        changes = np.zeros(end - begin + 1, dtype=np.int8)  # of the number of sequences that may score a token
        changes[corpus.first[sequences] - begin] += 1
        changes[corpus.stop[sequences] - begin] -= 1
        is_in_block = np.cumsum(changes[:-1], dtype=np.int8).view(np.bool_)
        targets: IntArray = begin + np.flatnonzero(is_in_block & corpus.is_target[begin:end])
        return targets

    def write(self, block: range, table: RankTable) -> None:
        """Write the scores of a block, in the order of `targets`. They are on the disk when the function returns."""
        table.write(self._path(block))

    def read(self, block: range) -> RankTable:
        """Read the scores of a block, in the order of `targets`.

        Raises:
            RbptrackError: the block is damaged, or holds other tokens than the corpus.
            FileAccessError: the operating system cannot read the block.

        """
        table = RankTable.read(self._path(block))
        targets = self.targets(block)
        if not all(np.array_equal(table.column(name), getattr(self._corpus, name)[targets]) for name in _TEXT_COLUMNS):
            raise RbptrackError(f"{self._path(block)} holds other tokens than the corpus")
        return table

    def _check_corpus(self) -> None:
        """Write the hash of the corpus to the folder. If the folder has a hash, check that it is of this corpus."""
        corpus = self._corpus
        digest = hashlib.sha256(corpus.texts_hash.encode())
        for array in (corpus.token, corpus.scorable, corpus.start, corpus.stop, corpus.first, corpus.prefix):
            digest.update(np.ascontiguousarray(array).data)
        path = self._folder / _CORPUS_FILE
        if not path.exists():
            write_whole(path, digest.hexdigest())
        elif path.read_text() != digest.hexdigest():
            raise MeasurementError(f"{self._folder} belongs to another corpus: remove it, or name another folder")

    def _find_saved(self) -> Iterator[range]:
        """Yield the blocks in the folder. Delete those that are damaged or hold other tokens.

        Raises FileAccessError if the operating system cannot read a block. The block may be undamaged, so it is kept.
        """
        for path in sorted(self._folder.glob("*.parquet")):
            name = _BLOCK_NAME.fullmatch(path.name)
            if name is None:
                continue
            block = range(int(name[1]), int(name[2]))
            try:
                if any(section.start <= block.start < block.stop <= section.stop for section in self.sections):
                    self.read(block)
                    yield block
                    continue
            except FileAccessError:
                raise
            except RbptrackError:
                pass
            log.warning("%s is damaged: its tokens are measured again", path)
            path.unlink()

    def _missing_ranges(self) -> Iterator[range]:
        """Yield the ranges of sequences whose scores are not on disk, in order. No range crosses a section's end."""
        is_missing = np.ones(len(self._order), dtype=bool)
        for block in self.saved:
            is_missing[block.start : block.stop] = False
        for section in self.sections:
            # A missing range begins and ends where `is_missing` changes.
            changes = np.diff(is_missing[section.start : section.stop], prepend=False, append=False)
            edges = np.flatnonzero(changes) + section.start
            yield from map(range, edges[::2].tolist(), edges[1::2].tolist())

    def _path(self, block: range) -> Path:
        return self._folder / f"{block.start:09d}-{block.stop:09d}.parquet"


def _sections(lengths: IntArray) -> list[range]:
    """Return ranges of consecutive sequences, each of at most `SECTION_TOKENS` tokens or of one longer sequence."""
    ends = np.cumsum(lengths)
    sections = []
    begin = 0
    while begin < len(ends):
        tokens_before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, tokens_before + SECTION_TOKENS, side="right")))
        sections.append(range(begin, end))
        begin = end
    return sections
