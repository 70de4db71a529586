"""Proof on one GPU, offline: kernels against float64, speed beside the bare forward pass, memory, drift, the demo's ranks.

    make gpu-proof                        # on the GPU: gpu-proof.json and gpu-proof.md, under 30 minutes
    make gpu-proof DEVICE=cpu             # the same steps with small shapes: what the tests run

Not yet run on a GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbptrack.bench import machine, speed
from rbptrack.bench.shapes import SHAPES, random_corpus, random_model
from rbptrack.config.compose import Composer
from rbptrack.config.schema import EngineConfig, Kernel
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.measure import measure
from rbptrack.models.causal import CausalModel
from rbptrack.models.device import set_precision
from rbptrack.ranks import RankTable
from rbptrack.scoring import cpu, kernels
from rbptrack.scoring.scorer import Head, Scorer
from rbptrack.sweep.resolve import Resolver

_BLOCK = 64  # rows of float64 logits at a time


@dataclass(frozen=True)
class Scale:
    """How much is proved: on a GPU, or small on a CPU."""

    shapes: Sequence[str]
    rows: int
    vocabulary: int
    tokens: int
    rounds: int
    models: Sequence[str]
    datasets: Sequence[str]
    dtypes: Sequence[torch.dtype]


GPU = Scale(
    ("pythia-70m", "pythia-410m", "pythia-1.4b", "llama-3.1-8b"), 4133, 0, 131_072, 3,
    ("nano/6k", "nano/15k", "nano/38k", "nano/115k", "nano/311k", "nano/760k", "nano/2m"), ("stdlib", "pydocs"),
    (torch.float32, torch.bfloat16),
)  # fmt: skip
CPU = Scale(("pythia-14m",), 133, 3000, 300, 1, ("nano/6k",), ("pydocs",), (torch.float32,))


def paths(head: Head, device: torch.device) -> Iterator[tuple[str, Scorer]]:
    """Yield every way to score a head on a device."""
    yield "plain torch", Scorer(head, chunk_tokens=256, kernel=False)
    if kernels.available(device):
        yield "reduce", Scorer(head, chunk_tokens=256, kernel=True, fused=False)
        yield "fused", Scorer(head, chunk_tokens=256, kernel=True, fused=True)
    elif device.type == "cpu" and cpu.available():
        yield "one pass", Scorer(head, chunk_tokens=256, one_pass=True)


@torch.inference_mode()
def against_float64(name: str, head: Head, hidden: Tensor, targets: Tensor) -> Iterator[dict[str, Any]]:
    """Compare every path with float64 logits: ranks that rounding does not explain, and the largest error in nats."""
    tf32 = torch.get_float32_matmul_precision() != "highest"
    for path, scorer in paths(head, hidden.device):
        scores = scorer(hidden, targets)
        got = (scores.greater + scores.ties + 1).cpu()
        moved, unexplained, nats = 0, 0, 0.0
        for low in range(0, len(targets), _BLOCK):
            rows = slice(low, low + _BLOCK)
            logits = hidden[rows].double() @ head.weight.double().T
            own = logits.gather(1, targets[rows, None])
            rank = (logits >= own).sum(1).cpu()
            room = (5e-3 if tf32 else 2e-5) * logits.abs().amax(1, keepdim=True).clamp(min=1)
            near = ((logits - own).abs() <= room).sum(1).cpu() - 1
            places = (got[rows] - rank).abs()
            moved += int((places > 0).sum())
            unexplained += int((places > near).sum())
            exact = torch.log_softmax(logits, 1).gather(1, targets[rows, None])[:, 0]
            nats = max(nats, float((scores.logprob[rows].double() - exact).abs().max()))
        yield {
            "step": "kernels", "what": name, "path": scorer.path if path == "plain torch" else path,
            "rows": len(targets), "moved": moved, "unexplained": unexplained, "nats": nats,
        }  # fmt: skip


def heads(scale: Scale, device: torch.device) -> Iterator[tuple[str, Head, Tensor, Tensor]]:
    """Random heads of published shapes, with hidden states that make targets of all ranks."""
    draw = torch.Generator(device=device).manual_seed(0)
    for shape in scale.shapes:
        vocabulary, width = scale.vocabulary or SHAPES[shape]["vocab_size"], SHAPES[shape]["hidden_size"]
        for dtype in scale.dtypes:
            weight = (torch.randn(vocabulary, width, device=device, generator=draw) * 3 / width**0.5).to(dtype)
            hidden = torch.randn(scale.rows, width, device=device, generator=draw).to(dtype)
            targets = torch.randint(vocabulary, (scale.rows,), device=device, generator=draw)
            yield f"{shape}, |V| = {vocabulary:,}, {str(dtype)[6:]}", Head(weight), hidden, targets


def ranks(model: CausalModel, corpus: Corpus, **options: Any) -> RankTable:
    """Measure; returns the rank table in memory."""
    with TemporaryDirectory() as folder:
        return measure(model, corpus, ks=(1,), engine=EngineConfig(**options), folder=Path(folder)).ranks


def drift(one: RankTable, other: RankTable) -> dict[str, Any]:
    """Compare two measurements of the same tokens."""
    places = np.abs(one.rank - other.rank)
    logprobs = one.column("logprob") - other.column("logprob")
    return {
        "tokens": len(one), "moved": int((places > 0).sum()), "farthest": int(places.max()),
        "nats": float(np.abs(logprobs).max()), "ce": float(one.ce - other.ce),
    }  # fmt: skip


def speeds(scale: Scale, device: torch.device) -> Iterator[dict[str, Any]]:
    """Speed beside the bare forward pass and a large product, peak memory, and drift between two batch sizes."""
    modes = [(dtype, tf32) for dtype in scale.dtypes for tf32 in (False, True) if not tf32 or dtype == torch.float32]
    for shape in scale.shapes:
        for dtype, tf32 in modes if device.type == "cuda" else modes[:1]:
            set_precision(tf32)
            model = random_model(shape, device=device, dtype=dtype, vocabulary=scale.vocabulary)
            corpus = random_corpus(tokens=scale.tokens, seq_len=512, vocab_size=model.vocab_size)
            name = f"{shape}, {'TF32' if tf32 else str(dtype)[6:]}"
            wanted = (Kernel.reduce, Kernel.fused) if kernels.available(device) else (Kernel.auto,)
            for kernel in wanted:
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats(device)
                done = speed.compare(name, model, corpus, engine=EngineConfig(kernel=kernel), rounds=scale.rounds)
                peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
                yield {
                    "step": "speed", "what": name, "path": done.path,
                    "tokens_per_second": done.scored / done.seconds("ours", "wall"),
                    "over_bare": done.ratio("ours", "bare", "wall"), "of_limit": done.ratio("ours", "limit", "wall"),
                    "peak_bytes": peak,
                }  # fmt: skip
            few = corpus.first_tokens(min(scale.tokens, 16_384))
            moved = drift(ranks(model, few, batch_tokens=4096), ranks(model, few, batch_tokens=1024))
            yield {"step": "two batch sizes", "what": name} | moved
            del model
            set_precision(False)


def demo(scale: Scale, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield the demo's sweep on the device against the CPU; and kernels on the embedded models' own states."""
    composer, resolver = Composer("config", []), Resolver()
    for name in scale.models:
        for dataset in scale.datasets:
            cells = [
                resolver.resolve(
                    composer.compose_typed([f"model={name}", f"dataset={dataset}", f"model.device={place}"])
                )
                for place in ("cpu", device.type)
            ]
            corpus = cells[0].load_corpus().first_tokens(scale.tokens)
            tables, model = [], None
            for cell in cells:
                model = cell.load_model()
                tables.append(ranks(model, corpus, batch_tokens=2048))
            yield {"step": "demo", "what": f"{name}, {dataset}"} | drift(*tables)
        assert model is not None
        with torch.inference_mode():
            tokens = torch.from_numpy(corpus.token[: min(len(corpus.token), 16 * 32)]).long().to(device)
            tokens = tokens[: len(tokens) // 32 * 32].view(-1, 32)
            hidden = model.backbone(tokens)[:, :-1].flatten(0, 1)
            yield from against_float64(name, replace(model.head, then=None), hidden, tokens[:, 1:].flatten())


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Run every step; writes FILE.json and FILE.md; returns the rows. Exit code 1 where a rank is unexplained."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, default=Path("gpu-proof"))
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU is available here; make gpu-proof DEVICE=cpu runs the same steps with small shapes")
    scale = GPU if device.type == "cuda" else CPU
    set_precision(False)
    rows = [row for case in heads(scale, device) for row in against_float64(*case)]
    rows += [*speeds(scale, device), *demo(scale, device)]
    here = machine.describe()
    options.out.with_suffix(".json").write_text(json.dumps({"machine": here, "rows": rows}, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(_markdown(here, rows))
    return rows


def _markdown(here: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return a table for each step."""
    lines = [f"Device: {here['gpu'] or here['processor']}; torch {here['torch']}, rbptrack {here['rbptrack']}."]
    for step in dict.fromkeys(row["step"] for row in rows):
        chosen = [{k: v for k, v in row.items() if k != "step"} for row in rows if row["step"] == step]
        lines += ["", f"**{step}**", "", f"| {' | '.join(chosen[0])} |", "|---" * len(chosen[0]) + "|"]
        lines += [f"| {' | '.join(_cell(value) for value in row.values())} |" for row in chosen]
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "" if value is None else str(value)


if __name__ == "__main__":
    raise SystemExit(any(row.get("unexplained") for row in main()))
