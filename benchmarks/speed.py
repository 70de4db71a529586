"""Compare the speed of a measurement with three other methods of scoring the same documents, in one process.

    python -m benchmarks.speed [--shapes pythia-14m,pythia-70m] [--tokens 16000] [--rounds 5] [--out FILE.json]

The models have published shapes and random weights. The documents are random, of 16 to 512 tokens. The methods are:

bare      only the forward pass, with full logits that are not used
plain     the forward pass, log_softmax over full logits, and the rank of each target by comparison
rbptrack  a whole measurement, which also writes its rank table to disk
lm-eval   `loglikelihood_rolling` of lm-evaluation-harness, if it is installed: log-probabilities without ranks

The first three methods use the same batches. lm-eval takes batches of 4 sequences, so its ratio is only roughly
comparable. With the default options these are 16 batches of about 1,070 tokens, padding included, while the other
methods use 10 batches of about 1,790 tokens. lm-eval also scores the first token of a document.

The methods take turns in each round, so a slow moment of the machine affects all of them. Ratios are medians over the
rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from benchmarks.shapes import random_corpus, random_module
from rbptrack.config.schema import EngineConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Transformers, measure
from rbptrack.engine.batches import Batch, group_sequences, make_batch
from rbptrack.models.causal import CausalModel
from rbptrack.models.splitting import split_model

BATCH_TOKENS = {"cpu": 2048, "cuda": 32_768}
"""The largest number of tokens in a batch, with padding, by type of device."""


class Seconds(NamedTuple):
    """Seconds of wall time, and seconds of processor time in all threads of this process."""

    wall: float
    processor: float


def make_batches(corpus: Corpus, batch_tokens: int) -> list[Batch]:
    """Group the sequences of a corpus into batches of similar length, as a measurement does.

    A batch has at most `batch_tokens` tokens, with padding.
    """
    order = np.argsort(-corpus.lengths, kind="stable")
    return [make_batch(corpus, sequences) for sequences in group_sequences(corpus, order, batch_tokens)]


@torch.inference_mode()
def compute_logits(model: CausalModel, batches: Sequence[Batch]) -> None:
    """Compute the full logits of all batches, and do nothing with them."""
    for batch in batches:
        model.backbone.full_logits(batch.token_ids.to(model.device))


@torch.inference_mode()
def compute_ranks(model: CausalModel, batches: Sequence[Batch]) -> None:
    """Compute the full logits of all batches, their log_softmax, and the rank of each target.

    The rank is the number of entries with at least the log-probability of the target.
    """
    for batch in batches:
        ids = batch.token_ids.to(model.device)
        log_p = model.backbone.full_logits(ids)[:, :-1].float().log_softmax(-1)
        log_p_of_target = log_p.gather(-1, ids[:, 1:, None])
        (log_p >= log_p_of_target).sum(-1).cpu()


def run_measurement(model: CausalModel, corpus: Corpus, config: EngineConfig) -> None:
    """Run a whole measurement, which writes its rank table to a temporary folder."""
    with TemporaryDirectory() as folder:
        measure(Transformers(model, corpus, config), corpus, ks=(1, 10), folder=Path(folder))


def lm_eval_function(module: Any, corpus: Corpus) -> Callable[[], object] | None:
    """Return a function that scores the documents of a corpus with lm-evaluation-harness, or None if it is missing.

    lm-evaluation-harness expects texts, so each document becomes a text of token ids.
    """
    if importlib.util.find_spec("lm_eval") is None:
        return None
    from lm_eval.models.huggingface import HFLM  # type: ignore[import-not-found]

    class Tokens(HFLM):  # type: ignore[misc]
        """Scores token ids instead of texts."""

        def __init__(self) -> None:
            from transformers import AutoTokenizer

            from rbptrack.config.paths import embedded

            tokenizer = AutoTokenizer.from_pretrained(str(embedded("tokenizer")))
            super().__init__(pretrained=module, tokenizer=tokenizer, batch_size=4, max_length=512)

        def tok_encode(self, string: str, **_: Any) -> list[int]:
            return [int(word) for word in string.split()]

    from lm_eval.api.instance import Instance  # type: ignore[import-not-found]

    texts = [" ".join(map(str, corpus.inputs(i))) for i in range(len(corpus.start))]
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
    scorer = Tokens()
    return lambda: scorer.loglikelihood_rolling(requests, disable_tqdm=True)


def time_call(call: Callable[[], object], device: torch.device) -> Seconds:
    """Measure the wall time and the processor time of one call. Waits until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    wall_start = time.perf_counter()
    processor_start = time.process_time()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return Seconds(time.perf_counter() - wall_start, time.process_time() - processor_start)


def time_methods(
    methods: Mapping[str, Callable[[], object]], device: torch.device, rounds: int
) -> dict[str, list[Seconds]]:
    """Time all methods of scoring in each round, and return the times of each method by its name.

    Before the first round, each method runs once without a clock, because the first call is slower. Every other round
    runs the methods in reverse order.
    """
    for call in methods.values():
        call()
    seconds: dict[str, list[Seconds]] = {name: [] for name in methods}
    for number in range(rounds):
        names = list(methods)
        if number % 2:
            names.reverse()
        for name in names:
            seconds[name].append(time_call(methods[name], device))
    return seconds


def speed_over_bare(
    seconds: Mapping[str, list[Seconds]], method: str, clock: Literal["wall", "processor"] = "wall"
) -> float:
    """Return the speed of a method divided by that of the method `bare`, the median over the rounds."""
    rounds = zip(seconds[method], seconds["bare"], strict=True)
    return float(median(getattr(bare, clock) / getattr(own, clock) for own, bare in rounds))


def time_shape(shape: str, tokens: int, rounds: int, vocab_size: int) -> dict[str, Any]:
    """Time all methods for a model of one shape on this machine's CPU. With vocab_size=0, it has that of the shape.

    Returns the settings, and for each method its speed in tokens per second and its relative speed by both clocks.
    """
    module = random_module(shape, vocab_size=vocab_size)
    model = split_model(module, shape)
    corpus = random_corpus(tokens, vocab_size=model.vocab_size)
    batches = make_batches(corpus, BATCH_TOKENS["cpu"])
    engine = EngineConfig(batch_tokens=BATCH_TOKENS["cpu"])
    methods: dict[str, Callable[[], object]] = {
        "bare": lambda: compute_logits(model, batches),
        "plain": lambda: compute_ranks(model, batches),
        "rbptrack": lambda: run_measurement(model, corpus, engine),
    }
    lm_eval = lm_eval_function(module, corpus)
    if lm_eval:
        methods["lm-eval"] = lm_eval
    seconds = time_methods(methods, model.device, rounds)
    result: dict[str, Any] = {"shape": shape, "tokens": corpus.num_targets, "rounds": rounds}
    for name in methods:
        result[name] = {
            "tokens_per_second": corpus.num_targets / median(measured.wall for measured in seconds[name]),
            "over_bare": speed_over_bare(seconds, name),
            "over_bare_by_processor": speed_over_bare(seconds, name, "processor"),
        }
    return result


def describe_machine() -> str:
    """Describe this machine: processor, cores, load and versions."""
    cpuinfo = Path("/proc/cpuinfo")  # on Linux only
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or "unknown processor"
    return f"{processor}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"


def main() -> None:
    """Time all methods for each shape, print a line for each method, and write the results to the file of `--out`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="pythia-14m,pythia-70m")
    parser.add_argument("--tokens", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=0, help="instead of the shapes' vocabulary sizes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(describe_machine())
    results = []
    for shape in options.shapes.split(","):
        results.append(time_shape(shape, options.tokens, options.rounds, options.vocab_size))
        for name, row in results[-1].items():
            if isinstance(row, dict):
                print(
                    f"{shape}  {name:9} {row['tokens_per_second']:7,.0f} tokens/s  {row['over_bare']:.2f} of bare, "
                    f"{row['over_bare_by_processor']:.2f} by processor time",
                    flush=True,
                )
    if options.out:
        options.out.write_text(json.dumps({"machine": describe_machine(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
