"""Saves scores as parts while the model goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torch import Tensor

from rbptrack.engine.batches import Batch
from rbptrack.engine.parts import Block, Stretch
from rbptrack.ranks import RankTable
from rbptrack.scoring.scores import Scores

OnPart = Callable[[RankTable], None]
OnBlock = Callable[[Block, Mapping[Stretch, RankTable]], None]


class Saver:
    """Saves scores as parts, from a thread of its own, at the end of each block's work and after some seconds.

    Args:
        vocab_size: |V|.
        strict: whether the tables count strict ranks.
        seconds: how long scores wait in memory at most, while others come in.
        on_part: called with each part that is on disk.
        on_block: called, in a second thread, with each block whose last part is on disk, and its parts from here.

    Attributes:
        tokens: number of scored tokens that were taken.

    """

    def __init__(
        self, vocab_size: int, *, strict: bool, seconds: float, on_part: OnPart, on_block: OnBlock | None = None
    ) -> None:
        self._vocab_size = vocab_size
        self._strict = strict
        self._seconds = seconds
        self._on_part = on_part
        self._on_block = on_block
        self._parts: dict[Stretch, RankTable] = {}  # of the block that is being written
        self._block: Block | None = None
        self._stretch = Stretch(0, 0)
        self._waiting: list[tuple[Tensor, Scores]] = []  # those of the stretch
        self._writing: deque[Future[RankTable]] = deque()
        self._joining: deque[Future[None]] = deque()
        self._saved = time.monotonic()
        self.tokens = 0

    def __enter__(self) -> Self:
        self._writer = ThreadPoolExecutor(1, "rbptrack-writer")
        self._joiner = ThreadPoolExecutor(1, "rbptrack-joiner")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, KeyboardInterrupt | SystemExit):
                self._save()
            if error is None:
                self._settle(most=0)
        finally:
            self._writer.shutdown(wait=True)
            self._joiner.shutdown(wait=True)

    def take(self, block: Block, stretch: Stretch, batch: Batch, scores: Scores) -> None:
        """Take the scores of the next batch; those of a block arrive in the order of its sequences."""
        if self._waiting and (block is not self._block or stretch.begin != self._stretch.end):
            self._save()
        begin = self._stretch.begin if self._waiting else stretch.begin
        self._block = block
        self._stretch = Stretch(begin, stretch.end)
        self._waiting.append((batch.target_index, scores))
        self.tokens += len(batch)
        if stretch.end == block.wanted.end or time.monotonic() - self._saved >= self._seconds:
            self._save()
        self._settle(most=2)  # few wait in memory

    def _settle(self, *, most: int) -> None:
        """Pass on the parts that are written, and wait while more than `most` tasks are under way."""
        while self._writing and (self._writing[0].done() or len(self._writing) > most):
            self._on_part(self._writing.popleft().result())
        while self._joining and (self._joining[0].done() or len(self._joining) > most):
            self._joining.popleft().result()

    def _save(self) -> None:
        if self._block is not None and self._waiting:
            scored = self._waiting
            self._waiting = []
            self._writing.append(self._writer.submit(self._write, self._block, self._stretch, scored))
        self._saved = time.monotonic()

    def _write(self, block: Block, stretch: Stretch, scored: list[tuple[Tensor, Scores]]) -> RankTable:
        part = block.write(stretch, scored, self._vocab_size, strict=self._strict)
        if self._on_block is not None:
            self._parts[stretch] = part
            if not block.lacking():
                self._joining.append(self._joiner.submit(self._on_block, block, self._parts))
                self._parts = {}
        return part
