"""The loop: corpus x model -> Measurement. Knows nothing of MLflow or of config files.

A corpus is measured in parts, runs of consecutive sequences. Each part is written whole before the next begins, so an
interrupted measurement loses at most one part, and memory does not grow with the number of tokens.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rbptrack.config import EngineConfig
from rbptrack.corpus import Corpus
from rbptrack.errors import MeasurementError
from rbptrack.model import CausalModel
from rbptrack.ranktable import SCHEMA, DocumentCounts, RankHistogram, RankTable
from rbptrack.scoring import Scorer

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Measurement:
    """What one model says about one dataset.

    Attributes:
        path: the rank table, Parquet.
        histogram: counts by rank.
        counts: per-document sums for the k that were asked for.
        num_bytes: UTF-8 bytes of the scored tokens' text.
        tied: scored tokens whose logit another entry equals.
        seconds: wall time of the forward passes and scoring that this process did.
        fresh_tokens: scored tokens that this process measured; the others were continued from disk.
        peak_memory_bytes: of the process (host) or of the device.

    """

    path: Path
    histogram: RankHistogram
    counts: DocumentCounts
    num_bytes: int
    tied: int
    seconds: float
    fresh_tokens: int
    peak_memory_bytes: int

    @property
    def num_tokens(self) -> int:
        """How many tokens were scored."""
        return self.histogram.num_tokens

    @property
    def ce(self) -> float:
        """Mean of -ln p(target), nats."""
        return self.histogram.ce

    @property
    def bits_per_byte(self) -> float:
        """Bits that the model spends per UTF-8 byte of scored text."""
        return float(self.ce * self.num_tokens / (np.log(2) * self.num_bytes))

    @property
    def tie_rate(self) -> float:
        """Share of scored tokens whose logit another entry equals."""
        return self.tied / self.num_tokens

    def rbp(self, k: int) -> float:
        """RBP_k = Pr(R <= k)."""
        return self.histogram.rbp(k)

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.path)


def measure(
    model: CausalModel,
    corpus: Corpus,
    *,
    ks: tuple[int, ...],
    engine: EngineConfig,
    folder: Path,
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
        progress: called with the number of newly finished scored tokens.
        on_part: called with each part when it is on disk, those found there included.

    Raises:
        MeasurementError: the logits hold a NaN or an infinity; names the first document and position.

    """
    folder.mkdir(parents=True, exist_ok=True)
    if engine.threads:
        torch.set_num_threads(engine.threads)
    scorer = Scorer(model.head, chunk_tokens=engine.chunk_tokens)
    seconds, fresh, paths = 0.0, 0, []
    for low, high in corpus.parts(engine.part_tokens):
        path = folder / f"part-{low:09d}-{high:09d}.parquet"
        paths.append(path)
        if path.exists():
            progress(pq.read_metadata(path).num_rows)
            on_part(RankTable.read(path))
            continue
        began = time.perf_counter()
        table = _measure_part(model, scorer, corpus, (low, high), engine.batch_tokens, progress)
        seconds += time.perf_counter() - began
        fresh += len(table)
        table.write(path)
        on_part(table)
    return _gather(paths, folder / "ranks.parquet", corpus, ks, seconds, fresh, model)


def discard(folder: Path) -> None:
    """Remove a measurement's parts and table, once they are kept elsewhere."""
    shutil.rmtree(folder, ignore_errors=True)


@torch.inference_mode()
def _measure_part(
    model: CausalModel,
    scorer: Scorer,
    corpus: Corpus,
    part: tuple[int, int],
    batch_tokens: int,
    progress: Progress,
) -> RankTable:
    base, end = int(corpus.first[part[0]]), int(corpus.stop[part[1] - 1])
    device = model.device
    greater = torch.zeros(end - base, dtype=torch.int32, device=device)  # by token of this part, scored or not
    ties, logprob = torch.zeros_like(greater), torch.zeros(end - base, dtype=torch.float32, device=device)
    for batch in _batches(corpus, part, batch_tokens):
        tokens, rows, targets = _tensors(corpus, batch)
        hidden = model.backbone(tokens.to(device))  # (batch, length, width)
        at = (targets - base).to(device)
        ids = torch.from_numpy(corpus.token[targets.numpy()]).long().to(device)
        scores = scorer(hidden.flatten(0, 1)[rows.to(device)], ids)
        greater[at], ties[at], logprob[at] = scores.greater, scores.ties, scores.logprob
        progress(len(targets))
    index = corpus.targets(*part)
    local = index - base
    values = logprob.cpu().numpy()[local]
    if not np.isfinite(values).all():
        bad = index[int(np.argmin(np.isfinite(values)))]
        name = corpus.document_ids[corpus.document[bad]]
        raise MeasurementError(
            f"the model's logits hold a NaN or an infinity at document {name}, position {corpus.position[bad]}; "
            "the weights are damaged, or the precision (model.dtype) is too low for them"
        )
    return RankTable.from_arrays(
        vocab_size=model.vocab_size,
        document=corpus.document[index],
        position=corpus.position[index],
        field=corpus.field[index],
        token=corpus.token[index],
        greater=greater.cpu().numpy()[local],
        ties=ties.cpu().numpy()[local],
        logprob=values,
    )


def _batches(corpus: Corpus, part: tuple[int, int], batch_tokens: int) -> Iterator[list[int]]:
    """Sequence numbers by falling length, so that padding is nearly nil; composed from corpus and config alone."""
    order = sorted(range(*part), key=lambda i: (-int(corpus.lengths[i]), i))
    while order:
        longest = int(corpus.lengths[order[0]])
        count = max(1, batch_tokens // longest)
        yield order[:count]
        order = order[count:]


def _tensors(corpus: Corpus, batch: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (batch, length) padded on the right; and per target: its row of the flattened hidden states, its index."""
    length = int(corpus.lengths[batch].max())
    tokens = np.zeros((len(batch), length), dtype=np.int64)
    rows, targets = [], []
    for row, i in enumerate(batch):
        inputs = corpus.inputs(i)
        tokens[row, : len(inputs)] = inputs
        wanted = corpus.targets(i, i + 1)
        targets.append(wanted)
        shift = len(inputs) - int(corpus.stop[i])
        rows.append(row * length + wanted + shift - 1)  # the state before the target predicts it
    return (
        torch.from_numpy(tokens),
        torch.from_numpy(np.concatenate(rows)),
        torch.from_numpy(np.concatenate(targets)),
    )


def _gather(
    paths: list[Path],
    out: Path,
    corpus: Corpus,
    ks: tuple[int, ...],
    seconds: float,
    fresh: int,
    model: CausalModel,
) -> Measurement:
    """Join parts into one file, one row group each, and sum what derives from them; one part in memory at a time."""
    histograms, counts, tied = [], [], 0
    metadata = {b"rbptrack.vocab_size": str(model.vocab_size).encode()}
    unfinished = out.with_name(out.name + ".tmp")
    with pq.ParquetWriter(unfinished, SCHEMA.with_metadata(metadata), compression="zstd") as writer:
        for path in paths:
            part = RankTable.read(path)
            writer.write_table(part.table.replace_schema_metadata(metadata))
            histograms.append(part.histogram())
            counts.append(part.document_counts(ks))
            tied += int(np.count_nonzero(part.column("ties")))
    unfinished.replace(out)
    targets = corpus.targets(0, len(corpus.start))
    return Measurement(
        path=out,
        histogram=reduce(add, histograms),
        counts=reduce(add, counts),
        num_bytes=int(corpus.num_bytes[targets].sum()),
        tied=tied,
        seconds=seconds,
        fresh_tokens=fresh,
        peak_memory_bytes=_peak_memory(model.device),
    )


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
