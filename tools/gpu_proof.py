"""Check the numbers, the speed and the memory of measurements on a GPU, without network.

    make gpu-proof                 # on the GPU; writes gpu-proof.json; takes some minutes
    make gpu-proof DEVICE=cpu      # runs the steps with small shapes on the CPU, as a test does

The steps compare

- scores with scores from float64 logits,
- the kernel that reads logits once with eager operations,
- the speed of a measurement with the speed of the bare forward pass,
- the time of the fused kernel with that of torch's product and the kernel that reads logits once,
- ranks of small models of all architectures, and of the demo, with ranks from the CPU,
- a measurement in which memory runs out with a measurement in which it does not.

The exit code is 1 if a rank of the first step differs by more than rounding can explain, or any rank of the
second differs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from benchmarks import speed
from benchmarks.shapes import SHAPES, random_corpus, random_module
from rbptrack.config.compose import compose
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Transformers, measure, memory
from rbptrack.models.causal import CausalModel
from rbptrack.models.precision import set_full_precision
from rbptrack.models.splitting import split_model
from rbptrack.ranks import RankTable
from rbptrack.scoring import Head, Scorer, Scores
from rbptrack.scoring.reduction import eager_reduction, rounding_errors
from rbptrack.scoring.scorer import can_fuse, one_pass_reduction
from rbptrack.sweep import resolve
from rbptrack.sweep.load import Loader
from tests.tiny_models import ARCHITECTURES, HEAD_ROWS, random_model

ARCHITECTURE_TOKENS = 4000
CHUNK = 4096  # tokens
BLOCK = 64  # rows of float64 logits that are in memory at once

DTYPES = (torch.float32, torch.bfloat16)  # of the weights

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How much the steps measure.

    Attributes:
        shapes: the names of the shapes of random models.
        vocab_size: the vocabulary size of the random models; 0 for the size of each shape.
        rows: the number of hidden states whose scores are compared with float64.
        tokens: the number of tokens in the shorter corpus for the speed. Models with more than a billion parameters
            get an eighth of them.
        seconds: the time of the bare forward pass on the longer corpus, at least.
        words: the arguments that choose the demo's cells.

    """

    shapes: Sequence[str]
    vocab_size: int
    rows: int
    tokens: int
    seconds: float
    words: Sequence[str]


SCALES = {
    "cuda": Scale(
        shapes=("pythia-70m", "pythia-410m", "pythia-1.4b", "llama-3.1-8b"),
        vocab_size=0,
        rows=4133,
        tokens=65_536,
        seconds=2.0,
        words=("model=nano/*", "dataset=pydocs,stdlib", "dataset.documents=20"),
    ),
    "cpu": Scale(
        shapes=("pythia-14m",),
        vocab_size=3000,
        rows=133,
        tokens=1100,
        seconds=0.02,
        words=("model=nano/6k", "dataset=pydocs", "dataset.documents=2"),
    ),
}


@torch.inference_mode()
def against_float64(scale: Scale, device: str) -> Iterator[Row]:
    """Compare the scores of random hidden states with float64 logits. Random targets have ranks of all magnitudes."""
    generator = torch.Generator(device=device).manual_seed(0)
    for shape, dtype in product(scale.shapes, DTYPES):
        vocab_size = scale.vocab_size or SHAPES[shape]["vocab_size"]
        width = SHAPES[shape]["hidden_size"]
        weight = (torch.randn(vocab_size, width, device=device, generator=generator) * 3 / width**0.5).to(dtype)
        hidden = torch.randn(scale.rows, width, device=device, generator=generator).to(dtype)
        targets = torch.randint(vocab_size, (scale.rows,), device=device, generator=generator)
        scorer = Scorer(Head(weight), chunk_tokens=256)
        scores = scorer(hidden, targets)
        rank = (scores["greater"] + scores["ties"] + 1).long()
        differences = _differences(hidden, weight, targets, rank, scores["logprob"])
        case = f"{shape}, |V| = {vocab_size:,}, {_dtype_name(dtype)}"
        yield {"step": "against float64", "what": case, "rows": scale.rows, **differences, "note": scorer.note}


def _differences(hidden: Tensor, weight: Tensor, targets: Tensor, rank: Tensor, logprob: Tensor) -> dict[str, float]:
    """Count the ranks that differ from those of float64 logits, and find the largest error of ln p in nats.

    Rounding can move a rank by at most the number of other entries whose logits are closer to the target's logit than
    the largest rounding error of float32. `moved` counts the ranks that differ. `unexplained` counts the ranks that
    differ by more than rounding can explain.
    """
    moved = 0
    unexplained = 0
    nats = 0.0
    for low in range(0, len(targets), BLOCK):
        rows = slice(low, low + BLOCK)
        logits = hidden[rows].double() @ weight.double().T
        target_logit = logits.gather(1, targets[rows, None])
        places_moved = (rank[rows] - (logits >= target_logit).sum(1)).abs()
        tolerance = rounding_errors(logits)
        near_entries = ((logits - target_logit).abs() <= tolerance).sum(1) - 1  # without the target
        moved += int((places_moved > 0).sum())
        unexplained += int((places_moved > near_entries).sum())
        exact = torch.log_softmax(logits, 1).gather(1, targets[rows, None])[:, 0]
        nats = max(nats, float((logprob[rows].double() - exact).abs().max()))
    return {"moved": moved, "unexplained": unexplained, "nats": nats}


@torch.inference_mode()
def one_pass_against_eager(scale: Scale, device: str) -> Iterator[Row]:
    """Compare the kernel that reads logits once with the eager operations. No rank may differ.

    On the CPU, the reduction with a buffer is compared with the reduction without one.
    """
    for shape in scale.shapes:
        vocab_size = scale.vocab_size or SHAPES[shape]["vocab_size"]
        logits = 3 * torch.randn(scale.rows, vocab_size, device=device)
        target_logit = logits.gather(1, torch.randint(vocab_size, (scale.rows, 1), device=device))
        eager = eager_reduction(logits, target_logit)
        if device == "cuda":
            fast = one_pass_reduction(logits, target_logit)
        else:
            fast = eager_reduction(logits.clone(), target_logit, torch.empty_like(logits))
        different_ranks = int(((eager["greater"] != fast["greater"]) | (eager["ties"] != fast["ties"])).sum())
        nats = float((eager["logprob"] - fast["logprob"]).abs().max())
        yield {"step": "one pass", "what": shape, "rows": scale.rows, "unexplained": different_ranks, "nats": nats}


@torch.inference_mode()
def heads(scale: Scale, device: str) -> Iterator[Row]:
    """Time each way from the hidden states of a chunk to scores. `used` says which one a measurement takes."""
    if device != "cuda":
        return
    from rbptrack.scoring.kernels import TILES, score_fused

    for shape, dtype in product(scale.shapes, DTYPES):
        vocab_size = SHAPES[shape]["vocab_size"]
        width = SHAPES[shape]["hidden_size"]
        head = Head((torch.randn(vocab_size, width, device=device) * 3 / width**0.5).to(dtype))
        hidden = torch.randn(CHUNK, width, device=device).to(dtype)
        targets = torch.randint(vocab_size, (CHUNK,), device=device)
        scorer = Scorer(head, chunk_tokens=CHUNK)
        ways: dict[str, Callable[[], object]] = {"torch and one pass": partial(_multiply, scorer, hidden, targets)}
        for tile in TILES:
            ways[f"fused, {tile.rows} x {tile.columns}"] = partial(score_fused, head, hidden, targets, tile=tile)
        fused = score_fused(head, hidden, targets)
        plain = _multiply(scorer, hidden, targets)
        yield {
            "step": "heads",
            "what": f"{shape}, {_dtype_name(dtype)}",
            "tokens": CHUNK,
            "milliseconds": {way: _milliseconds(compute) for way, compute in ways.items()},
            "used": "fused" if can_fuse(head) else "torch and one pass",
            "moved": int((fused["greater"] != plain["greater"]).sum()),
            "other_ties": int((fused["ties"] != plain["ties"]).sum()),
        }


def _multiply(scorer: Scorer, hidden: Tensor, targets: Tensor) -> Scores:
    """Score a chunk without the fused kernel."""
    return scorer.reduce(scorer.logits(hidden), targets)


def _milliseconds(compute: Callable[[], object]) -> float:
    """Return the wall time of a computation on the GPU, the median of 20, after 5 that are not timed."""
    times = []
    for _ in range(25):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        compute()
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return float(np.median(times[5:]))


def speeds(scale: Scale, device: str) -> Iterator[Row]:
    """Measure the speed for documents of 16 to 512 tokens and of equal length, and the peak memory.

    The bare forward pass takes at least `scale.seconds`. Two corpora, of which one is longer, tell the fixed cost of a
    measurement from the cost of a token. The cost of the first measurement of a process, such as compiling, is a
    further row.
    """
    config = EngineConfig(batch_tokens=speed.BATCH_TOKENS[device])
    for shape, dtype in product(scale.shapes, DTYPES):
        model = split_model(random_module(shape, device=device, dtype=dtype, vocab_size=scale.vocab_size), shape)
        tokens = scale.tokens // 8 if model.largest_params > 10**9 else scale.tokens
        for shortest in (16, 512):
            short = random_corpus(tokens, vocab_size=model.vocab_size, shortest=shortest)
            first = speed.time_call(partial(speed.run_measurement, model, short, config), model.device)
            bare_pass = partial(speed.compute_logits, model, speed.make_batches(short, config.batch_tokens))
            bare_pass()
            factor = max(2, math.ceil(scale.seconds / speed.time_call(bare_pass, model.device).wall))
            long = random_corpus(factor * tokens, vocab_size=model.vocab_size, shortest=shortest)
            methods = {
                "bare": partial(speed.compute_logits, model, speed.make_batches(long, config.batch_tokens)),
                "rbptrack": partial(speed.run_measurement, model, long, config),
                "short": partial(speed.run_measurement, model, short, config),
            }
            seconds = speed.time_methods(methods, model.device, rounds=3)
            wall = {name: float(np.median([measured.wall for measured in seconds[name]])) for name in methods}
            per_token = (wall["rbptrack"] - wall["short"]) / (long.num_targets - short.num_targets)
            yield {
                "step": "speed",
                "what": f"{shape}, {_dtype_name(dtype)}, documents of {shortest} to 512 tokens",
                "tokens": long.num_targets,
                "bare_seconds": wall["bare"],
                "tokens_per_second": long.num_targets / wall["rbptrack"],
                "over_bare": speed.speed_over_bare(seconds, "rbptrack"),
                "microseconds_per_token": 1e6 * per_token,
                "fixed_seconds": wall["short"] - per_token * short.num_targets,
                "first_seconds": first.wall - wall["short"],
                "peak_bytes": _measure(model, long)[1],
            }


@torch.inference_mode()
def architectures(scale: Scale, device: str) -> Iterator[Row]:
    """Compare ranks from the device with ranks from the CPU, for small random models of every architecture."""
    corpus = random_corpus(ARCHITECTURE_TOKENS, vocab_size=HEAD_ROWS, seq_len=128)
    for name, dtype in product(ARCHITECTURES, DTYPES):
        tables = []
        for place in ("cpu", device):
            torch.manual_seed(0)
            module = random_model(name).to(dtype).to(place)
            tables.append(_measure(split_model(module, name), corpus)[0])
        yield {"step": "architectures", "what": f"{name}, {_dtype_name(dtype)}", **_table_differences(*tables)}


def little_memory(scale: Scale, device: str) -> Iterator[Row]:
    """Compare a measurement in which the memory of the GPU runs out with one in which it does not."""
    if device != "cuda":
        return
    shape = scale.shapes[0]
    corpus = random_corpus(scale.tokens // 4, vocab_size=SHAPES[shape]["vocab_size"])
    model = split_model(random_module(shape, device=device), shape)
    expected = _measure(model, corpus)[0]
    torch.cuda.empty_cache()
    ballast = torch.empty(torch.cuda.mem_get_info()[0] - 2 * 10**9, dtype=torch.uint8, device=device)
    with TemporaryDirectory() as folder, patch.object(memory, "free_memory", lambda device: 70 * 10**9):
        measurement = measure(Transformers(model, corpus, EngineConfig()), corpus, ks=(1,), folder=Path(folder))
        notes = [note for note in measurement.notes if note.startswith("out of memory")]
        yield {
            "step": "little memory",
            "what": shape,
            "times": len(notes),
            **_table_differences(expected, measurement.ranks),
        }
    del ballast


def _table_differences(expected: RankTable, table: RankTable) -> dict[str, float]:
    places_moved = np.abs(expected.rank - table.rank)
    return {
        "tokens": len(expected),
        "moved": int((places_moved > 0).sum()),
        "farthest": int(places_moved.max()),
        "nats": float(np.abs(expected.column("logprob") - table.column("logprob")).max()),
        "ce": float(table.ce - expected.ce),
    }


def demo(scale: Scale, device: str) -> Iterator[Row]:
    """Compare the ranks of the demo's cells on the device with those on the CPU."""
    for config in compose(scale.words):
        tables = []
        for place in ("cpu", device):
            config.model.device = place
            tables.append(_measure(*Loader().load(resolve(config)))[0])
        yield {"step": "demo", "what": f"{config.model.name} / {config.dataset.name}", **_table_differences(*tables)}


def _measure(model: CausalModel, corpus: Corpus) -> tuple[RankTable, float]:
    """Measure a model on a corpus. Returns the ranks, in memory, and the peak memory in bytes."""
    with TemporaryDirectory() as folder:
        measurement = measure(Transformers(model, corpus, EngineConfig()), corpus, ks=(1,), folder=Path(folder))
        return measurement.ranks, measurement.engine_results["peak_memory_bytes"]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_ALL = (against_float64, one_pass_against_eager, heads, speeds, architectures, little_memory, demo)
STEPS = {step.__name__: step for step in _ALL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and write their rows as JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=list(SCALES))
    parser.add_argument("--out", type=Path, default=Path("gpu-proof.json"))
    parser.add_argument(
        "--steps",
        default=",".join(STEPS),
        help="steps to run, separated by commas; all by default: " + ", ".join(STEPS),
    )
    options = parser.parse_args(arguments)
    steps = [STEPS[name] for name in options.steps.split(",")]
    device: str = options.device
    if device == "cuda" and not torch.cuda.is_available():
        print(
            "This machine has no GPU. `make gpu-proof DEVICE=cpu` runs the steps with small shapes on the CPU.",
            file=sys.stderr,
        )
        return 2
    set_full_precision()
    rows: list[Row] = []
    for step in steps:
        for row in step(SCALES[device], device):
            print(json.dumps(row), flush=True)
            rows.append(row)
    device_name = torch.cuda.get_device_name() if device == "cuda" else speed.describe_machine()
    options.out.write_text(
        json.dumps({"device": device_name, "torch": torch.__version__, "rows": rows}, indent=1) + "\n"
    )
    return 1 if any(row.get("unexplained") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
