"""Heads to split by rows, and one process's part of scoring them: a module of its own, which starts fast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from rbptrack.scoring.parallel import HeadRows, ParallelScorer
from rbptrack.scoring.scorer import Head

CASES = [  # tokens, vocabulary, width, bias, softcap, scale, coarse, chunk
    (300, 512, 32, True, None, 1.0, False, 64),
    (70, 1003, 24, False, 5.0, 0.5, False, 512),  # no number of processes divides the vocabulary
    (97, 64, 8, True, None, 2.0, True, 16),  # small integers: many exact ties, across processes too
    (5, 3, 8, False, None, 1.0, False, 16),  # fewer rows than processes
]


def case(number: int) -> tuple[Head, Tensor, Tensor, int]:
    tokens, vocabulary, width, bias, softcap, scale, coarse, chunk = CASES[number]
    generator = torch.Generator().manual_seed(number)
    hidden = torch.randn(tokens, width, generator=generator)
    weight = torch.randn(vocabulary, width, generator=generator)
    offset = torch.randn(vocabulary, generator=generator).round() if bias else None
    if coarse:
        hidden, weight = hidden.round(), weight.round()
    targets = torch.randint(vocabulary, (tokens,), generator=generator)
    if number == 0:
        hidden[3, 5] = float("nan")
        hidden[4, 5] = float("inf")
    return Head(weight, offset, softcap, scale), hidden, targets, chunk


def score_share(process: int, processes: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=process, world_size=processes)
    for number in range(len(CASES)):
        head, hidden, targets, chunk = case(number)
        each = -(-head.vocab_size // processes)
        first = min(process * each, head.vocab_size)
        rows = slice(first, first + each)
        mine = replace(head, weight=head.weight[rows], bias=None if head.bias is None else head.bias[rows])
        scores = ParallelScorer(mine, HeadRows(first, head.vocab_size), chunk_tokens=chunk)(hidden, targets)
        torch.save(tuple(scores.columns.values()), folder / f"{number}-{process}.pt")
    dist.destroy_process_group()
