"""Measure a corpus with an engine in constant memory, and save finished work to disk while it runs."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rbptrack.engine.batches import Batch
from rbptrack.engine.blocks import Blocks
from rbptrack.engine.collector import Collector
from rbptrack.engine.engine import Engine, EngineFailed
from rbptrack.measurement.files import RANKS_FILE
from rbptrack.ranks import RankSums, RankTable

if TYPE_CHECKING:
    from rbptrack.corpus.sequences import Corpus

_FIRST_CHOICES = ("top", "reference_top")  # columns with the id that a model ranks first


@dataclass(frozen=True)
class Ranked:
    """The ranks of a corpus, and how they were computed.

    Attributes:
        folder: the folder of `ranks.parquet`, the rank table.
        sums: the sums of the rank table.
        num_bytes: UTF-8 bytes of the text of the scored tokens.
        seconds: wall time of computing the scores.
        fresh_tokens: number of tokens that were scored in these seconds. The others were on disk already.
        engine_results: results that only the engine knows, by field.
        notes: notes for the user, such as that memory ran out.

    """

    folder: Path
    sums: RankSums
    num_bytes: int
    seconds: float
    fresh_tokens: int
    engine_results: Mapping[str, float]
    notes: tuple[str, ...]

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.folder / RANKS_FILE)

    def results(self) -> dict[str, float | None]:
        """Return the results of the measurement that ranks do not determine. Unknown results are None."""
        nats = self.sums.histogram.ce * self.sums.histogram.num_tokens
        return {
            **self.engine_results,
            "bits_per_byte": nats / (math.log(2) * self.num_bytes) if self.num_bytes else None,
            "seconds": self.seconds,
            "tokens_per_second": self.fresh_tokens / self.seconds if self.fresh_tokens and self.seconds else None,
        }

    def first_choices(self) -> list[int]:
        """Return the ids of all entries that the model or its reference ranks first at some token, ascending."""
        ids: set[int] = set()
        for piece in RankTable.read_pieces(self.folder / RANKS_FILE, _FIRST_CHOICES):
            for name in _FIRST_CHOICES:
                if name in piece.table.column_names:
                    ids.update(np.unique(piece.column(name)).tolist())
        return sorted(ids)


def measure(
    engine: Engine,
    corpus: Corpus,
    *,
    ks: Sequence[int],
    folder: Path,
    strict: bool = False,
    progress: Callable[[int], object] = lambda tokens: None,
) -> Ranked:
    """Rank every scored token of a corpus.

    Finished work is written to folder/blocks every 30 s, after every million tokens, at an interrupt
    (KeyboardInterrupt, SystemExit), and if the engine fails. The next call with the same folder continues from there.
    The finished table is folder/ranks.parquet.

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
            alone does not fit into memory, the folder belongs to another corpus, or the engine failed.

    """
    for abandoned in folder.glob(".*.tmp"):  # the unfinished table of a killed process
        abandoned.unlink()
    blocks = Blocks(corpus, folder / "blocks")
    saved_tokens = sum(len(blocks.targets(block)) for block in blocks.saved)
    if saved_tokens:
        progress(saved_tokens)
    started = time.perf_counter()
    sums = RankSums(ks, engine.vocab_size)
    with RankTable.writing(folder / RANKS_FILE) as write:

        def append(piece: RankTable) -> None:
            sums.add(piece)
            write(piece)

        with Collector(corpus, blocks, vocab_size=engine.vocab_size, strict=strict, append=append) as collector:
            _measure_missing(engine, blocks, collector, progress)
    seconds = time.perf_counter() - started
    return Ranked(
        folder=folder,
        sums=sums,
        num_bytes=int(corpus.num_bytes.sum(where=corpus.is_target)),
        seconds=seconds,
        fresh_tokens=sums.histogram.num_tokens - saved_tokens,
        engine_results=engine.results(),
        notes=tuple(engine.notes),
    )


def _measure_missing(engine: Engine, blocks: Blocks, collector: Collector, progress: Callable[[int], object]) -> None:
    """Score the batches that are not on disk. At an interrupt, or if the engine fails, write all scores to disk."""
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
        except (KeyboardInterrupt, SystemExit, EngineFailed):
            collector.save()
            raise
