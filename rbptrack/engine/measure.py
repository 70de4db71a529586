"""A corpus x a model -> a rank table and the sums over it, in constant memory, saved while it goes on."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rbptrack.config.schema import EngineConfig
from rbptrack.engine.batches import Batch
from rbptrack.engine.blocks import Block, Blocks
from rbptrack.engine.forward import Forward
from rbptrack.ranks import DocumentCounts, FloatArray, RankHistogram, RankTable, split_sums
from rbptrack.ranks.measurement import RANKS_FILE, Compared, Measurement
from rbptrack.scoring import Scores

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel

BLOCK_SECONDS = 30.0
"""Seconds of work after which it is written to the disk."""

_BLOCK_TOKENS = 4_000_000  # or after so many: at 40 bytes each, scores wait in memory


def measure(
    model: CausalModel,
    corpus: Corpus,
    *,
    ks: Sequence[int],
    engine: EngineConfig,
    folder: Path,
    strict: bool = False,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Measurement:
    """Rank every scored token of a corpus.

    Finished work is written to folder/blocks every 30 s, and when an interrupt comes (KeyboardInterrupt, SystemExit);
    it is not measured again. The finished table is folder/ranks.parquet.

    Args:
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        ks: the k of the sums by document, each at most |V|.
        engine: batch and chunk sizes; they change no number beyond float32 rounding.
        folder: where blocks and the finished table are; one process at a time measures there.
        strict: count strict ranks in every metric (rank=strict).
        progress: called with numbers of newly finished scored tokens, those found on disk first.

    Raises:
        BadInput: a sequence is longer than the model reads, or a target has no row in its head.
        MeasurementError: the logits hold a NaN or an infinity (names the first document and position), one sequence
            alone does not fit into memory, or the folder belongs to another corpus.

    """
    targets = corpus.token[corpus.scorable]
    longest = int(corpus.lengths.max())
    model.check_corpus(longest=longest, largest_target=int(targets.max(initial=0)))
    blocks = Blocks(corpus, folder / "blocks")
    found = sum(blocks.tokens(block) for block in blocks.saved)
    if found:
        progress(found)
    _reset_peak_memory(model.device)
    forward = Forward(model, engine, longest=longest, targets=len(targets) - found)
    began = time.perf_counter()
    _measure_rest(forward, blocks, _Waiting(blocks, model.vocab_size, strict=strict), progress)
    seconds = time.perf_counter() - began
    sums = _Sums(ks)
    RankTable.write_pieces(folder / RANKS_FILE, sums.over(blocks, corpus))
    return Measurement(
        folder=folder,
        histogram=sums.histogram,
        counts=sums.counts,
        num_bytes=sums.num_bytes,
        tied=sums.tied,
        seconds=seconds,
        fresh_tokens=sums.histogram.num_tokens - found,
        peak_memory_bytes=_peak_memory(model.device),
        batch_tokens=forward.batch_tokens,
        chunk_tokens=forward.chunk_tokens,
        notes=(*model.notes, *forward.notes),
        compared=sums.compared_by(forward.padding_mass) if model.reference else None,
        split=sums.parts_of_ce,
    )


def _measure_rest(forward: Forward, blocks: Blocks, waiting: _Waiting, progress: Callable[[int], object]) -> None:
    """Score what is not on disk, and write it in blocks."""
    places: deque[Block] = deque()  # of the batches under way

    def batches() -> Iterator[Batch]:
        for place, batch in blocks.batches(forward.batch_tokens):
            places.append(place)
            yield batch

    with closing(forward.run(batches())) as results:
        try:
            for batch, scores in results:
                waiting.add(places.popleft(), batch, scores)
                progress(len(batch))
        except (KeyboardInterrupt, SystemExit):
            waiting.save()
            raise
    waiting.save()


class _Waiting:
    """Scored batches that are not on disk yet; each follows the one before in the order."""

    def __init__(self, blocks: Blocks, vocab_size: int, *, strict: bool) -> None:
        self._blocks = blocks
        self._vocab_size = vocab_size
        self._strict = strict
        self._scored: list[tuple[Batch, Scores]] = []
        self._place = Block(0, 0)
        self._saved_at = time.monotonic()

    def add(self, place: Block, batch: Batch, scores: Scores) -> None:
        if place.begin != self._place.end:
            self.save()
        begin = self._place.begin if self._scored else place.begin
        self._place = Block(begin, place.end)
        self._scored.append((batch, scores))
        tokens = sum(len(waiting) for waiting, _ in self._scored)
        if time.monotonic() - self._saved_at >= BLOCK_SECONDS or tokens >= _BLOCK_TOKENS:
            self.save()

    def save(self) -> None:
        self._saved_at = time.monotonic()
        if self._scored:
            scored = self._scored
            self._scored = []  # before writing: an error there is not met again at the end
            self._blocks.write(self._place, scored, self._vocab_size, strict=self._strict)


class _Sums:
    """Sums over the rank table that one pass computes for a `Measurement`."""

    histogram: RankHistogram
    compared: FloatArray
    split: FloatArray

    def __init__(self, ks: Sequence[int]) -> None:
        self._ks = tuple(ks)
        self._counts: list[DocumentCounts] = []  # of each section: adding one by one sorts all documents each time
        self.num_bytes = 0
        self.tied = 0

    def over(self, blocks: Blocks, corpus: Corpus) -> Iterator[RankTable]:
        """Yield the sections of the finished table, each when it is added to the sums."""
        first = True
        for index, table in blocks.tables():
            self.num_bytes += int(corpus.num_bytes[index].sum())
            self.tied += int(np.count_nonzero(table.column("ties")))
            self._counts.append(table.document_counts(self._ks))
            compared = table.compared_sums() if table.compared else np.zeros(3)
            if first:
                self.histogram = table.histogram()
                self.compared = compared
                self.split = split_sums(table)
                first = False
            else:
                self.histogram += table.histogram()
                self.compared += compared
                self.split += split_sums(table)
            yield table

    @property
    def counts(self) -> DocumentCounts:
        return DocumentCounts.merge(self._counts)

    def compared_by(self, padding_mass: float) -> Compared:
        return Compared.of(self.compared, self.histogram.num_tokens, padding_mass)

    @property
    def parts_of_ce(self) -> tuple[float, float] | None:
        """The means of ln R and of -ln(p R); None if R and p are not of one distribution."""
        rank, rest, impossible = (self.split / self.histogram.num_tokens).tolist()
        return None if impossible else (rank, rest)


def _reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # without this file, the peak covers the process's whole life
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory(device: torch.device) -> int:
    """Bytes of the most memory in use since `_reset_peak_memory`: torch's on CUDA, the whole process's on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
