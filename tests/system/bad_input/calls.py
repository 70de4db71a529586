"""Calls of the Python API (measure, log, runs, analyze, laws) with an argument of a wrong type or value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import rbptrack
from rbptrack.config.paths import embedded

MODEL: Any = AutoModelForCausalLM.from_pretrained(embedded("models/6k"), dtype=torch.float32)
TOKENIZER: Any = AutoTokenizer.from_pretrained(embedded("tokenizer"))
TEXTS = ["import os\ndef walk(path):\n    return os.listdir(path)\n" * 3, "The function returns a list of names. " * 5]
LONG = "a" * 300
MEASURE: dict[str, list[Any]] = {
    "dataset": ["", " ", 3, None, "a\nb", LONG, b"x", ["x"], "\ud800", "\x00", "\u202eb"],
    "family": ["a\nb", LONG, 3, ["a"], b"x", "\t", "\x1b[31m"],
    "size": ["\t", "a\nb", LONG, 3, 1.5, b"1m"],
    "seq_len": [0, 1, -5, "64", 64.0, 64.5, True, math.nan, math.inf, [64], 10**9, 513, np.float64(64)],
    "context": [0, -1, 8.5, "8", None, True, 64, 10**9, math.nan, [8]],
    "sequence": ["", "slid", ["slide"], 3, None, b"slide"],
    "revision": ["", "a\nb", LONG, 3, None, "\ud800"],
    "k": [0, -1, 1.5, "10", b"1", [], [0], [1, -1], [1.5], ["1"], None, True, math.nan, [None], [[1]]],
    "batch_tokens": [-5, 1.5, "64", None, math.nan, True, [64]],
    "texts": [
        *("one text", b"x", 3, None, [], [""], [1], ["a", None], ["\ud83d"], {}, [b"x"], [["a"]], object(), ["a"]),
        *(np.array([1, 2]), iter([1]), [TEXTS[0], math.nan], [" "], (x for x in [None])),
    ],
    "model": [None, "gpt2", 3, torch.nn.Linear(2, 2), object(), transformers.GPT2Config(), {}],
    "tokenizer": [None, "gpt2", 3, object(), {}, len],
}
RUNS: dict[str, list[Any]] = {
    "where": ["(", "nothing > 3", "ce = 3", "@x", "__import__('os')", "3", "ce", 3, ["ce > 3"], b"ce > 3", "ce > 99"],
    "family": ["nothing", 3, [3], [None], b"x", {"a": 1}],
    "size": ["nothing", 6, [6.0]],
    "model": ["nothing", 3, "[x"],
    "dataset": ["nothing", 3, "\x00"],
    "sweep": ["nothing", 3, [None]],
    "tracking_uri": [
        *("nothing://x", "sqlite:////proc/x.db", "http://127.0.0.1:9", 3, "http://me:hunter2@host", "/dev/zero", "\x00")
    ],
    "experiment": ["nothing", 3, "a\nb", LONG],
}
POWER_LAW: dict[str, list[Any]] = {
    "nothing": [1],
    "k": ["x", [0], [1.5], None, [[1]], -1],
    "margin": [-1, math.nan, "x"],
    "form": ["a*", 3, "S", "a+b+c+d+e+f", "__import__('os')"],
    "at": ["x", -1, math.nan],
    "unit": [3, "x"],
}


def measure(**arguments: Any) -> Any:
    """Measure nano/6k on two texts. `arguments` replace valid arguments of `rbptrack.measure`."""
    valid = {"model": MODEL, "tokenizer": TOKENIZER, "texts": TEXTS, "seq_len": 64, "progress": False}
    return rbptrack.measure(**{**valid, **arguments})


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each call and a function that makes it. rbptrack must refuse all of the calls."""
    for name, values in MEASURE.items():
        for value in values:
            yield f"measure({name}={value!r:.40})", lambda n=name, v=value: measure(**{n: v}).log()
    for name, values in {key: RUNS[key] for key in ("tracking_uri", "experiment")}.items():
        for value in values:
            if value not in ("nothing", None, ""):
                yield f"log({name}={value!r:.40})", lambda n=name, v=value: measure().log(**{n: v})
    for value in ("a\nb", LONG, 3, None):
        yield f"log(sweep={value!r:.40})", lambda v=value: measure().log(sweep=v)
    for name, values in RUNS.items():
        for value in values:
            yield f"runs({name}={value!r:.40})", lambda n=name, v=value: rbptrack.runs(**{n: v})
    for name, values in POWER_LAW.items():
        for value in values:
            options = {name: value}
            yield f"power_law({options})", lambda o=options: rbptrack.runs().analyze("power_law", **o)
    for analyzer in ("nothing", "", 3, None):
        yield f"runs().analyze({analyzer!r})", lambda a=analyzer: rbptrack.runs().analyze(a)
    runs: object
    for runs in (None, 3, "runs", []):
        yield f"report({runs!r})", lambda r=runs: rbptrack.report(r)
    for key in ("nothing", "", "nano-6k/"):
        yield f"runs()[{key!r}]", lambda k=key: rbptrack.runs()[k]
        yield f"runs().ranks({key!r})", lambda k=key: rbptrack.runs().ranks(k)
    for ks in ([0], ["x"], None, [1.5]):
        yield f"laws(runs(), {ks!r})", lambda k=ks: rbptrack.laws(rbptrack.runs(), k)
        yield f"runs().document_counts({ks!r})", lambda k=ks: rbptrack.runs().document_counts("nano-6k", k)
    yield "measure(a NaN in the weights)", with_a_nan
    yield "measure(a larger tokenizer)", with_a_larger_tokenizer
    yield "measure(BERT)", with_bert


def with_a_nan() -> object:
    MODEL.get_input_embeddings().weight.data[5] = math.nan
    return measure()


def with_a_larger_tokenizer() -> object:
    TOKENIZER.add_tokens([f"token{i}" for i in range(50)])
    return measure(texts=["token3 token7 " * 9])


def with_bert() -> object:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return measure(model=transformers.BertModel(transformers.BertConfig(**sizes)))


CALLS = tuple(calls())


def call(number: int) -> None:
    """Make one of the calls. number: its index in `CALLS`."""
    CALLS[number][1]()
