"""Kernels that prove themselves: on a measurement's first batch, plain torch scores some tokens, too."""

from __future__ import annotations

import torch
from torch import Tensor

from rbptrack.base.errors import first_line
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores

# How far a logit may be from torch's, as a share of the row's largest: sums are made in another order, and TF32 rounds
# factors to 11 bits. Ranks may differ by as many entries as lie so near to the target.
_SUMS = 2e-5
_TF32 = 5e-3
_NATS = 2e-3
_TF32_NATS = 2e-2
_ROWS = {"cuda": 1024, "cpu": 64}  # that plain torch scores too
_LAST = 8  # one in so many of these stands at the end of the batch, where a kernel's tile is partly filled


@torch.inference_mode()
def proved(kernel: Scorer, hidden: Tensor, targets: Tensor) -> tuple[Scores | None, str]:
    """Score a batch by a scorer's kernel, and rows spread over it, the last ones included, by plain torch.

    Returns:
        The kernel's scores where it ranks these rows as plain torch does, else None; and why it is not to be trusted.

    Raises:
        torch.OutOfMemoryError: either path has too little memory, which says nothing about the kernel.

    """
    try:
        scores = kernel(hidden, targets)
        every = _on_cpu(scores)  # an asynchronous error shows here
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        return None, f"it fails ({type(error).__name__}: {first_line(error)[:200]})"
    why = _difference(kernel, hidden, targets, every)
    return (None if why else scores), why


def _difference(kernel: Scorer, hidden: Tensor, targets: Tensor, every: Scores) -> str:
    """Describe how a kernel's scores, on the CPU, differ from those of plain torch by more than rounding explains."""
    rows = spread(len(targets), _ROWS[hidden.device.type])
    got = Scores(**{name: column[rows] for name, column in every.columns.items()})
    hidden = hidden[rows.to(hidden.device)]
    targets = targets[rows.to(targets.device)]
    plain = Scorer(kernel.head, chunk_tokens=min(kernel.chunk, len(rows)), kernel=False)
    want = _on_cpu(plain(hidden, targets))
    finite = torch.isfinite(want.logprob)
    if not torch.equal(torch.isfinite(got.logprob), finite):
        return "its log-probabilities are numbers where those of torch are none, or the other way round"
    for name in ("logprob", "entropy", "top_logprob"):
        nats = (got.columns[name] - want.columns[name])[finite].abs()
        if len(nats) and float(nats.max()) > (_TF32_NATS if kernel.tf32 else _NATS):
            return f"its {name} differs from that of torch by up to {float(nats.max()):.2g} nats"
    return _moved(got, want, finite, plain, hidden, targets, share=_TF32 if kernel.tf32 else _SUMS)


def spread(count: int, most: int) -> Tensor:
    """Return rows (at most `most`) that are spread evenly over `count`, the last ones all among them."""
    if count <= most:
        return torch.arange(count)
    last = most // _LAST
    even = torch.linspace(0, count - 1 - last, most - last).long()
    return torch.cat([even, torch.arange(count - last, count)])


def _moved(
    got: Scores, want: Scores, finite: Tensor, plain: Scorer, hidden: Tensor, targets: Tensor, *, share: float
) -> str:
    """Describe which ranks or tops differ by more than rounding explains."""
    places = (got.greater + got.ties - want.greater - want.ties).abs()
    rows = torch.nonzero(finite & ((places > 0) | (got.top != want.top)))[:, 0]
    worst = tops = 0
    for some in torch.split(rows, plain.chunk):
        logits = plain.products(hidden[some.to(hidden.device)])
        at = torch.stack([targets.cpu()[some], got.top[some].long(), want.top[some].long()], 1).to(logits.device)
        own, top, best = torch.split(logits.gather(1, at), 1, 1)  # (rows, 1)
        room = share * logits.abs().amax(1, keepdim=True).clamp(min=1.0)
        near = ((logits - own).abs() <= room).sum(1).cpu() - 1
        unexplained = places[some][places[some] > near]
        worst = max(worst, int(unexplained.max()) if len(unexplained) else 0)
        tops += int((best - top > room).sum())
    if worst:
        return f"its ranks differ from those of torch by up to {worst} places"
    return f"it ranks other entries first than torch does, at {tops} tokens" if tops else ""


def _on_cpu(scores: Scores) -> Scores:
    return Scores(**{name: column.cpu() for name, column in scores.columns.items()})
