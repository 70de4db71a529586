"""The loop: corpus x model -> Measurement. It knows nothing of MLflow or of config files.

Scores are saved in parts while the model runs (see `rbptrack.engine.parts`), so an interrupt loses seconds of work, and
memory does not grow with the number of tokens.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from torch import Tensor

from rbptrack import parquet
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import Batch
from rbptrack.engine.executor import Engine
from rbptrack.engine.memory import PeakMemory
from rbptrack.engine.parts import Block, Stretch, blocks
from rbptrack.measurement import Measurement
from rbptrack.models.loading import CausalModel
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable
from rbptrack.scoring.scorer import Scores

Progress = Callable[[int], None]


def measure(
    model: CausalModel,
    corpus: Corpus,
    *,
    ks: tuple[int, ...],
    engine: EngineConfig,
    folder: Path,
    strict: bool = False,
    progress: Progress = lambda tokens: None,
    on_part: Callable[[RankTable], None] = lambda part: None,
) -> Measurement:
    """Rank every scored token of a corpus.

    An interrupt (KeyboardInterrupt, SystemExit) saves the batches that are finished before it goes on.

    Args:
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        ks: the k of the per-document sums, each at most |V|.
        engine: batch and chunk sizes; they change no number beyond float32 rounding.
        folder: where parts and the finished table are kept; what is found there is not measured again.
        strict: count strict ranks in every metric (rank=strict).
        progress: called with the number of newly finished scored tokens.
        on_part: called with each part when it is on disk, those found there included.

    Raises:
        BadInput: a sequence is longer than the model reads, or a target has no row in its head.
        MeasurementError: the logits hold a NaN or an infinity (names the first document and position), or one sequence
            alone does not fit into memory.

    """
    targets = corpus.token[corpus.scorable]
    model.check_corpus(longest=int(corpus.lengths.max()), largest_target=int(targets.max(initial=0)))
    folder.mkdir(parents=True, exist_ok=True)
    wanted = blocks(corpus, engine.part_tokens, folder)
    for block in wanted:
        for part in block.read_saved():
            progress(len(part))
            on_part(part)
    began = time.perf_counter()
    with PeakMemory(model.device) as memory:
        with (
            Engine(model, engine, longest=int(corpus.lengths.max())) as running,
            _Saver(model.vocab_size, strict=strict, seconds=engine.part_seconds, on_part=on_part) as saver,
        ):
            for block, stretch, batch, scores in _scored(running, wanted):
                saver.take(block, stretch, batch, scores)
                progress(len(batch))
        seconds = time.perf_counter() - began
        sums = _gather(wanted, folder / "ranks.parquet", ks)
    return Measurement(
        path=folder / "ranks.parquet",
        histogram=sums.histogram,
        counts=sums.counts,
        num_bytes=sums.num_bytes,
        tied=sums.tied,
        seconds=seconds,
        fresh_tokens=saver.tokens,
        peak_memory_bytes=memory.bytes if model.group is None else model.group.peak_bytes,
        batch_tokens=running.batch_tokens,
        chunk_tokens=running.chunk_tokens,
        notes=tuple(running.notes),
    )


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)


def _scored(running: Engine, wanted: list[Block]) -> Iterator[tuple[Block, Stretch, Batch, Scores]]:
    """Every batch that is not on disk with its scores, in order; no thread waits where a block ends."""
    owners: deque[tuple[Block, Stretch]] = deque()

    def batches() -> Iterator[Batch]:
        for block in wanted:
            for stretch, batch in block.batches(running.batch_tokens):
                owners.append((block, stretch))
                yield batch

    for batch, scores in running.run(batches()):
        yield *owners.popleft(), batch, scores


class _Saver:
    """Saves scores as parts, from a thread of its own, at the end of each block and after some seconds.

    Args:
        vocab_size: |V|.
        strict: whether the tables count strict ranks.
        seconds: how long scores wait in memory at most, while others come in.
        on_part: called with each part that is on disk.

    Attributes:
        tokens: number of scored tokens that were taken.

    """

    def __init__(self, vocab_size: int, *, strict: bool, seconds: float, on_part: Callable[[RankTable], None]) -> None:
        self._vocab_size, self._strict, self._seconds, self._on_part = vocab_size, strict, seconds, on_part
        self._block: Block | None = None
        self._stretch = Stretch(0, 0)
        self._waiting: list[tuple[Tensor, Scores]] = []  # those of the stretch
        self._writing: deque[Future[RankTable]] = deque()
        self._saved = time.monotonic()
        self.tokens = 0

    def __enter__(self) -> Self:
        self._writer = ThreadPoolExecutor(1, "rbptrack-writer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, KeyboardInterrupt | SystemExit):
                self._save()
            while error is None and self._writing:
                self._on_part(self._writing.popleft().result())
        finally:
            self._writer.shutdown(wait=True)

    def take(self, block: Block, stretch: Stretch, batch: Batch, scores: Scores) -> None:
        """Take the scores of the next batch; those of a block arrive in the order of its sequences."""
        if self._waiting and (block is not self._block or stretch.begin != self._stretch.end):
            self._save()
        begin = self._stretch.begin if self._waiting else stretch.begin
        self._block, self._stretch = block, Stretch(begin, stretch.end)
        self._waiting.append((batch.target_index, scores))
        self.tokens += len(batch)
        if stretch.end == block.size or time.monotonic() - self._saved >= self._seconds:
            self._save()
        while self._writing and (self._writing[0].done() or len(self._writing) > 2):  # few wait in memory
            self._on_part(self._writing.popleft().result())

    def _save(self) -> None:
        if self._block is not None and self._waiting:
            scored, self._waiting = self._waiting, []
            write = self._block.write
            self._writing.append(
                self._writer.submit(write, self._stretch, scored, self._vocab_size, strict=self._strict)
            )
        self._saved = time.monotonic()


@dataclass
class _Sums:
    """What derives from the rank table in one pass; see `Measurement`."""

    histogram: RankHistogram
    counts: DocumentCounts
    num_bytes: int
    tied: int


def _gather(wanted: list[Block], out: Path, ks: tuple[int, ...]) -> _Sums:
    """Join the parts into one file, a row group for each block, and sum; one block is in memory at a time."""
    first = wanted[0].table()
    sums: _Sums | None = None
    with parquet.Writer(out, first.described().schema) as file:
        for block in wanted:
            table = first if block is wanted[0] else block.table()
            file.add(table.described())
            histogram, counts = table.histogram(), table.document_counts(ks)
            tied = int(np.count_nonzero(table.column("ties")))
            num_bytes = int(block.corpus.num_bytes[block.corpus.targets(*block.sequences)].sum())
            if sums is None:
                sums = _Sums(histogram, counts, num_bytes, tied)
            else:
                sums = _Sums(
                    sums.histogram + histogram, sums.counts + counts, sums.num_bytes + num_bytes, sums.tied + tied
                )
    assert sums is not None  # noqa: S101  a corpus has at least one block
    return sums
