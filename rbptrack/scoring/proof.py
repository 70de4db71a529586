"""Kernels that prove themselves: on a measurement's first batch, kernel and plain torch path score the same tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from rbptrack.errors import first_line
from rbptrack.scoring.scorer import Scorer, Scores

_MOVED = 0.05  # share of tokens whose rank may differ by one place, because sums are made in another order
_NATS = 2e-3
_TF32_PLACES, _TF32_NATS = 0.02, 2e-2  # TF32 rounds factors to 11 bits: ranks may differ by this share of |V|


@torch.inference_mode()
def trouble(kernel: Scorer, hidden: Tensor, targets: Tensor) -> str:
    """Why a scorer's Triton kernel is not to be trusted; empty where it ranks these tokens as plain torch does.

    Raises:
        torch.OutOfMemoryError: either path has too little memory, which says nothing about the kernel.

    """
    try:
        got = kernel(hidden, targets)
        got = Scores(got.greater.cpu(), got.ties.cpu(), got.logprob.cpu())  # an asynchronous error shows here
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        return f"it fails ({type(error).__name__}: {first_line(error)[:200]})"
    plain = Scorer(kernel.head, chunk_tokens=kernel.chunk, kernel=False)(hidden, targets)
    want = Scores(plain.greater.cpu(), plain.ties.cpu(), plain.logprob.cpu())
    finite = torch.isfinite(want.logprob)
    if not torch.equal(torch.isfinite(got.logprob), finite):
        return "its log-probabilities are numbers where those of torch are none, or the other way round"
    return _difference(got, want, finite, loose=kernel.tf32, vocabulary=kernel.head.vocab_size)


def _difference(got: Scores, want: Scores, finite: Tensor, *, loose: bool, vocabulary: int) -> str:
    """What differs by more than rounding, in words."""
    nats = (got.logprob - want.logprob)[finite].abs()
    if len(nats) and float(nats.max()) > (_TF32_NATS if loose else _NATS):
        return f"its log-probabilities differ from those of torch by up to {float(nats.max()):.2g} nats"
    places = (got.greater + got.ties - want.greater - want.ties)[finite].abs()
    most = max(1, int(_TF32_PLACES * vocabulary)) if loose else 1
    if len(places) and int(places.max()) > most:
        return f"its ranks differ from those of torch by up to {int(places.max())} places"
    moved = float((places > 0).double().mean()) if len(places) else 0.0
    if moved > _MOVED and not loose and len(places) > 1 / _MOVED:
        return f"its ranks differ from those of torch at {moved:.0%} of the tokens"
    return ""
