"""The loop: corpus x model -> Measurement. Knows nothing of MLflow or of config files.

A corpus is measured in parts, runs of consecutive sequences. Each part is written whole before the next begins, so an
interrupted measurement loses at most one part, and memory does not grow with the number of tokens.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch

from rbptrack import parquet
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import Batch, batch_of, compose
from rbptrack.engine.executor import Engine
from rbptrack.errors import MeasurementError
from rbptrack.measurement import Measurement
from rbptrack.models.loading import CausalModel
from rbptrack.ranks import DocumentCounts, RankHistogram, RankTable
from rbptrack.scoring.scorer import Scores

Progress = Callable[[int], None]
_SCORED = ("greater", "ties", "logprob")


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

    Args:
        model: on its device.
        corpus: tokenised with the model's tokenizer.
        ks: the k of the per-document sums, each at most |V|.
        engine: batch and chunk sizes; they change no number beyond float32 rounding.
        folder: where parts and the finished table are kept; parts found there are not measured again.
        strict: count strict ranks in every metric (rank=strict).
        progress: called with the number of newly finished scored tokens.
        on_part: called with each part when it is on disk, those found there included.

    Raises:
        MeasurementError: the logits hold a NaN or an infinity (names the first document and position), or one sequence
            alone does not fit into memory.

    """
    folder.mkdir(parents=True, exist_ok=True)
    paths, missing = dict[Path, tuple[int, int]](), list[_Part]()
    for low, high in corpus.parts(engine.part_tokens):
        path = folder / f"part-{low:09d}-{high:09d}.parquet"
        paths[path] = low, high
        if path.exists():
            progress(pq.read_metadata(path).num_rows)
            on_part(RankTable.read(path))
        else:
            missing.append(_Part(corpus, (low, high), path, model, strict=strict))
    began, fresh = time.perf_counter(), 0
    with Engine(model, engine, longest=int(corpus.lengths.max())) as running, ThreadPoolExecutor(1) as writer:
        writing: deque[Future[RankTable]] = deque()
        for part, batch, scores in _scored(running, missing):
            part.take(batch, scores)
            fresh += len(batch)
            progress(len(batch))
            if part.complete:
                writing.append(writer.submit(part.write))
            while writing and (writing[0].done() or len(writing) > 2):  # few wait in memory
                on_part(writing.popleft().result())
        for done in writing:
            on_part(done.result())
    seconds = time.perf_counter() - began
    return _gather(paths, folder / "ranks.parquet", corpus, ks, model, seconds=seconds, fresh=fresh, engine=running)


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)


class _Part:
    """The scores of a run of sequences, on the device while they come in, then on disk.

    Args:
        corpus: what is measured.
        sequences: the first, and one past the last.
        path: where it is written.
        model: whose ranks they are.
        strict: whether the table counts strict ranks.

    """

    def __init__(
        self, corpus: Corpus, sequences: tuple[int, int], path: Path, model: CausalModel, *, strict: bool
    ) -> None:
        self._strict = strict
        self._corpus, self.sequences, self._path, self._model = corpus, sequences, path, model
        self._base, self._end = int(corpus.first[sequences[0]]), int(corpus.stop[sequences[1] - 1])
        self._scores: Scores | None = None
        self._lacking = 0

    def batches(self, batch_tokens: int) -> Iterator[Batch]:
        """Its batches; the arrays for their scores, by token of this part, begin to exist with the first."""
        size, device = self._end - self._base, self._model.head.weight.device
        greater = torch.zeros(size, dtype=torch.int32, device=device)
        self._scores = Scores(greater, torch.zeros_like(greater), torch.zeros(size, dtype=torch.float32, device=device))
        composed = list(compose(self._corpus, range(*self.sequences), batch_tokens))
        self._lacking = len(composed)
        for sequences in composed:
            yield batch_of(self._corpus, sequences)

    def take(self, batch: Batch, scores: Scores) -> None:
        """Put a batch's scores where they belong."""
        assert self._scores is not None  # noqa: S101  batches() made it
        index = batch.target_index.to(scores.greater.device) - self._base
        self._scores.greater[index] = scores.greater
        self._scores.ties[index] = scores.ties
        self._scores.logprob[index] = scores.logprob
        self._lacking -= 1

    @property
    def complete(self) -> bool:
        """Whether every batch's scores are there."""
        return not self._lacking

    def write(self) -> RankTable:
        """Write the part, whole or not at all, and return it; MeasurementError where a log-probability is no number."""
        assert self._scores is not None  # noqa: S101  batches() made it
        corpus, index = self._corpus, self._corpus.targets(*self.sequences)
        columns = {n: getattr(self._scores, n).cpu().numpy()[index - self._base] for n in _SCORED}
        finite = np.isfinite(columns["logprob"])
        if not finite.all():
            bad = index[int(np.argmin(finite))]
            name = corpus.document_ids[corpus.document[bad]]
            raise MeasurementError(
                f"the model's logits hold a NaN or an infinity at document {name}, position {corpus.position[bad]}; "
                "the weights are damaged, or the precision (model.dtype) is too low for them"
            )
        columns |= {n: getattr(corpus, n)[index] for n in ("document", "position", "field", "token")}
        table = RankTable.from_arrays(vocab_size=self._model.vocab_size, strict=self._strict, **columns)
        table.write(self._path)
        self._scores = None
        return table


def _scored(running: Engine, parts: list[_Part]) -> Iterator[tuple[_Part, Batch, Scores]]:
    """Every batch of every part with its scores, in order: no thread waits where one part ends and the next begins."""
    owners: deque[_Part] = deque()

    def batches() -> Iterator[Batch]:
        for part in parts:
            for batch in part.batches(running.batch_tokens):
                owners.append(part)
                yield batch

    for batch, scores in running.run(batches()):
        yield owners.popleft(), batch, scores


def _gather(
    paths: dict[Path, tuple[int, int]],
    out: Path,
    corpus: Corpus,
    ks: tuple[int, ...],
    model: CausalModel,
    *,
    seconds: float,
    fresh: int,
    engine: Engine,
) -> Measurement:
    """Join parts into one file, one row group each, and sum what derives from them; one part in memory at a time."""
    histogram: RankHistogram | None = None
    counts: DocumentCounts | None = None
    tied, num_bytes = 0, 0
    described = RankTable.read(next(iter(paths))).described().schema
    with parquet.Writer(out, described) as writer:
        for path, sequences in paths.items():
            part = RankTable.read(path)
            writer.add(part.described())
            found, sums = part.histogram(), part.document_counts(ks)
            histogram = found if histogram is None else histogram + found
            counts = sums if counts is None else counts + sums
            tied += int(np.count_nonzero(part.column("ties")))
            num_bytes += int(corpus.num_bytes[corpus.targets(*sequences)].sum())
    assert histogram is not None and counts is not None  # noqa: S101, PT018  a corpus has at least one part
    return Measurement(
        path=out,
        histogram=histogram,
        counts=counts,
        num_bytes=num_bytes,
        tied=tied,
        seconds=seconds,
        fresh_tokens=fresh,
        peak_memory_bytes=_peak_memory(model.device) if model.group is None else model.group.peak_bytes,
        batch_tokens=engine.batch_tokens,
        chunk_tokens=engine.chunk_tokens,
        notes=tuple(engine.notes),
    )


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
