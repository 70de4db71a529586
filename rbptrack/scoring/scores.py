"""What a head says of targets, and how what it says of stretches of the vocabulary is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

NO_ENTRY = 2**31 - 1
"""The place of the largest entry if no entry is the largest."""

_NOTHING = torch.empty(0)


@dataclass(frozen=True)
class Scores:
    """What the head says of each target and of its distribution; every field has shape (tokens,).

    `brief` ones have no entropy, top and top_logprob: those are empty.

    Attributes:
        greater: entries with a logit strictly above the target's, int32.
        ties: other entries with an equal logit, int32.
        logprob: ln p(target), nats, at most 0, float32. NaN where the logits held a NaN or an infinity.
        entropy: -sum p ln p over the entries, nats, float32.
        top: the entry with the largest logit, of several the first, int32.
        top_logprob: ln p(top), nats, at most 0, float32.
        kl: KL(reference || model), nats, at least 0, float32; this and what follows: empty without a reference.
        accept: the sum over entries of the smaller of both probabilities, float32.
        reference_top: the entry that the reference ranks first, int32.
        reference_rank: its rank in the model, 1 + entries above it + others equal to it, int32.

    """

    greater: Tensor
    ties: Tensor
    logprob: Tensor
    entropy: Tensor
    top: Tensor
    top_logprob: Tensor
    kl: Tensor = _NOTHING
    accept: Tensor = _NOTHING
    reference_top: Tensor = _NOTHING
    reference_rank: Tensor = _NOTHING

    @property
    def columns(self) -> dict[str, Tensor]:
        """Every field by its name, without those that are empty."""
        return {f.name: getattr(self, f.name) for f in fields(self) if len(getattr(self, f.name)) == len(self.greater)}

    def brief(self) -> Scores:
        """Return the same ranks and log-probabilities, without the columns about the distribution."""
        nothing = self.logprob[:0]
        return Scores(self.greater, self.ties, self.logprob, nothing, nothing, nothing)

    @classmethod
    def concatenate(cls, parts: Sequence[Scores]) -> Scores:
        """Return the scores of consecutive stretches of tokens as one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


class Sums:
    """What a stretch of logits adds to the scores of tokens; stretches of one vocabulary are put together.

    Attributes:
        counts: entries above the target, entries equal to it without itself, the first of the largest entries,
            (3, ..., tokens), integers.
        sums: the largest logit x_max, the sum of e^(x - x_max), that of (x - x_max) e^(x - x_max), (3, ..., tokens).

    """

    def __init__(self, *shape: int, device: torch.device) -> None:
        self.counts = torch.empty(3, *shape, dtype=torch.int32, device=device)
        self.sums = torch.empty(3, *shape, dtype=torch.float32, device=device)

    def piece(self, low: int, high: int) -> tuple[Tensor, ...]:
        """Return tokens low..high-1 of the six rows, to write to."""
        return (*self.counts[:, low:high], *self.sums[:, low:high])

    def scores(self, own: Tensor) -> Scores:
        """Return the scores, of stretches that are all of the vocabulary, (stretches, tokens) or (tokens,).

        ln p(target) = x - x_max - ln Z with Z = sum of e^(x - x_max), H = ln Z - sum of (x - x_max) e^(x - x_max) / Z.
        Neither x - x_max nor -ln Z is above 0, whatever is rounded.
        """
        greater, ties, top = self.counts
        highest, total, weighted = self.sums
        if highest.ndim > 1:
            largest = highest.amax(0)
            total, weighted = at_a_common_maximum(highest, largest, total, weighted)
            total, weighted, greater, ties = (part.sum(0) for part in (total, weighted, greater, ties))
            top = torch.where(highest == largest, top, NO_ENTRY).amin(0)
            highest = largest
        log_total = total.log().clamp(min=0)
        return Scores(
            greater.int(),
            ties.int(),
            (own - highest - log_total).clamp(max=0).float(),
            (log_total - weighted / total).clamp(min=0).float(),
            top.int(),
            (-log_total).float(),
        )


def at_a_common_maximum(highest: Tensor, largest: Tensor, total: Tensor, weighted: Tensor) -> tuple[Tensor, Tensor]:
    """Return both sums of exponentials of stretches, whose own largest logits are `highest`, relative to `largest`."""
    shift = highest - largest
    factor = shift.exp()  # a stretch without entries has the maximum -inf, and sums of 0
    return total * factor, (weighted + shift.clamp(min=-1e4) * total) * factor
