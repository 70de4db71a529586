"""From hidden states to ranks: the head's product in chunks, compared and reduced without full logits.

`reference` is the definition; `Scorer` is the same numbers in flat memory and one pass over each tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_TILE_ELEMENTS = 1_600_000  # logits compared at a time: 6.4 MB, stays in cache and below allocation cliffs


@dataclass(frozen=True)
class Head:
    """The output projection: logits = softcap(scale * (hidden @ weight.T + bias)).

    Attributes:
        weight: (vocabulary, width).
        bias: (vocabulary,) or None.
        softcap: c in c * tanh(logits / c), as in Gemma 2; None for none.
        scale: factor on the logits, as in Cohere and Granite.

    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head."""
        return int(self.weight.shape[0])


@dataclass(frozen=True)
class Scores:
    """What the head says of each target; every field has shape (tokens,).

    Attributes:
        greater: entries with a logit strictly above the target's, int32.
        ties: other entries with an equal logit, int32.
        logprob: ln p(target), nats, float32. NaN where the logits held a NaN or an infinity.

    """

    greater: Tensor
    ties: Tensor
    logprob: Tensor


def reference(logits: Tensor, targets: Tensor) -> Scores:
    """The definition, on full logits (tokens, vocabulary) and targets (tokens,); for tests and the bench."""
    logits = logits.float()
    own = logits.gather(1, targets[:, None])  # (tokens, 1)
    greater = (logits > own).sum(1)
    ties = (logits == own).sum(1) - 1
    logprob = torch.log_softmax(logits.double(), dim=1).gather(1, targets[:, None])[:, 0]
    return Scores(greater.int(), ties.int(), logprob.float())


class Scorer:
    """Scores hidden states against one head with preallocated buffers.

    Args:
        head: the output projection, on the device where scoring happens.
        chunk_tokens: rows of logits that exist at a time; memory is chunk_tokens * |V| * 4 bytes.

    """

    def __init__(self, head: Head, *, chunk_tokens: int) -> None:
        self.head = head
        vocabulary, device = head.vocab_size, head.weight.device
        # Never more than 128 MB of logits: a larger vocabulary gets fewer rows.
        self.chunk = max(16, min(chunk_tokens, 32_000_000 // vocabulary))
        self.rows = max(1, min(self.chunk, _TILE_ELEMENTS // vocabulary))
        # float32 whatever the weights: bfloat16 logits tie at a large share of positions.
        self.weight = head.weight.float().T  # (width, vocabulary)
        self.bias = None if head.bias is None else head.bias.float()
        self.logits = torch.empty(self.chunk, vocabulary, dtype=torch.float32, device=device)
        # Comparisons are written as 0.0 and 1.0: summing floats is several times faster than summing booleans,
        # and exact, because counts stay far below 2**24.
        self.hits = torch.empty(self.rows, vocabulary, dtype=torch.float32, device=device)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width), any float type, against targets (tokens,), int64."""
        count = hidden.shape[0]
        greater = torch.empty(count, dtype=torch.int32, device=hidden.device)
        ties, logprob = (
            torch.empty_like(greater),
            torch.empty(count, dtype=torch.float32, device=hidden.device),
        )
        for start in range(0, count, self.chunk):
            stop = min(start + self.chunk, count)
            logits = self._logits(hidden[start:stop])
            for low in range(start, stop, self.rows):
                high = min(low + self.rows, stop)
                tile = logits[low - start : high - start]
                out = (greater[low:high], ties[low:high], logprob[low:high])
                self._reduce(tile, targets[low:high], out)
        return Scores(greater, ties, logprob)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = self.logits[: hidden.shape[0]]  # (chunk, vocabulary)
        torch.mm(hidden.float(), self.weight, out=logits)
        if self.bias is not None:
            logits.add_(self.bias)
        if self.head.scale != 1.0:
            logits.mul_(self.head.scale)
        if self.head.softcap is not None:
            logits.div_(self.head.softcap).tanh_().mul_(self.head.softcap)
        return logits

    def _reduce(self, tile: Tensor, targets: Tensor, out: tuple[Tensor, Tensor, Tensor]) -> None:
        """Counts and log-probability of one tile (rows, vocabulary), which is overwritten."""
        greater, ties, logprob = out
        own = tile.gather(1, targets[:, None])  # (rows, 1), from the same product as its competitors
        hits = self.hits[: tile.shape[0]]
        greater.copy_(torch.gt(tile, own, out=hits).sum(1))
        ties.copy_(torch.eq(tile, own, out=hits).sum(1) - 1)
        highest = tile.amax(1, keepdim=True)
        total = tile.sub_(highest).exp_().sum(1)
        logprob.copy_((own - highest)[:, 0] - total.log())
