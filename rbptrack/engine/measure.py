"""Measures a corpus with an engine in constant memory, and saves finished work to disk while it runs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rbptrack.engine.batches import Batch
from rbptrack.engine.blocks import Blocks
from rbptrack.engine.engine import Engine
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable, rank_and_rest_sums, token_totals
from rbptrack.ranks.measurement import RANKS_FILE, Comparison, Measurement
from rbptrack.scoring import Scores

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

BLOCK_SECONDS = 30.0
"""The number of seconds after which scores are written to disk."""

_COMPARISONS = ("kl", "acceptance", "same_top")
_BLOCK_TOKENS = 4_000_000  # scores are also written after this number of tokens, because each takes 40 bytes of memory


def measure(
    engine: Engine,
    corpus: Corpus,
    *,
    ks: Sequence[int],
    folder: Path,
    strict: bool = False,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Measurement:
    """Rank every scored token of a corpus.

    Finished work is written to folder/blocks every 30 s and at an interrupt (KeyboardInterrupt, SystemExit). The next
    call with the same folder continues from there. The finished table is folder/ranks.parquet.

    Args:
        engine: what computes the scores.
        corpus: the corpus, tokenised with the model's tokenizer.
        ks: the k for which hits are counted by document, each at most |V|.
        folder: the folder for blocks and the finished table. Only one process may use it at a time.
        strict: whether all metrics use the strict rank (rank=strict).
        progress: called with the number of tokens that were scored since the last call. The first call counts the
            tokens that were on disk already.

    Raises:
        MeasurementError: the logits hold a NaN or an infinity (the error names the document and position), one sequence
            alone does not fit into memory, or the folder belongs to another corpus.

    """
    blocks = Blocks(corpus, folder / "blocks", vocab_size=engine.vocab_size, strict=strict)
    saved_tokens = sum(blocks.num_tokens(block) for block in blocks.saved)
    if saved_tokens:
        progress(saved_tokens)
    started = time.perf_counter()
    _measure_missing(engine, blocks, progress)
    seconds = time.perf_counter() - started
    sums = _Sums(ks, engine.vocab_size)
    RankTable.write_pieces(folder / RANKS_FILE, sums.add_sections(blocks, corpus))
    return Measurement(
        folder=folder,
        histogram=sums.histogram,
        counts=DocumentCounts.merge(sums.counts),
        num_bytes=sums.num_bytes,
        tied_tokens=int(sums.totals["tie_rate"]) if "tie_rate" in sums.totals else None,
        seconds=seconds,
        fresh_tokens=sums.histogram.num_tokens - saved_tokens,
        peak_memory_bytes=engine.peak_memory_bytes,
        batch_tokens=engine.batch_tokens,
        chunk_tokens=engine.chunk_tokens,
        notes=tuple(engine.notes),
        comparison=sums.comparison(engine.padding_mass),
        ce_parts=sums.ce_parts,
    )


def _measure_missing(engine: Engine, blocks: Blocks, progress: Callable[[int], object]) -> None:
    """Score the batches that are not on disk, and write their scores in blocks."""
    writer = _BlockWriter(blocks)
    ranges: deque[range] = deque()  # the sequences of each batch that is being computed

    def batches() -> Iterator[Batch]:
        for sequences, batch in blocks.batches(engine.batch_tokens):
            ranges.append(sequences)
            yield batch

    with closing(engine.run(batches())) as results:
        try:
            for batch, scores in results:
                writer.add(ranges.popleft(), batch, scores)
                progress(len(batch))
        except (KeyboardInterrupt, SystemExit):
            writer.save()
            raise
    writer.save()


class _BlockWriter:
    """Collects scored batches, and writes them to disk as a block about every `BLOCK_SECONDS`.

    The batches of a block hold consecutive sequences.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._scored: list[tuple[Batch, Scores]] = []
        self._sequences = range(0)  # the sequences of the collected batches
        self._saved_at = time.monotonic()

    def add(self, sequences: range, batch: Batch, scores: Scores) -> None:
        """Add the scores of a batch. Write a block if it is time, or if the sequences do not follow the last ones."""
        if sequences.start != self._sequences.stop:
            self.save()
        begin = self._sequences.start if self._scored else sequences.start
        self._sequences = range(begin, sequences.stop)
        self._scored.append((batch, scores))
        tokens = sum(len(batch) for batch, _ in self._scored)
        if time.monotonic() - self._saved_at >= BLOCK_SECONDS or tokens >= _BLOCK_TOKENS:
            self.save()

    def save(self) -> None:
        self._saved_at = time.monotonic()
        if self._scored:
            scored = self._scored
            self._scored = []  # emptied before writing, because an interrupt during writing calls `save` again
            self._blocks.write(self._sequences, scored)


class _Sums:
    """Computes the sums of a `Measurement` in one pass over the sections of the rank table."""

    def __init__(self, ks: Sequence[int], vocab_size: int) -> None:
        no_ranks = np.zeros(0, dtype=np.int64)
        self.histogram = RankHistogram(no_ranks, no_ranks, np.zeros(0), vocab_size)
        self.ce_sums = np.zeros(3)
        self.counts: list[DocumentCounts] = []  # of each section; merged once at the end, because merging sorts
        self._ks = tuple(ks)
        self.num_bytes = 0
        self.totals: dict[str, float] = {}  # of each metric that is a mean over tokens

    def add_sections(self, blocks: Blocks, corpus: Corpus) -> Iterator[RankTable]:
        """Yield the sections of the finished rank table, and add each one to the sums while it is in memory."""
        for targets, table in blocks.tables():
            self.num_bytes += int(corpus.num_bytes[targets].sum())
            self.counts.append(table.document_counts(self._ks))
            self.histogram += table.histogram()
            self.ce_sums += rank_and_rest_sums(table)
            for metric, total in token_totals(table).items():
                self.totals[metric] = self.totals.get(metric, 0.0) + total
            yield table

    def comparison(self, padding_mass: float) -> Comparison | None:
        """Return the comparison with the reference, or None if there is no reference."""
        if "kl" not in self.totals:
            return None
        means = {metric: self.totals[metric] / self.histogram.num_tokens for metric in _COMPARISONS}
        return Comparison(**means, padding_mass=padding_mass)

    @property
    def ce_parts(self) -> tuple[float, float] | None:
        """The means of ln R and of -ln(p R), or None if some p R is above 1 by more than rounding."""
        ln_rank, remainder, impossible = (self.ce_sums / self.histogram.num_tokens).tolist()
        return None if impossible else (ln_rank, remainder)
