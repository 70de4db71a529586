"""`python -m rbptrack bench`: what measuring costs on this machine; `bench precision`: what precision changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput, unknown
from rbptrack.base.files import check_replaceable, write_whole
from rbptrack.bench.shapes import SHAPES
from rbptrack.bench.subjects import configured, load, make
from rbptrack.commands.options import OptionsCommand
from rbptrack.config.patterns import split_list
from rbptrack.config.schema import Dtype, EngineConfig, ModelConfig
from rbptrack.console.output import say
from rbptrack.console.tables import table
from rbptrack.sweep.devices import precision, sheet_of
from rbptrack.sweep.resolve import Resolver

if TYPE_CHECKING:
    from rbptrack.bench.precision import Row
    from rbptrack.bench.speed import Speed
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel

WAYS = ("bare", "plain", "ours")


@dataclass
class BenchConfig:
    """Options of the command."""

    model: str = "pythia-14m,pythia-70m"
    dataset: str = ""
    tokens: int = 16384
    seq_len: int = 512
    vocabulary: int = 0
    rounds: int = 3
    ways: str = ",".join(WAYS)
    dtype: Dtype = Dtype.float32
    tf32: bool = False
    device: str = "auto"
    engine: EngineConfig = field(default_factory=EngineConfig)
    out: str = ""


@dataclass
class PrecisionConfig:
    """Options of `bench precision`."""

    model: str = "nano/*"
    dataset: str = "stdlib"
    tokens: int = 16384
    out: str = ""


def main(arguments: Sequence[str]) -> int:
    """Run a bench; returns exit code 0; raises BadInput for exit code 2."""
    if list(arguments[:1]) == ["precision"]:
        return OptionsCommand("bench", PrecisionConfig, _precision)(arguments[1:])
    return OptionsCommand("bench", BenchConfig, _speed)(arguments)


def _check(config: BenchConfig | PrecisionConfig) -> None:
    for name in ("tokens", "rounds"):
        if getattr(config, name, 1) < 1:
            raise BadInput(f"{name} must be at least 1; got {getattr(config, name)}")
    if config.out and not Path(config.out).absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: its folder does not exist")
    if config.out:
        check_replaceable(Path(config.out).resolve())


def _speed(config: BenchConfig) -> int:
    from rbptrack.bench import machine
    from rbptrack.bench.keeping import TOKENS, keeping
    from rbptrack.bench.speed import compare

    _check(config)
    ways = tuple(split_list(config.ways))
    wrong = set(ways) - set(WAYS)
    if wrong:
        raise BadInput(f"no way is called {', '.join(sorted(wrong))}. Options: {', '.join(WAYS)}")
    if config.seq_len < 2:
        raise BadInput(f"seq_len must be at least 2; got {config.seq_len}")
    names = _names(config)
    here, resolver = machine.describe(), Resolver()
    say(f"{here['processor']}, {here['cores']} cores, torch {here['torch']}, {config.dtype.value}")
    say(f"GPU: {here['gpu'] or 'none here: nothing was run on one'}")
    done: list[Speed] = []
    for name in names:
        model, corpus = _subject(name, config, resolver)
        speed = compare(name, model, corpus, engine=config.engine, rounds=config.rounds, ways=ways)
        done.append(speed)
        _show(speed)
        _show_gpu(speed, config, here["gpu"])
    kept = keeping(Path.cwd())
    say(
        f"\nkeeping a measurement of {TOKENS:,} tokens: {kept.syncs} files and folders synced in "
        f"{1000 * kept.seconds:.0f} ms on this folder's disk, of {1000 * kept.whole:,.0f} ms with MLflow's work"
    )
    figures = {
        "machine": here,
        "options": _plain(config),
        "speed": [s.as_json() for s in done],
        "keeping": asdict(kept),
    }
    _write(config.out, figures)
    return 0


def _names(config: BenchConfig) -> list[str]:
    """The models asked for: names of configs, which have a slash, and of shapes."""
    names: list[str] = []
    for wanted in split_list(config.model):
        if "/" in wanted:
            names += configured("model", wanted)
            if not config.dataset:
                raise BadInput(
                    f"model={wanted} is a configured model: give dataset=... too, for example dataset=stdlib"
                )
        elif wanted in SHAPES:
            names.append(wanted)
        else:
            raise unknown("shape", wanted, SHAPES)
    return names


def _subject(name: str, config: BenchConfig, resolver: Resolver) -> tuple[CausalModel, Corpus]:
    """A model and what it reads: configured, or random."""
    if "/" in name:
        overrides = (f"model.dtype={config.dtype.value}", f"model.tf32={config.tf32}", f"model.device={config.device}")
        return load(resolver, name, config.dataset, tokens=config.tokens, overrides=overrides)
    settings = ModelConfig(family=name, size="", dtype=config.dtype, tf32=config.tf32, device=config.device)
    return make(settings, tokens=config.tokens, seq_len=config.seq_len, vocabulary=config.vocabulary)


def _show(speed: Speed) -> None:
    rows = []
    for way in _SHOWN:
        if way in speed.seconds:
            ratio = f"{speed.ratios[way]:.2f}" if way in speed.ratios else ""
            peak = f"{speed.peak_bytes[way] / 1e6:,.0f} MB" if way in speed.peak_bytes else ""
            share = f"{speed.share:.2f}" if way == "ours" else ""
            rows.append([_SHOWN[way], f"{speed.tokens_per_second(way):,.0f}", ratio, share, peak])
    title = (
        f"\n{speed.model}: {speed.scored:,} scored tokens, batches of {speed.batch_tokens} tokens, "
        f"{speed.workers} at a time; {len(speed.rounds['ours'])} rounds"
    )
    table(["", "tok/s", "x bare", "of limit", "peak"], rows, title=title, text_columns=1)
    work, rate = speed.flops_per_token / 1e6, speed.rate / 1e9
    say(f"limit: 2 S + 2 d V = {work:,.1f} MFLOP per token at {rate:,.0f} GFLOP/s, a large matrix product here")
    say(f"entropy, top and top_logprob: {speed.columns:+.1%} of the time without them")
    if speed.extra_bytes is not None:
        say(f"scoring adds {speed.extra_bytes / 1e6:,.0f} MB to what weights and backbone take")


def _show_gpu(speed: Speed, config: BenchConfig, gpu: str) -> None:
    """Which path ran, its share of the peak, and the faster kernel; what was not run on a GPU is said to be."""
    say(f"scored by {speed.path}")
    if not speed.comparable:
        low, high = speed.clocks
        say(
            f"the GPU's clock went from {low} to {high} MHz: speeds are not compared. Lock it (nvidia-smi "
            "--lock-gpu-clocks) and run again"
        )
        return
    kernels = {way: speed.seconds[way] for way in ("reduce", "fused") if way in speed.seconds}
    if not kernels:
        say("engine.kernel: not chosen, since no kernel runs here")
        return
    best, other = sorted(kernels, key=kernels.__getitem__)
    say(f"engine.kernel={best} is the faster here: {kernels[other] / kernels[best] - 1:.1%} more tokens/s than {other}")
    if sheet := sheet_of([gpu]):
        kind = precision(ModelConfig("", "", dtype=config.dtype, tf32=config.tf32))
        reached = speed.flops_per_token * speed.tokens_per_second("ours") / sheet.rates[kind]
        say(f"{reached:.1%} of the peak of {sheet.name} in {kind} by its data sheet, at {speed.clocks or '?'} MHz")


_SHOWN = {
    "bare": "bare: model(x).logits",
    "plain": "plain: log_softmax, compare",
    "ours": "ours: ranks, ties, log-probabilities, on disk",
    "brief": "ours, engine.columns=false",
    "reduce": "ours, engine.kernel=reduce",
    "fused": "ours, engine.kernel=fused",
    "backbone": "ours without the head",
}


def _precision(config: PrecisionConfig) -> int:
    from rbptrack.bench import machine
    from rbptrack.bench.precision import VARIANTS, compare

    _check(config)
    rows: list[Row] = []
    resolver = Resolver()
    names = [name for wanted in split_list(config.model) for name in configured("model", wanted)]
    for name in names:
        for dataset in split_list(config.dataset):
            loaded = {
                dtype: load(resolver, name, dataset, tokens=config.tokens, overrides=(f"model.dtype={dtype.value}",))
                for dtype in Dtype
            }
            models = {dtype: model for dtype, (model, _) in loaded.items()}
            compared = compare(name, dataset, models, loaded[Dtype.float32][1])
            rows += compared
            _show_precision(name, dataset, compared)
    for variant, text in VARIANTS.items():
        say(f"{variant}: {text}")
    found_rows = [asdict(row) for row in rows]
    _write(config.out, {"machine": machine.describe(), "options": _plain(config), "precision": found_rows})
    return 0


def _show_precision(name: str, dataset: str, rows: list[Row]) -> None:
    shown = [
        [
            r.variant,
            f"{r.tie_rate:.3%}",
            f"{r.moved:.2%}",
            f"{r.largest:,d}",
            f"{r.ce:+.5f}",
            *(f"{r.rbp[k]:+.5f}" for k in r.rbp),
        ]
        for r in rows
    ]
    headers = ["", "ties", "moved", "farthest", "CE", *(f"RBP_{k}" for k in rows[0].rbp)]
    title = f"\n{name} / {dataset}: {rows[0].num_tokens:,} tokens; differences from float32"
    table(headers, shown, title=title, text_columns=1)


def _plain(config: BenchConfig | PrecisionConfig) -> Any:
    return OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)


def _write(out: str, figures: dict[str, Any]) -> None:
    if out:
        write_whole(Path(out).resolve(), json.dumps(figures, indent=1) + "\n")
        say(f"written  {out}")
