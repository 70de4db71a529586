"""Put the scores of batches into the order of the text, and write them to disk, while the engine computes.

The work is done in two threads, so that a GPU never waits for it. One thread puts scores into place and hands over the
finished table, the other one writes blocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

import numpy as np
import torch

from rbptrack.base.errors import MeasurementError, RbptrackError
from rbptrack.engine.batches import Batch
from rbptrack.engine.blocks import Blocks
from rbptrack.ranks import COLUMNS, IntArray, RankTable
from rbptrack.scoring import Scores

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

BLOCK_SECONDS = 30.0
"""The number of seconds after which scores are written to disk in a block."""

PIECE_TOKENS = 2**17
"""The number of tokens in a row group of the finished table."""

_WAITING_TOKENS = 2**19  # with more tokens that wait for the thread, the engine is not asked for further batches
_TEXT_COLUMNS = ("document", "position", "field", "token")  # they come from the corpus


class Collector:
    """Collects scores, and hands over the finished rank table in pieces.

    The scores of one section are in memory. When all tokens of a section are scored, it is handed over. The scores are
    also written in a block every `BLOCK_SECONDS`, at the end of each section except the last, and by `save`. A shorter
    measurement of a single section writes no block.

    Args:
        corpus: the corpus that is measured.
        blocks: its sections, and the folder of its blocks.
        vocab_size: |V|, which the rank table stores.
        strict: whether metrics use the strict rank.
        append: called with each piece of the finished table, in text order, in the collector's thread.

    """

    def __init__(
        self,
        corpus: Corpus,
        blocks: Blocks,
        *,
        vocab_size: int,
        strict: bool,
        append: Callable[[RankTable], None],
    ) -> None:
        self._corpus = corpus
        self._blocks = blocks
        self._vocab_size = vocab_size
        self._strict = strict
        self._append = append
        self._thread = ThreadPoolExecutor(1, "rbptrack-collector")
        self._block_thread = ThreadPoolExecutor(1, "rbptrack-blocks")
        self._waiting: deque[tuple[int, Future[None]]] = deque()  # batches by their number of tokens
        # Only the thread uses the following attributes.
        self._number = 0  # of the section in memory
        self._scores: _SectionScores | None = None  # of the section in memory; None before its first batch
        self._unsaved = range(0)  # the sequences with scores that are in memory only
        self._saved_at = time.monotonic()
        self._block: Future[None] | None = None  # the block that is being written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._block_thread.shutdown(wait=True)

    def add(self, sequences: range, batch: Batch, scores: Scores) -> int:
        """Add the scores of a batch. `sequences` are its sequences in the order of measuring.

        Returns the number of tokens that the thread has put into place since the last call.

        Raises:
            MeasurementError: a log-probability or a KL is not finite. The error names the document and position of such
                a token. It may belong to an earlier batch.

        """
        columns, copied = _begin_copy(scores)
        future = self._thread.submit(self._place, sequences, batch.target_index.numpy(), columns, copied)
        self._waiting.append((len(batch), future))
        placed = 0
        waiting_tokens = sum(tokens for tokens, _ in self._waiting)
        while self._waiting and (self._waiting[0][1].done() or waiting_tokens - placed > _WAITING_TOKENS):
            placed += self._wait_for_oldest()
        return placed

    def finish(self) -> int:
        """Wait until the whole table is handed over. Returns the number of tokens that were put into place meanwhile.

        Raises:
            MeasurementError: a log-probability or a KL is not finite.
            RbptrackError: the engine has not scored all tokens.

        """
        placed = 0
        while self._waiting:
            placed += self._wait_for_oldest()
        self._thread.submit(self._hand_over_up_to, len(self._blocks.sections)).result()
        self._thread.submit(self._wait_for_block).result()
        return placed

    def save(self) -> None:
        """Write all scores that were added to disk. Call this before the measurement is given up."""
        self._thread.submit(self._write_block).result()
        self._thread.submit(self._wait_for_block).result()

    def _wait_for_oldest(self) -> int:
        tokens, future = self._waiting.popleft()
        future.result()
        return tokens

    def _place(
        self,
        sequences: range,
        index: IntArray,
        columns: Mapping[str, torch.Tensor],
        copied: torch.cuda.Event | None,
    ) -> None:
        """Put the scores of a batch into place. `index` are the indices of its targets in the corpus."""
        if copied is not None:
            copied.synchronize()
        arrays = {name: column.numpy() for name, column in columns.items()}
        self._check_scores(index, arrays)
        number = self._number
        while sequences.start >= self._blocks.sections[number].stop:
            number += 1
        self._hand_over_up_to(number)
        if sequences.start != self._unsaved.stop:
            self._write_block()
            self._unsaved = range(sequences.start, sequences.start)
        self._section_scores().add(index, arrays)
        self._unsaved = range(self._unsaved.start, sequences.stop)
        if time.monotonic() - self._saved_at >= BLOCK_SECONDS:
            self._write_block()

    def _section_scores(self) -> _SectionScores:
        """Return the scores of the section in memory. Reads its blocks, if an interrupted measurement has left some."""
        if self._scores is None:
            section = self._blocks.sections[self._number]
            self._scores = _SectionScores(self._blocks.targets(section))
            for block in self._blocks.saved:
                if section.start <= block.start < section.stop:
                    table = self._blocks.read(block).table.drop_columns(list(_TEXT_COLUMNS))
                    columns = {name: table.column(name).to_numpy() for name in table.column_names}
                    self._scores.add(self._blocks.targets(block), columns)
        return self._scores

    def _hand_over_up_to(self, number: int) -> None:
        """Hand over the sections before section `number`, except those that are handed over already."""
        while self._number < number:
            is_last = self._number == len(self._blocks.sections) - 1
            if not is_last:
                self._write_block()
            scores = self._section_scores()
            scores.check_complete()
            for begin in range(0, len(scores.targets), PIECE_TOKENS):
                self._append(self._table(scores, scores.targets[begin : begin + PIECE_TOKENS]))
            self._number += 1
            if not is_last:  # the last section stays in memory, because `save` may be called after an interrupt
                self._scores = None

    def _write_block(self) -> None:
        """Begin to write the scores that are in memory only as a block. Waits until the block before it is written."""
        self._saved_at = time.monotonic()
        if self._unsaved and self._scores is not None:
            self._wait_for_block()
            table = self._table(self._scores, self._blocks.targets(self._unsaved))
            self._block = self._block_thread.submit(self._blocks.write, self._unsaved, table)
            self._unsaved = range(self._unsaved.stop, self._unsaved.stop)

    def _wait_for_block(self) -> None:
        """Wait until the last block is on the disk. Raises the error with which its writing failed."""
        if self._block is not None:
            self._block.result()

    def _table(self, scores: _SectionScores, targets: IntArray) -> RankTable:
        """Return the rank table of some targets of the section in memory."""
        columns = {name: getattr(self._corpus, name)[targets] for name in _TEXT_COLUMNS}
        return RankTable.from_arrays(
            vocab_size=self._vocab_size, strict=self._strict, **columns, **scores.columns_of(targets)
        )

    def _check_scores(self, index: IntArray, columns: Mapping[str, IntArray]) -> None:
        """Raise MeasurementError if scores are not finite, or if a kernel computed two different logits for a target.

        `ties` is -1 if no entry has the target's logit, not even the target's own entry.

        Args:
            index: the indices of the targets in the corpus, (tokens,).
            columns: the scores by column, (tokens,) each.

        """
        for name, model in (("logprob", "model"), ("kl", "reference")):
            if name not in columns or np.isfinite(columns[name]).all():
                continue
            row = int(np.argmin(np.isfinite(columns[name])))
            place = self._place_in_texts(index[row])
            if name == "kl" and not np.isnan(columns[name][row]):
                raise MeasurementError(
                    "KL is infinite: the model gives probability 0 (a logit of -infinity) to a token that the "
                    f"reference may choose at {place}. Measure the model without reference="
                )
            raise MeasurementError(
                f"the {model}'s logits hold a NaN or an infinity at {place}: the weights are damaged, or model.dtype "
                "is too imprecise for them"
            )
        if "ties" in columns and (columns["ties"] < 0).any():
            place = self._place_in_texts(index[int(np.argmin(columns["ties"]))])
            raise MeasurementError(
                f"the GPU's kernel for the head computed two different logits for the token at {place}, so its rank is "
                "not exact: model.dtype=float32 measures without this kernel"
            )

    def _place_in_texts(self, target: int) -> str:
        """Return the document and the position of a target, for messages."""
        document = self._corpus.document_ids[self._corpus.document[target]]
        return f"document {document}, position {self._corpus.position[target]}"


class _SectionScores:
    """The scores of one section in memory.

    All columns are rows of one array, which has an element for each token from the section's first to its last target.
    A large array is returned to the operating system when it is not needed any more. Many small ones would not be.
    """

    def __init__(self, targets: IntArray) -> None:
        self.targets = targets
        self._first = int(targets[0]) if len(targets) else 0
        self._num_scored = 0
        self._columns: dict[str, IntArray] = {}

    def add(self, index: IntArray, columns: Mapping[str, IntArray]) -> None:
        """Put scores into place. `index` are the indices of their targets in the corpus."""
        if not self._columns:
            tokens = int(self.targets[-1]) + 1 - self._first
            array = np.empty((len(columns), tokens), dtype=np.int32)
            for row, name in zip(array, columns, strict=True):
                self._columns[name] = row.view(COLUMNS[name].dtype.to_pandas_dtype())
        for name, column in self._columns.items():
            column[index - self._first] = columns[name]
        self._num_scored += len(index)

    def columns_of(self, targets: IntArray) -> dict[str, IntArray]:
        """Return the scores of some targets, (targets,) for each column."""
        return {name: column[targets - self._first] for name, column in self._columns.items()}

    def check_complete(self) -> None:
        """Raise RbptrackError unless all tokens are scored."""
        if self._num_scored != len(self.targets):
            raise RbptrackError(f"{self._num_scored} of {len(self.targets)} tokens of a section were scored")


def _begin_copy(scores: Scores) -> tuple[dict[str, torch.Tensor], torch.cuda.Event | None]:
    """Copy scores to the CPU. On CUDA, the copy goes on when this returns; it has ended when the event has happened."""
    device = scores["greater"].device
    if device.type != "cuda":
        return {name: column.cpu() for name, column in scores.items()}, None
    columns = {}
    for name, column in scores.items():
        page_locked = torch.empty(column.shape, dtype=column.dtype, pin_memory=True)
        columns[name] = page_locked.copy_(column, non_blocking=True)
    with torch.cuda.device(device):
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record()
    return columns, copied
