"""`python -m rbptrack bench`: how fast measuring is here, beside the bare forward pass and the arithmetic limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput, unknown
from rbptrack.base.files import check_replaceable, write_whole
from rbptrack.bench.shapes import SHAPES
from rbptrack.commands.declared.housekeeping import BENCH, BenchConfig
from rbptrack.config.compose import Composer
from rbptrack.config.patterns import chosen, split_list
from rbptrack.config.schema import Config, ModelConfig
from rbptrack.console.output import say
from rbptrack.console.tables import table
from rbptrack.sweep.resolve import Resolver

if TYPE_CHECKING:
    from rbptrack.bench.speed import Speed
    from rbptrack.corpus.sequences import Corpus
    from rbptrack.models.causal import CausalModel


def _bench(config: BenchConfig) -> int:
    _check(config)
    from rbptrack.bench import machine
    from rbptrack.bench.speed import compare

    names = _names(config)
    here = machine.describe()
    resolver = Resolver()
    load = "" if here["load"] is None else f", load {here['load']:.1f}"
    say(f"{here['processor']}, {here['cores']} cores{load}, torch {here['torch']}, {config.dtype.value}")
    say(f"GPU: {here['gpu'] or 'none'}")
    speeds: list[Speed] = []
    for name in names:
        model, corpus = _subject(name, config, resolver)
        speeds.append(compare(name, model, corpus, engine=config.engine, rounds=config.rounds))
        _show(speeds[-1], gpu=model.device.type == "cuda")
    if config.out:
        options: Any = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
        figures = {"machine": here, "options": options, "speed": [speed.figures() for speed in speeds]}
        write_whole(Path(config.out).resolve(), json.dumps(figures, indent=1) + "\n")
        say(f"written  {config.out}")
    return 0


def _check(config: BenchConfig) -> None:
    for name, least in (("tokens", 1), ("rounds", 1), ("seq_len", 2)):
        if getattr(config, name) < least:
            raise BadInput(f"{name} must be at least {least}; got {getattr(config, name)}")
    if config.out and not Path(config.out).absolute().parent.is_dir():
        raise BadInput(f"out={config.out}: its folder does not exist")
    if config.out:
        check_replaceable(Path(config.out).resolve())


def _names(config: BenchConfig) -> list[str]:
    """Return the requested models: names of configs, which have a slash, and of shapes."""
    names: list[str] = []
    for wanted in split_list(config.model):
        if "/" in wanted:
            names += chosen("model", wanted, Composer("config", []).options("model"))
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
    """Return a model and what it reads: configured, or random weights on random documents."""
    import torch

    from rbptrack.bench.shapes import random_corpus, random_model
    from rbptrack.models.device import place

    if "/" in name:
        options = [f"model.dtype={config.dtype.value}", f"model.tf32={config.tf32}", f"model.device={config.device}"]
        words = [f"model={name}", f"dataset={config.dataset}", *options]
        composed: Config = Composer("config", []).compose_typed(words)
        cell = resolver.resolve(composed)
        return cell.load_model(), cell.load_corpus().first_tokens(config.tokens)
    device, _ = place(ModelConfig(family=name, size="", dtype=config.dtype, tf32=config.tf32, device=config.device))
    dtype = getattr(torch, config.dtype.value)
    model = random_model(name, device=device, dtype=dtype, vocabulary=config.vocabulary)
    return model, random_corpus(tokens=config.tokens, seq_len=config.seq_len, vocab_size=model.vocab_size)


def _show(speed: Speed, *, gpu: bool) -> None:
    clocks = ("wall",) if gpu else ("wall", "processor")  # on a GPU the processor waits
    headers = [""]
    rows = [["bare: model(x).logits"], ["ours: ranks, on disk"]]
    for clock in clocks:
        headers += [f"tok/s ({clock})", "x bare", "of limit"]
        for row, way in zip(rows, ("bare", "ours"), strict=True):
            row.append(f"{speed.scored / speed.seconds(way, clock):,.0f}")
            row += [f"{speed.ratio(way, over, clock):.2f}" for over in ("bare", "limit")]
    title = (
        f"\n{speed.model}: {speed.scored:,} scored tokens, batches of {speed.batch_tokens} tokens, "
        f"{speed.workers} at a time; {len(speed.rounds['ours'])} rounds in turn"
    )
    table(headers, rows, title=title, text_columns=1)
    work = speed.flops / speed.scored / 1e6
    rate = speed.flops / speed.seconds("limit", "wall") / 1e9
    say(f"limit: 2 S + 2 d V = {work:,.1f} MFLOP per token at {rate:,.0f} GFLOP/s, a large matrix product here")
    say(f"scored by {speed.path}")


main = BENCH.running(_bench)
