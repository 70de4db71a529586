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
from rbptrack.engine.collector import Collector
from rbptrack.engine.engine import Engine
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable, rank_and_rest_sums, token_totals
from rbptrack.ranks.measurement import RANKS_FILE, Comparison, Measurement

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

BLOCK_SECONDS = 30.0
"""The number of seconds after which scores are written to disk in a block."""

_COMPARISONS = ("kl", "acceptance", "same_top")


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

    Finished work is written to folder/blocks every 30 s, after every million tokens, and at an interrupt
    (KeyboardInterrupt, SystemExit). The next call with the same folder continues from there. The finished table is
    folder/ranks.parquet.

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
    for abandoned in folder.glob(".*.tmp"):  # the unfinished table of a killed process
        abandoned.unlink()
    blocks = Blocks(corpus, folder / "blocks")
    saved_tokens = sum(blocks.num_tokens(block) for block in blocks.saved)
    if saved_tokens:
        progress(saved_tokens)
    started = time.perf_counter()
    sums = _Sums(ks, engine.vocab_size)
    with RankTable.writing(folder / RANKS_FILE) as write:

        def append(piece: RankTable) -> None:
            sums.add(piece)
            write(piece)

        with Collector(
            corpus,
            blocks,
            vocab_size=engine.vocab_size,
            strict=strict,
            block_seconds=BLOCK_SECONDS,
            append=append,
        ) as collector:
            _measure_missing(engine, blocks, collector, progress)
    seconds = time.perf_counter() - started
    return Measurement(
        folder=folder,
        histogram=sums.histogram,
        counts=DocumentCounts.merge(sums.counts),
        num_bytes=int(corpus.num_bytes.sum(where=corpus.is_target)),
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


def _measure_missing(engine: Engine, blocks: Blocks, collector: Collector, progress: Callable[[int], object]) -> None:
    """Score the batches that are not on disk. At an interrupt, write all scores to disk."""
    ranges: deque[range] = deque()  # the sequences of each batch that is being computed

    def batches() -> Iterator[Batch]:
        for sequences, batch in blocks.batches(engine.batch_tokens):
            ranges.append(sequences)
            yield batch

    with closing(engine.run(batches())) as results:
        try:
            for batch, scores in results:
                placed = collector.add(ranges.popleft(), batch, scores)
                if placed:
                    progress(placed)
            progress(collector.finish())
        except (KeyboardInterrupt, SystemExit):
            collector.save()
            raise


class _Sums:
    """Computes the sums of a `Measurement` in one pass over the pieces of the rank table."""

    def __init__(self, ks: Sequence[int], vocab_size: int) -> None:
        no_ranks = np.zeros(0, dtype=np.int64)
        self.histogram = RankHistogram(no_ranks, no_ranks, np.zeros(0), vocab_size)
        self.ce_sums = np.zeros(3)
        self.counts: list[DocumentCounts] = []  # of each piece; merged once at the end, because merging sorts
        self._ks = tuple(ks)
        self.totals: dict[str, float] = {}  # of each metric that is a mean over tokens

    def add(self, table: RankTable) -> None:
        """Add a piece of the rank table."""
        self.counts.append(table.document_counts(self._ks))
        self.histogram += table.histogram()
        self.ce_sums += rank_and_rest_sums(table)
        for metric, total in token_totals(table).items():
            self.totals[metric] = self.totals.get(metric, 0.0) + total

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
