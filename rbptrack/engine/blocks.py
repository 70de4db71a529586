"""Keeps an unfinished measurement on disk, as blocks of scores. A block is written completely or not at all.

A corpus is cut into sections of consecutive sequences. Within a section, sequences are sorted by falling length and
grouped into batches. A block holds the scores of consecutive sequences in this order. The borders of blocks depend on
the speed of the machine. The borders of sections and batches do not, so an interrupted measurement gives the same
numbers when it is continued.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rbptrack.base.errors import FileAccessError, MeasurementError, RbptrackError
from rbptrack.base.files import write_whole
from rbptrack.engine.batches import Batch, group_sequences, make_batch
from rbptrack.ranks import IntArray, RankTable
from rbptrack.scoring import Scores

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

log = logging.getLogger(__name__)

SECTION_TOKENS = 131_072
"""The largest number of tokens in a section. Only a section of a single sequence can be longer.

A section is also one row group of the finished table.
"""

_BLOCK_NAME = re.compile(r"(\d+)-(\d+)\.parquet")
_CORPUS_FILE = "corpus.txt"


class Blocks:
    """The blocks of one corpus in a folder.

    Args:
        corpus: the corpus that is measured.
        folder: the folder of the blocks. It is created if it does not exist. Damaged blocks in it are deleted, and
            their sequences are measured again.
        vocab_size: |V|, which the rank table stores.
        strict: whether metrics use the strict rank.

    Attributes:
        saved: the sequences of each block on disk, in order. Sequences are counted in the order in which they are
            measured.

    Raises:
        MeasurementError: the folder holds blocks of another corpus.

    """

    def __init__(self, corpus: Corpus, folder: Path, *, vocab_size: int, strict: bool) -> None:
        self._corpus = corpus
        self._folder = folder
        self._vocab_size = vocab_size
        self._strict = strict
        folder.mkdir(parents=True, exist_ok=True)
        self._check_corpus()
        self._sections = _sections(corpus.lengths)
        self._order: list[int] = []
        for section in self._sections:
            self._order += sorted(section, key=lambda sequence: -corpus.lengths[sequence])  # stable: then in text order
        self.saved = list(self._find_saved())

    def num_tokens(self, block: range) -> int:
        """Return the number of scored tokens of a block."""
        return len(self._targets(block))

    def batches(self, batch_tokens: int) -> Iterator[tuple[range, Batch]]:
        """Yield the batches whose scores are not on disk, each with the range of its sequences.

        A batch has at most `batch_tokens` tokens, padding included, or a single longer sequence.
        """
        for missing in self._missing_ranges():
            begin = missing.start
            for sequences in group_sequences(self._corpus, self._order[missing.start : missing.stop], batch_tokens):
                yield range(begin, begin + len(sequences)), make_batch(self._corpus, sequences)
                begin += len(sequences)

    def write(self, block: range, scored: Sequence[tuple[Batch, Scores]]) -> None:
        """Write a block: its batches and their scores, in the order of the sequences.

        The scores are on the disk when the function returns. Raises MeasurementError if a log-probability or a KL is
        not finite. The error names the first document and position with such a number.
        """
        index = np.concatenate([batch.target_index.numpy() for batch, _ in scored])
        order = np.argsort(index, kind="stable")
        scores = Scores.concatenate([batch_scores for _, batch_scores in scored])
        columns = {name: column.cpu().numpy()[order] for name, column in scores.items()}
        index = index[order]
        self._check_finite(index, columns)
        for name in ("document", "position", "field", "token"):
            columns[name] = getattr(self._corpus, name)[index]
        table = RankTable.from_arrays(vocab_size=self._vocab_size, strict=self._strict, **columns)
        table.write(self._path(block))
        self.saved = sorted([*self.saved, block], key=lambda saved: saved.start)

    def tables(self) -> Iterator[tuple[IntArray, RankTable]]:
        """Yield the rank table in text order, one section at a time.

        Call this only when all blocks are on disk. At most one section and the blocks that overlap with it are in
        memory.

        Yields:
            The indices of the section's targets in the corpus, (tokens,), and the rank table of these targets.

        """
        in_memory: dict[range, tuple[IntArray, RankTable]] = {}
        begin = 0
        for section in self._sections:
            end = begin + len(section)
            overlapping = [block for block in self.saved if block.start < end and block.stop > begin]
            in_memory = {block: in_memory.get(block) or self._read(block) for block in overlapping}
            targets = self._corpus.targets(section.start, section.stop)
            yield targets, _select_targets(targets, list(in_memory.values()))
            begin = end

    def _check_corpus(self) -> None:
        """Write the hash of the corpus to the folder. If the folder has a hash, check that it is of this corpus."""
        corpus = self._corpus
        digest = hashlib.sha256(corpus.texts_hash.encode())
        for array in (corpus.token, corpus.scorable, corpus.start, corpus.stop, corpus.first, corpus.prefix):
            digest.update(np.ascontiguousarray(array).tobytes())
        path = self._folder / _CORPUS_FILE
        if not path.exists():
            write_whole(path, digest.hexdigest())
        elif path.read_text() != digest.hexdigest():
            raise MeasurementError(f"{self._folder} belongs to another corpus: remove it, or name another folder")

    def _find_saved(self) -> Iterator[range]:
        """Yield the blocks in the folder. Delete those that are damaged or have the wrong number of tokens.

        Raises FileAccessError if the operating system cannot read a block. The block may be undamaged, so it is kept.
        """
        for path in sorted(self._folder.glob("*.parquet")):
            name = _BLOCK_NAME.fullmatch(path.name)
            if name is None:
                continue
            block = range(int(name[1]), int(name[2]))
            try:
                if len(RankTable.read(path)) == self.num_tokens(block):
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
        begin = 0
        for section in self._sections:
            end = begin + len(section)
            # A missing range begins and ends where `is_missing` changes.
            edges = np.flatnonzero(np.diff(is_missing[begin:end], prepend=False, append=False)) + begin
            yield from map(range, edges[::2].tolist(), edges[1::2].tolist())
            begin = end

    def _read(self, block: range) -> tuple[IntArray, RankTable]:
        return self._targets(block), RankTable.read(self._path(block))

    def _targets(self, block: range) -> IntArray:
        """Return the indices of a block's targets in the corpus, ascending. The rows of the block have this order."""
        sequences = self._order[block.start : block.stop]
        return np.sort(np.concatenate([self._corpus.targets(sequence, sequence + 1) for sequence in sequences]))

    def _path(self, block: range) -> Path:
        return self._folder / f"{block.start:09d}-{block.stop:09d}.parquet"

    def _check_finite(self, index: IntArray, columns: dict[str, IntArray]) -> None:
        """Raise MeasurementError if a log-probability or a KL is not finite. `index` has the targets of the rows."""
        for name, model in (("logprob", "model"), ("kl", "reference")):
            if name not in columns or np.isfinite(columns[name]).all():
                continue
            row = int(np.argmin(np.isfinite(columns[name])))
            target = index[row]
            document = self._corpus.document_ids[self._corpus.document[target]]
            place = f"document {document}, position {self._corpus.position[target]}"
            if name == "kl" and not np.isnan(columns[name][row]):
                raise MeasurementError(
                    "KL is infinite: the model gives probability 0 (a logit of -infinity) to a token that the "
                    f"reference may choose at {place}. Measure the model without reference="
                )
            raise MeasurementError(
                f"the {model}'s logits hold a NaN or an infinity at {place}: the weights are damaged, or model.dtype "
                "is too imprecise for them"
            )


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


def _select_targets(targets: IntArray, blocks: Sequence[tuple[IntArray, RankTable]]) -> RankTable:
    """Return the rank table of some targets, with rows from several blocks.

    Targets are given by their indices in the corpus, ascending. `blocks` has the targets and the table of each block.
    """
    index = np.concatenate([block_targets for block_targets, _ in blocks])
    table = RankTable.concatenate(block_table for _, block_table in blocks)
    order = np.argsort(index, kind="stable")
    rows = order[np.searchsorted(index[order], targets)]
    return RankTable(table.table.take(rows), table.vocab_size, table.strict)
