"""Time the bare forward pass, a measurement and a large matrix product in turn, in one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import Batch, batch_of, compose
from rbptrack.engine.executor import Engine
from rbptrack.engine.measure import measure
from rbptrack.models.causal import CausalModel

_RATE_SIDE = {"cpu": 2048, "cuda": 8192}
CLOCKS = ("wall", "processor")


@dataclass(frozen=True)
class Seconds:
    """What a call took: by the wall clock, and of the processor in all threads of this process."""

    wall: float
    processor: float

    def times(self, factor: float) -> Seconds:
        """Return both, multiplied."""
        return Seconds(factor * self.wall, factor * self.processor)


@dataclass(frozen=True)
class Speed:
    """What one model cost on one corpus.

    Attributes:
        model: its name.
        scored: tokens scored in a round.
        batch_tokens: tokens per batch, the same for both ways.
        workers: batches under way at a time, of the measurement.
        path: what scored them, in words.
        flops: of a round: 2 S for each token read, 2 d V for each token scored, with S non-embedding parameters, d the
            width, V the vocabulary.
        rounds: the seconds of every round: bare (the forward pass), ours (a measurement), limit (`flops` at the rate
            of a large matrix product in that round).

    """

    model: str
    scored: int
    batch_tokens: int
    workers: int
    path: str
    flops: float
    rounds: dict[str, list[Seconds]]

    def seconds(self, way: str, clock: str) -> float:
        """Return median seconds of a round, by one of `CLOCKS`."""
        return float(median(getattr(seconds, clock) for seconds in self.rounds[way]))

    def ratio(self, way: str, over: str, clock: str) -> float:
        """Return speed of one way over that of another: the median of the rounds' own ratios."""
        pairs = zip(self.rounds[over], self.rounds[way], strict=True)
        return float(median(getattr(slow, clock) / getattr(fast, clock) for slow, fast in pairs))

    def figures(self) -> dict[str, Any]:
        """Return everything for a JSON file."""
        ratios = {clock: {over: self.ratio("ours", over, clock) for over in ("bare", "limit")} for clock in CLOCKS}
        seconds = {way: {clock: self.seconds(way, clock) for clock in CLOCKS} for way in self.rounds}
        rounds = {way: [vars(each_round) for each_round in rounds] for way, rounds in self.rounds.items()}
        return vars(self) | {"rounds": rounds, "seconds": seconds, "ours_over": ratios}


def compare(name: str, model: CausalModel, corpus: Corpus, *, engine: EngineConfig, rounds: int) -> Speed:
    """Return time both ways and a product in each round, after one round that does not count.

    The order alternates, so that what slows the machine for a while slows both. Both ways have `engine.threads`.

    Args:
        name: shown.
        model: on its device.
        corpus: what both read.
        engine: as for a measurement.
        rounds: how many count.

    """
    threads = torch.get_num_threads()
    torch.set_num_threads(engine.threads or threads)
    try:
        return _compared(name, model, corpus, engine, rounds)
    finally:
        torch.set_num_threads(threads)


def _compared(name: str, model: CausalModel, corpus: Corpus, engine: EngineConfig, rounds: int) -> Speed:
    with Engine(model, engine, longest=int(corpus.lengths.max()), targets=corpus.num_targets) as chosen:
        batch_tokens = chosen.batch_tokens
        workers = chosen.workers
        for _ in chosen.run([batch_of(corpus.first_tokens(1), [0])]):
            path = chosen.path
    engine = replace(engine, batch_tokens=batch_tokens)
    parts = corpus.parts(engine.part_tokens)
    batches = [batch_of(corpus, s) for part in parts for s in compose(corpus, range(*part), batch_tokens)]
    scored = corpus.num_targets
    head_size = model.head.weight.numel()
    flops = 2.0 * (model.non_embedding_params * int(corpus.lengths.sum()) + head_size * scored)
    calls: dict[str, Callable[[], None]] = {
        "bare": lambda: bare(model, batches),
        "ours": lambda: ours(model, corpus, engine),
    }
    for call in calls.values():
        call()
    seconds: dict[str, list[Seconds]] = {"bare": [], "ours": [], "limit": []}
    for number in range(rounds):
        for way in sorted(calls, reverse=bool(number % 2)):
            seconds[way].append(_timed(calls[way], model.device))
        product, operations = _product(model.device, model.head.weight.dtype)
        seconds["limit"].append(product.times(flops / operations))
    return Speed(name, scored, batch_tokens, workers, path, flops, seconds)


@torch.inference_mode()
def bare(model: CausalModel, batches: list[Batch]) -> None:
    """Run the forward pass alone: full logits, which nothing reads."""
    for batch in batches:
        model.whole(batch.token_ids.to(model.device))


def ours(model: CausalModel, corpus: Corpus, engine: EngineConfig) -> None:
    """Run a whole measurement, its rank table on disk included."""
    with TemporaryDirectory() as folder:
        measure(model, corpus, ks=(1, 10), engine=engine, folder=Path(folder))


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return operations per second of a large square matrix product, the best of three."""
    seconds, operations = _product(device, dtype)
    return operations / seconds.wall


def _product(device: torch.device, dtype: torch.dtype) -> tuple[Seconds, float]:
    """Return the seconds of a large square matrix product, the best of three, and its operations."""
    if device.type == "cpu":
        dtype = torch.float32  # on a CPU the head is multiplied in float32 whatever the weights
    side = _RATE_SIDE[device.type]
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    tries = [_timed(lambda: torch.mm(left, right), device) for _ in range(4)][1:]
    best = Seconds(min(t.wall for t in tries), min(t.processor for t in tries))
    return best, 2.0 * side**3


def _timed(call: Callable[[], object], device: torch.device) -> Seconds:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    wall = time.perf_counter()
    processor = time.process_time()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)
