"""`python -m rbptrack bench`: what measuring costs on this machine; `bench precision`: what precision changes."""

from __future__ import annotations

import json
import os
import platform
import textwrap
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rbptrack.config.compose import Composer
from rbptrack.config.patterns import match, split_list
from rbptrack.config.schema import Config, Dtype, EngineConfig, ModelConfig
from rbptrack.console import WIDTH, say, table
from rbptrack.errors import BadInput, unknown
from rbptrack.version import __version__

if TYPE_CHECKING:
    from rbptrack.bench.precision import Row
    from rbptrack.bench.speed import Speed
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.loading import CausalModel

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


USAGE = """python -m rbptrack bench [model=pythia-14m,pythia-70m] [tokens=16384] [seq_len=512] [rounds=3]
                         [out=FILE.json] [ways=bare,plain,ours] [dtype=float32] [tf32=false] [device=auto]
                         [vocabulary=0] [engine.threads=0] [engine.batch_tokens=0]
                         [engine.chunk_tokens=0]
python -m rbptrack bench model=nano/2m dataset=stdlib        configured models on a configured dataset
python -m rbptrack bench precision [model=nano/*] [dataset=stdlib] [tokens=16384] [out=FILE.json]

Times, in one process and in turn, the bare forward pass (model(x).logits), the plain way (full
logits, log_softmax, compare) and ours, on the same batches: medians over rounds, after one that does
not count. A name with a slash is a model config and needs a dataset; any other is a published shape
with random weights, on random documents of 16 to seq_len tokens, without a network:
{shapes}.

precision: how far ranks, RBP_k, CE and ties move for half-precision weights, bfloat16 logits, TF32."""


def main(arguments: list[str]) -> int:
    """Run a bench; returns the exit code."""
    if any(a in ("-h", "--help") for a in arguments):
        from rbptrack.bench.shapes import SHAPES

        say(USAGE.format(shapes=textwrap.fill(", ".join(SHAPES), WIDTH)))
        return 0
    if arguments[:1] == ["precision"]:
        _precision(_typed(PrecisionConfig, arguments[1:]))
    else:
        _speed(_typed(BenchConfig, arguments))
    return 0


def _typed(schema: type[Any], arguments: list[str]) -> Any:
    try:
        found = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.from_dotlist(arguments))
        config: Any = OmegaConf.to_object(found)
    except OmegaConfBaseException as error:
        raise BadInput(f"{str(error).splitlines()[0]}\n{USAGE.splitlines()[0]}") from error
    for name in ("tokens", "rounds"):
        if getattr(config, name, 1) < 1:
            raise BadInput(f"{name} must be at least 1; got {getattr(config, name)}")
    if config.out and not Path(config.out).absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: its folder does not exist")
    return config


def _speed(config: BenchConfig) -> None:
    from rbptrack.bench.speed import compare

    ways = tuple(split_list(config.ways))
    wrong = set(ways) - set(WAYS)
    if wrong:
        raise BadInput(f"no way is called {', '.join(sorted(wrong))}. Options: {', '.join(WAYS)}")
    if config.seq_len < 2:
        raise BadInput(f"seq_len must be at least 2; got {config.seq_len}")
    names = _names(config)
    machine = _machine()
    say(f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}, {config.dtype.value}")
    say(f"GPU: {machine['gpu'] or 'none here: nothing was run on one'}")
    done: list[Speed] = []
    for name in names:
        model, corpus = _subject(name, config)
        speed = compare(name, model, corpus, engine=config.engine, rounds=config.rounds, ways=ways)
        done.append(speed)
        _show(speed)
    _write(config.out, {"machine": machine, "options": _plain(config), "speed": [s.as_json() for s in done]})


def _names(config: BenchConfig) -> list[str]:
    from rbptrack.bench.shapes import SHAPES

    names: list[str] = []
    for wanted in split_list(config.model):
        if "/" in wanted:
            names += _configured("model", wanted)
            if not config.dataset:
                raise BadInput(
                    f"model={wanted} is a configured model: give dataset=... too, for example dataset=stdlib"
                )
        elif wanted in SHAPES:
            names.append(wanted)
        else:
            raise unknown("shape", wanted, SHAPES)
    return names


def _configured(group: str, pattern: str) -> list[str]:
    options = Composer("config", []).options(group)
    found = match(pattern, options)
    if not found:
        raise BadInput(f"no {group} matches {pattern}. Options: {', '.join(options)}")
    return found


def _subject(name: str, config: BenchConfig) -> tuple[CausalModel, Corpus]:
    """A model and what it reads: configured, or random."""
    import torch

    from rbptrack.bench.shapes import random_corpus, random_model
    from rbptrack.models.device import place

    if "/" in name:
        return _loaded(name, config.dataset, config.tokens, dtype=config.dtype, tf32=config.tf32, device=config.device)
    settings = ModelConfig(family=name, size="", dtype=config.dtype, tf32=config.tf32, device=config.device)
    device, _ = place(settings)
    dtype = getattr(torch, config.dtype.value)
    model = random_model(name, device=device, dtype=dtype, vocabulary=config.vocabulary)
    corpus = random_corpus(tokens=config.tokens, seq_len=config.seq_len, vocab_size=model.vocab_size)
    return model, corpus


def _loaded(
    name: str, dataset: str, tokens: int, *, dtype: Dtype = Dtype.float32, tf32: bool = False, device: str = "auto"
) -> tuple[CausalModel, Corpus]:
    """A configured model, and the first tokens of a configured dataset."""
    from rbptrack.models.loading import load_model
    from rbptrack.sweep import cell

    composed: Config = Composer("config", []).compose_typed([f"model={name}", f"dataset={dataset}"])
    settings = replace(composed.model, dtype=dtype, tf32=tf32, device=device)
    model_source, dataset_source = cell.sources(composed)
    corpus = cell.prepare(composed, model_source, dataset_source).corpus
    return load_model(settings, model_source), corpus.first_tokens(tokens)


def _show(speed: Speed) -> None:
    rows = []
    for way in (*WAYS, "backbone"):
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
    if speed.extra_bytes is not None:
        say(f"scoring adds {speed.extra_bytes / 1e6:,.0f} MB to what weights and backbone take")


_SHOWN = {
    "bare": "bare: model(x).logits",
    "plain": "plain: log_softmax, compare",
    "ours": "ours: ranks, ties, log-probabilities, on disk",
    "backbone": "ours without the head",
}


def _precision(config: PrecisionConfig) -> None:
    from rbptrack.bench.precision import VARIANTS, compare

    rows: list[Row] = []
    names = [name for wanted in split_list(config.model) for name in _configured("model", wanted)]
    for name in names:
        for dataset in split_list(config.dataset):
            load = {dtype: _loaded(name, dataset, config.tokens, dtype=dtype) for dtype in Dtype}
            models = {dtype: model for dtype, (model, _) in load.items()}
            found = compare(name, dataset, models, load[Dtype.float32][1])
            rows += found
            _show_precision(name, dataset, found)
    for variant, text in VARIANTS.items():
        say(f"{variant}: {text}")
    machine = _machine()
    _write(config.out, {"machine": machine, "options": _plain(config), "precision": [asdict(r) for r in rows]})


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


def _machine() -> dict[str, Any]:
    import torch

    cuda = torch.cuda.is_available()
    return {
        "rbptrack": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gpu": torch.cuda.get_device_name() if cuda else "",
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _plain(config: BenchConfig | PrecisionConfig) -> Any:
    return OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)


def _write(out: str, found: dict[str, Any]) -> None:
    if out:
        Path(out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        say(f"written  {out}")
