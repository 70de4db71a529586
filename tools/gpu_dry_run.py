"""Run the CUDA path of every architecture on fake CUDA tensors, on a machine without a GPU.

    pip install --target FOLDER torch==VERSION       # the CUDA build from PyPI, 5 GB, without a folder of CPU wheels
    PYTHONPATH=FOLDER python -m tools.gpu_dry_run

The version is that of constraints.txt. The last run, which docs/explanation/how-it-measures.md reports, had torch 2.11.

A fake tensor has a shape, a dtype and a device, but no data. The tool scores padded batches with each small model of
`tests/tiny_models.py`: in float32, bfloat16 and float16, with and without a reference model, among all entries of the
vocabulary and among the entries that the tokenizer knows. It scores each batch a second time while memory runs out. It
checks that every result is on the GPU, that it has the right dtype, and that the host reads no number. It cannot check
numbers, speed and memory, because nothing is computed. `make gpu-proof` checks numbers, speed and memory. Triton's
kernels do not run on fake tensors, so torch multiplies and counts. `python -m tools.gpu_kernels` compiles the kernels.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

from benchmarks.shapes import random_corpus
from rbptrack.config.schema import EngineConfig
from rbptrack.engine import Transformers, memory
from rbptrack.engine.batches import make_batch
from rbptrack.models.backbone import Backbone
from rbptrack.models.causal import CausalModel, Reference
from rbptrack.models.splitting import split_model
from rbptrack.scoring import reduction, scorer
from tests.tiny_models import ARCHITECTURES, HEAD_ROWS, random_model

CUDA = torch.device("cuda:0")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ENTRIES = HEAD_ROWS - 100  # entries of the vocabulary that the tokenizer knows
FREE_BYTES = 70 * 10**9
NOT_RUN = "not run: transformers makes a tensor on the real GPU"
COUNTS = ("greater", "ties", "top", "reference_top", "reference_rank")


def move_to_fake_cuda(module: nn.Module, mode: FakeTensorMode) -> None:
    """Replace the weights and buffers of a module by fake CUDA tensors. Tied weights stay tied."""
    parameters: dict[int, nn.Parameter] = {}

    def fake(tensor: Tensor) -> FakeTensor:
        return FakeTensor(mode, torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"), CUDA)

    for part in module.modules():
        for name, weight in part.named_parameters(recurse=False):
            if id(weight) not in parameters:
                parameters[id(weight)] = nn.Parameter(fake(weight.data), requires_grad=False)
            part._parameters[name] = parameters[id(weight)]
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = fake(buffer)


def fake_model(name: str, dtype: torch.dtype, mode: FakeTensorMode, *, all_entries: bool) -> CausalModel:
    """Make a small model. It is split and checked on the CPU, and then moved to the fake GPU."""
    module = random_model(name).to(dtype)
    model = split_model(module, name, num_candidates=None if all_entries else ENTRIES)
    move_to_fake_cuda(module, mode)
    output = module.get_output_embeddings()
    head = replace(model.head, weight=output.weight, bias=getattr(output, "bias", None))
    return replace(model, backbone=Backbone(module, output), head=head, device=CUDA)


@contextmanager
def memory_that_runs_out(times: int) -> Iterator[None]:
    """Let the first `times` products with the head fail as they do when the GPU's memory is full."""
    failures = iter([torch.OutOfMemoryError("simulated lack of memory")] * times)
    logits = scorer.Scorer.logits

    def failing(self: scorer.Scorer, hidden: Tensor) -> Tensor:
        for error in failures:
            raise error
        return logits(self, hidden)

    with patch.object(scorer.Scorer, "logits", failing):
        yield


def score(model: CausalModel, mode: FakeTensorMode, *, failures: int) -> str:
    """Score a padded batch while memory runs out `failures` times.

    Returns:
        A sentence about the fault; empty if there is none. `NOT_RUN` if transformers needs a real GPU.

    """
    corpus = random_corpus(300, vocab_size=ENTRIES, seq_len=128)
    batch = make_batch(corpus, np.arange(len(corpus.start)))
    try:
        with mode, memory_that_runs_out(failures):
            engine = Transformers(model, corpus, EngineConfig())
            scores = engine.score(batch)
    except DataDependentOutputException as error:
        return f"a number is read on the host: {error}"
    except RuntimeError as error:
        if "NVIDIA driver" not in str(error):
            raise
        return NOT_RUN
    if len([note for note in engine.notes if note.startswith("out of memory")]) != failures:
        return f"memory ran out {failures} times, but the notes are {engine.notes}"
    for column, values in scores.items():
        dtype = torch.int32 if column in COUNTS else torch.float32
        if values.device != CUDA or values.dtype != dtype:
            return f"{column} is {values.dtype} on {values.device}"
    return ""


def main() -> int:
    """Score every combination, and return the exit code: 1 if a combination has a fault."""
    logging.disable(logging.WARNING)  # memory runs out on purpose
    with (
        patch.object(memory, "free_memory", lambda device: FREE_BYTES),
        patch.object(torch.cuda, "empty_cache", lambda: None),
        patch.object(torch.cuda, "reset_peak_memory_stats", lambda device: None),
        patch.object(Tensor, "pin_memory", lambda self, *_, **__: self),  # fake tensors cannot be pinned in memory
        patch.object(scorer, "can_fuse", lambda head: False),
        # The comparison of a kernel with eager operations reads numbers on the host, once for each measurement.
        patch.object(
            scorer, "choose_reduction", lambda candidate, logits, target_logits: (reduction.eager_reduction, "")
        ),
    ):
        problems = list(_problems())
    not_run = problems.count(NOT_RUN)
    faults = len(problems) - problems.count("") - not_run
    print(f"{faults} of {len(problems)} combinations are wrong, {not_run} could not run here")
    return int(faults > 0)


def _problems() -> Iterator[str]:
    """Score every combination and print a line for each. Yields the message of `score` for each."""
    for name, dtype, all_entries, has_reference in product(ARCHITECTURES, DTYPES, (True, False), (False, True)):
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        model = fake_model(name, dtype, mode, all_entries=all_entries)
        if has_reference:
            reference_model = fake_model(name, dtype, mode, all_entries=all_entries)
            model = replace(model, reference=Reference("reference", reference_model, ENTRIES))
        problem = score(model, mode, failures=0) or score(model, mode, failures=2)
        candidates = "all entries" if all_entries else f"{ENTRIES} entries"
        reference = ", with a reference" if has_reference else ""
        print(f"{name:10s} {str(dtype).removeprefix('torch.'):9s} {candidates}{reference}: {problem or 'on the GPU'}")
        yield problem


if __name__ == "__main__":
    sys.exit(main())
