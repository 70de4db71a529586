"""Ranks where each process holds some rows of the head: no process ever has all logits of a token.

Every process multiplies the same hidden states with its own rows. Three sums cross the wire, 32 bytes a token: the
target's logit, which only the process that holds its row knows; the maximum; and counts with sums of exponentials. The
counts are those of one process, because each logit is the same product of the same numbers wherever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rbptrack.scoring.scorer import Head, Scorer, Scores


@dataclass(frozen=True)
class Shard:
    """Which rows of a head this process holds, and with whom it shares the others.

    Attributes:
        first: the first row that it holds.
        vocab_size: rows of the whole head.
        group: the processes; None for all of them.

    """

    first: int
    vocab_size: int
    group: dist.ProcessGroup | None = None


class ParallelScorer:
    """`Scorer` for a head that is split by rows; every process of the group calls it with the same states and targets.

    Args:
        head: this process's rows; there may be none.
        shard: which these are.
        chunk_tokens: rows of logits that exist at a time, the same in every process.

    """

    def __init__(self, head: Head, shard: Shard, *, chunk_tokens: int) -> None:
        self.shard, self.chunk = shard, max(1, chunk_tokens)
        # The plain torch path: the Triton kernels take a target's logit from rows that are at hand.
        self._mine = Scorer(head, chunk_tokens=self.chunk, kernel=False) if head.vocab_size else None

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width) against targets (tokens,), int64; every process gets all scores."""
        count, device = hidden.shape[0], hidden.device
        own = torch.empty(count, dtype=torch.float32, device=device)
        highest = torch.full((count,), float("-inf"), dtype=torch.float32, device=device)
        sums = torch.zeros(3, count, dtype=torch.float64, device=device)  # greater, ties, sum of exponentials
        for low in range(0, count, self.chunk):
            piece = slice(low, min(low + self.chunk, count))
            self._chunk(hidden[piece], targets[piece], own[piece], highest[piece], sums[:, piece])
        largest = highest.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self.shard.group)
        # A maximum may lose a NaN on its way; the sum of exponentials below keeps it. Without rows: 0 times e^-inf.
        sums[2] *= torch.exp(highest.double() - largest.double())
        dist.all_reduce(sums, group=self.shard.group)
        logprob = (own.double() - largest.double() - sums[2].log()).float()
        return Scores(sums[0].int(), sums[1].int(), logprob)

    def _chunk(self, hidden: Tensor, targets: Tensor, own: Tensor, highest: Tensor, sums: Tensor) -> None:
        """Write the targets' logits, and what this process's rows add to the rest."""
        own.zero_()
        mine = self._mine
        if mine is None:
            dist.all_reduce(own, group=self.shard.group)
            return
        logits = mine.products(hidden.float())  # (chunk, rows)
        at = targets - self.shard.first
        here = (at >= 0) & (at < logits.shape[1])
        gathered = logits.gather(1, at.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
        torch.where(here, gathered, own, out=own)
        dist.all_reduce(own, group=self.shard.group)  # one process adds its number to zeros: nothing is rounded
        for low in range(0, logits.shape[0], mine.rows):
            piece = slice(low, min(low + mine.rows, logits.shape[0]))
            tile, hits = logits[piece], mine.hits[: piece.stop - piece.start]
            sums[0, piece] = torch.gt(tile, own[piece, None], out=hits).sum(1).double()
            sums[1, piece] = (torch.eq(tile, own[piece, None], out=hits).sum(1) - here[piece].float()).double()
            highest[piece] = tile.amax(1)
            sums[2, piece] = torch.sub(tile, highest[piece, None], out=hits).exp_().sum(1).double()
