"""Ranks where each process holds some rows of the head: no process ever has all logits of a token.

Every process multiplies the same hidden states with its own rows. What crosses the wire are 48 bytes a token: the
target's logit, which only the process that holds its row knows; the maximum and its place; counts and two sums. The
counts are those of one process, because each logit is the same product of the same numbers wherever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rbptrack.scoring.scorer import Head, Scorer
from rbptrack.scoring.scores import NO_ENTRY, Scores, Sums, at_a_common_maximum


@dataclass(frozen=True)
class HeadRows:
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
        kernel: as of `Scorer`.

    """

    def __init__(self, head: Head, shard: HeadRows, *, chunk_tokens: int, kernel: bool | None = None) -> None:
        self.shard, self.chunk = shard, max(1, chunk_tokens)
        # Not the fused kernel, which takes a target's logit from rows that are at hand.
        self._mine = Scorer(head, chunk_tokens=self.chunk, kernel=kernel, fused=False) if head.vocab_size else None

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width) against targets (tokens,), int64; every process gets all scores."""
        count, device = hidden.shape[0], hidden.device
        own = torch.zeros(count, dtype=torch.float32, device=device)
        mine = Sums(count, device=device)
        mine.counts[:2], mine.counts[2] = 0, NO_ENTRY
        mine.sums[0], mine.sums[1:] = float("-inf"), 0.0
        for low in range(0, count, self.chunk):
            piece = slice(low, min(low + self.chunk, count))
            self._chunk(hidden[piece], targets[piece], own[piece], mine, low)
        return self._together(mine).scores(own.double())

    def _chunk(self, hidden: Tensor, targets: Tensor, own: Tensor, sums: Sums, start: int) -> None:
        """Write the targets' logits, and what this process's rows add to the rest."""
        mine = self._mine
        if mine is None:
            dist.all_reduce(own, group=self.shard.group)
            return
        logits = mine.products(hidden)  # (chunk, rows)
        at = targets - self.shard.first
        here = (at >= 0) & (at < logits.shape[1])
        gathered = logits.gather(1, at.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
        torch.where(here, gathered, own, out=own)
        dist.all_reduce(own, group=self.shard.group)  # one process adds its number to zeros: nothing is rounded
        mine.reduce(logits, own, sums, start)
        _, ties, top, *_ = sums.piece(start, start + len(own))
        ties -= here.int()
        top += self.shard.first

    def _together(self, mine: Sums) -> Sums:
        """The sums of all processes."""
        group, highest = self.shard.group, mine.sums[0].double()
        largest = highest.clone()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        # A maximum may lose a NaN on its way; the sum of exponentials below keeps it.
        total, weighted = at_a_common_maximum(highest, largest, mine.sums[1].double(), mine.sums[2].double())
        added = torch.stack([*mine.counts[:2].double(), total, weighted])
        dist.all_reduce(added, group=group)
        top = torch.where(highest == largest, mine.counts[2], NO_ENTRY)
        dist.all_reduce(top, dist.ReduceOp.MIN, group=group)
        mine.counts, mine.sums = torch.stack([*added[:2].int(), top]), torch.stack([largest, *added[2:]])
        return mine
