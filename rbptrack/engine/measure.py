"""The loop: corpus x model -> Measurement. It knows nothing of MLflow or of config files.

Scores are saved in parts while the model runs (see `rbptrack.engine.parts`), so an interrupt loses seconds of work, and
memory does not grow with the number of tokens.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rbptrack.base.files import make_folder
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.at_work import alone
from rbptrack.engine.batches import Batch
from rbptrack.engine.executor import Engine
from rbptrack.engine.gathering import Gathering
from rbptrack.engine.memory import PeakMemory
from rbptrack.engine.parts import Block, Stretch
from rbptrack.engine.saver import OnBlock, OnPart, Saver
from rbptrack.engine.shards import Cost, Division
from rbptrack.models.causal import CausalModel
from rbptrack.ranks.measurement import WHOLE, Compared, Measurement, Shard
from rbptrack.scoring.scores import Scores

Progress = Callable[[int], None]


class Share:
    """What one process measures of a corpus: all of it, or the share of a shard.

    Args:
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        engine: batch and chunk sizes; they change no number beyond float32 rounding. Where they are the engine's own
            choice, that of the first process that measured in this folder holds for all.
        folder: where parts are kept; stretches that it holds are not measured again.
        shard: which share; a folder that was begun with another number of shards keeps its division.

    Raises:
        BadInput: a sequence is longer than the model reads, or a target has no row in its head.
        MeasurementError: the folder belongs to another corpus.

    """

    def __init__(
        self, model: CausalModel, corpus: Corpus, *, engine: EngineConfig, folder: Path, shard: Shard = WHOLE
    ) -> None:
        targets = corpus.token[corpus.scorable]
        self._longest = int(corpus.lengths.max())
        model.check_corpus(longest=self._longest, largest_target=int(targets.max(initial=0)))
        make_folder(folder)
        chosen = Engine(model, engine, longest=self._longest)

        def divide() -> Division:
            sizes = {"batch_tokens": chosen.batch_tokens, "chunk_tokens": chosen.chunk_tokens}
            return Division.of(corpus, count=shard.count, part_tokens=engine.part_tokens, **sizes)

        self._division = Division.agreed(folder, corpus, divide)
        self._engine = replace(
            engine,
            batch_tokens=engine.batch_tokens or self._division.batch_tokens,
            chunk_tokens=engine.chunk_tokens or self._division.chunk_tokens,
        )
        self._model = model
        self._corpus = corpus
        self._folder = folder
        self._shard = shard

    @property
    def num_targets(self) -> int:
        """Its scored tokens."""
        numbers = self._division.numbers(self._shard)
        if len(numbers) == len(self._division.shards):
            return self._corpus.num_targets
        return sum(block.num_targets for n in numbers for block in self._division.blocks(self._corpus, self._folder, n))

    def measure(
        self,
        *,
        strict: bool = False,
        progress: Progress = lambda tokens: None,
        on_part: OnPart = lambda part: None,
        on_block: OnBlock | None = None,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """Score this shard's tokens that are not on disk yet: the slow part of `measure`.

        `on_block` is called with each block that is completed here, where no other process may measure parts of it;
        `waits` where another process is at work on the same sequences.
        """
        if len(self._division.shards) > 1:
            on_block = None
        began = time.perf_counter()
        waited = 0.0
        tokens = 0
        with (
            PeakMemory(self._model.device) as memory,
            Engine(self._model, self._engine, longest=self._longest, targets=self._corpus.num_targets) as running,
        ):
            for number in self._division.numbers(self._shard):
                began_at = time.perf_counter()
                with alone(self._folder, number, waits) as there:
                    if not there:
                        return
                    wanted = self._division.blocks(self._corpus, self._folder, number)
                    for block in wanted:
                        for part in block.read_saved():
                            progress(len(part))
                            on_part(part)
                    waited += time.perf_counter() - began_at
                    saver = Saver(
                        self._model.vocab_size,
                        strict=strict,
                        seconds=self._engine.part_seconds,
                        on_part=on_part,
                        on_block=on_block,
                    )
                    with saver:
                        for block, stretch, batch, scores in _scored(running, wanted):
                            saver.take(block, stretch, batch, scores)
                            progress(len(batch))
                    tokens += saver.tokens
        Cost(
            seconds=time.perf_counter() - began - waited,
            tokens=tokens,
            peak_memory_bytes=memory.bytes,
            batch_tokens=running.batch_tokens,
            chunk_tokens=running.chunk_tokens,
            notes=tuple(running.notes),
            padding_mass=running.padding_mass,
        ).write(self._folder)


def measure(
    model: CausalModel,
    corpus: Corpus,
    *,
    ks: tuple[int, ...],
    engine: EngineConfig,
    folder: Path,
    strict: bool = False,
    progress: Progress = lambda tokens: None,
    on_part: OnPart = lambda part: None,
) -> Measurement:
    """Return rank every scored token of a corpus.

    An interrupt (KeyboardInterrupt, SystemExit) saves the batches that are finished before it goes on.

    Args:
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        ks: the k of the per-document sums, each at most |V|.
        engine: batch and chunk sizes; they change no number beyond float32 rounding.
        folder: where parts and the finished table are kept; stretches that it holds are not measured again.
        strict: count strict ranks in every metric (rank=strict).
        progress: called with the number of newly finished scored tokens.
        on_part: called with each part when it is on disk, those found there included.

    Raises:
        BadInput: a sequence is longer than the model reads, or a target has no row in its head.
        MeasurementError: the logits hold a NaN or an infinity (names the first document and position), or one sequence
            alone does not fit into memory.

    """
    share = Share(model, corpus, engine=engine, folder=folder)
    with Gathering(corpus, Division.read(folder).part_tokens, folder, ks) as gathering:
        share.measure(strict=strict, progress=progress, on_part=on_part, on_block=gathering.take)
        with PeakMemory(model.device) as memory:
            sums = gathering.finish()
    cost = Cost.take(folder)
    return Measurement(
        path=gathering.path,
        histogram=sums.histogram,
        counts=sums.counts,
        num_bytes=sums.num_bytes,
        tied=sums.tied,
        seconds=cost.seconds,
        fresh_tokens=cost.tokens,
        peak_memory_bytes=max(cost.peak_memory_bytes, memory.bytes),
        batch_tokens=cost.batch_tokens,
        chunk_tokens=cost.chunk_tokens,
        notes=(*model.notes, *cost.notes),
        split=sums.parts_of_ce,
        compared=Compared.of(sums.compared, sums.histogram.num_tokens, cost.padding_mass) if model.reference else None,
    )


def _scored(running: Engine, wanted: list[Block]) -> Iterator[tuple[Block, Stretch, Batch, Scores]]:
    """Yield every batch that is not on disk with its scores, in order; no thread waits where a block ends."""
    owners: deque[tuple[Block, Stretch]] = deque()

    def batches() -> Iterator[Batch]:
        for block in wanted:
            for stretch, batch in block.batches(running.batch_tokens):
                owners.append((block, stretch))
                yield batch

    for batch, scores in running.run(batches()):
        yield *owners.popleft(), batch, scores
