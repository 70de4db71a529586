"""Bare forward pass, plain full-logits way and ours on the same batches, interleaved in one process."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import torch

from rbptrack.bench import machine
from rbptrack.config.schema import EngineConfig, Kernel
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import Batch, batch_of, compose
from rbptrack.engine.executor import Engine
from rbptrack.engine.measure import measure
from rbptrack.models.causal import CausalModel
from rbptrack.scoring import kernels
from rbptrack.scoring.scorer import Head

_ALWAYS = ("backbone", "brief", "ours", "reduce", "fused")  # the latter two on a GPU
_SAME_CLOCK = 1.03  # the highest over the lowest
_RATE_SIDE = {"cpu": 2048, "cuda": 8192}
_STUB_ROWS = 16  # entries of the head that stands in where only the backbone is to be measured
_CLEAR_REFS = Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Speed:
    """What one model cost on one corpus; medians over rounds.

    Attributes:
        model: its name.
        scored: tokens scored in a round.
        batch_tokens: tokens per batch, the same for every way.
        workers: batches under way at a time, ours.
        chunk_tokens: rows of logits at a time and worker, ours.
        seconds: of a round, by way: bare, plain, ours, brief (ours with engine.columns=false), backbone (ours with a
            head of 16 entries).
        ratios: speed over that of the bare forward pass, median of the rounds' own ratios, by way.
        flops_per_token: (2 S + 2 d V), with S non-embedding parameters, d the width, V the vocabulary.
        rate: floating-point operations per second of a large matrix product here, in the precision used.
        path: what scored ours, in words.
        clocks: MHz of the GPU after each round of each way, lowest and highest; empty on a CPU.
        columns: seconds that entropy, top and top_logprob cost, as a share of those without: of ours over brief, median
            of the rounds.
        share: ours, of the arithmetic limit rate / flops_per_token; median of the rounds' own shares.
        peak_bytes: highest memory use above that before a way began, by way; empty where it cannot be known.
        extra_bytes: ours above backbone: what scoring adds to weights and activations; None where unknown.
        rounds: seconds of every round, by way.

    """

    model: str
    scored: int
    batch_tokens: int
    workers: int
    chunk_tokens: int
    seconds: dict[str, float]
    ratios: dict[str, float]
    flops_per_token: int
    rate: float
    path: str
    clocks: tuple[int, ...]
    columns: float
    share: float
    peak_bytes: dict[str, int]
    extra_bytes: int | None
    rounds: dict[str, list[float]]

    @property
    def comparable(self) -> bool:
        """Whether every way ran at the same clock, as far as is known."""
        return not self.clocks or self.clocks[-1] <= _SAME_CLOCK * self.clocks[0]

    def tokens_per_second(self, way: str) -> float:
        """Scored tokens per second."""
        return self.scored / self.seconds[way]

    def as_json(self) -> dict[str, Any]:
        """Everything, and tokens per second by way."""
        return asdict(self) | {"tokens_per_second": {w: self.tokens_per_second(w) for w in self.seconds}}


def compare(
    name: str, model: CausalModel, corpus: Corpus, *, engine: EngineConfig, rounds: int, ways: tuple[str, ...]
) -> Speed:
    """Time every way once per round, after one round that does not count.

    Args:
        name: shown.
        model: on its device.
        corpus: what every way reads.
        engine: as for a measurement.
        rounds: how many count.
        ways: which of bare, plain and ours; ours always.

    """
    with Engine(model, engine, longest=int(corpus.lengths.max())) as chosen:
        batch_tokens, workers, chunk = chosen.batch_tokens, chosen.workers, chosen.chunk_tokens
        few = corpus.first_tokens(1)
        for _ in chosen.run([batch_of(few, [0])]):
            path = chosen.path
    calls = _calls(model, corpus, replace(engine, batch_tokens=batch_tokens))
    calls = {way: call for way, call in calls.items() if way in (*ways, *_ALWAYS)}
    calls["backbone"]()  # what is allocated once per process is no way's own
    # Backbone and ours first: memory that a way has used is not all given back, and would hide what the next one needs.
    order = sorted(calls, key=(*_ALWAYS, "bare", "plain").index)
    peaks = {way: peak for way in order if (peak := _peak(calls[way], model.device)) is not None}
    times: dict[str, list[float]] = {way: [] for way in calls}
    rates, clocks = [], set[int]()
    for _ in range(rounds):
        for way, call in calls.items():
            times[way].append(_timed(call, model.device))
            clocks |= machine.clock(model.device)
        rates.append(product_rate(model.device, model.head.weight.dtype))
    scored = corpus.num_targets
    flops = 2 * model.non_embedding_params + 2 * model.head.weight.numel()
    work = 2 * model.non_embedding_params * int(corpus.lengths.sum()) + 2 * model.head.weight.numel() * scored
    ratios = {
        way: median(b / t for b, t in zip(times["bare"], times[way], strict=True)) for way in times if "bare" in times
    }
    done = Speed(
        model=name,
        scored=scored,
        batch_tokens=batch_tokens,
        workers=workers,
        chunk_tokens=chunk,
        seconds={way: median(t) for way, t in times.items()},
        ratios=ratios,
        flops_per_token=flops,
        rate=median(rates),
        path=path,
        clocks=(min(clocks), max(clocks)) if clocks else (),
        columns=median(o / b - 1 for o, b in zip(times["ours"], times["brief"], strict=True)),
        share=median(work / rate / t for rate, t in zip(rates, times["ours"], strict=True)),
        peak_bytes=peaks,
        extra_bytes=peaks["ours"] - peaks["backbone"] if peaks else None,
        rounds=times,
    )
    return done if done.comparable else replace(done, ratios={})


def _calls(model: CausalModel, corpus: Corpus, engine: EngineConfig) -> dict[str, Callable[[], None]]:
    """One round of each way, on the same batches; `backbone` is ours with a head of a few entries."""
    parts = corpus.parts(engine.part_tokens)
    batches = [batch_of(corpus, s) for part in parts for s in compose(corpus, range(*part), engine.batch_tokens)]
    stub = replace(model, head=Head(model.head.weight[:_STUB_ROWS]))
    small = replace(corpus, token=corpus.token % _STUB_ROWS)
    both = (Kernel.reduce, Kernel.fused) if kernels.available(model.device) else ()
    return {
        "bare": lambda: bare(model, batches),
        "plain": lambda: plain(model, batches),
        "ours": lambda: ours(model, corpus, engine),
        "brief": lambda: ours(model, corpus, replace(engine, columns=False)),
        "backbone": lambda: ours(stub, small, replace(engine, kernel=Kernel.auto)),
        **{kernel.value: partial(ours, model, corpus, replace(engine, kernel=kernel)) for kernel in both},
    }


@torch.inference_mode()
def bare(model: CausalModel, batches: list[Batch]) -> None:
    """The forward pass alone: full logits, looked at by nobody."""
    for batch in batches:
        model.whole(batch.token_ids.to(model.device))


@torch.inference_mode()
def plain(model: CausalModel, batches: list[Batch]) -> None:
    """What one writes first: full logits, log_softmax, gather, compare."""
    for batch in batches:
        logits = model.whole(batch.token_ids.to(model.device)).flatten(0, 1)  # (sequences * length, vocabulary)
        logits = logits[batch.state_index.to(model.device)].float()
        targets = batch.target_ids.to(model.device)[:, None]
        logprob = torch.log_softmax(logits, 1).gather(1, targets)[:, 0]
        own = logits.gather(1, targets)
        greater, equal = (logits > own).sum(1), (logits == own).sum(1)
        logprob.cpu(), greater.cpu(), equal.cpu()


def ours(model: CausalModel, corpus: Corpus, engine: EngineConfig) -> None:
    """A whole measurement, its rank table on disk included."""
    with TemporaryDirectory() as folder:
        measure(model, corpus, ks=(1, 10), engine=engine, folder=Path(folder))


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large square matrix product, the best of three."""
    if device.type == "cpu":
        dtype = torch.float32  # on a CPU the head is multiplied in float32 whatever the weights
    side = _RATE_SIDE[device.type]
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    times = [_timed(lambda: torch.mm(left, right), device) for _ in range(4)]
    return float(2 * side**3 / min(times[1:]))


def _timed(call: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    began = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(call: Callable[[], object], device: torch.device) -> int | None:
    """Highest memory use during a call above that before it; None where the system does not say."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return int(torch.cuda.max_memory_allocated(device)) - before
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what was freed before; that would hide what a call needs
        _CLEAR_REFS.write_text("5")  # Linux: the peak is now the present use
    except (OSError, AttributeError):
        call()
        return None
    before = int(psutil.Process().memory_info().rss)
    call()
    return _high_water() - before


def _high_water() -> int:
    """The process's peak memory since it was last cleared, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("the system does not tell a process's peak memory")
