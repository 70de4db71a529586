"""From hidden states to ranks: the head's product in chunks, compared and reduced without full logits.

`reference` is the definition; `Scorer` is the same numbers in flat memory and one pass over each tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rbptrack.scoring import kernels

_TILE_ELEMENTS = 800_000  # logits compared at a time: 3.2 MB, stays in cache and far below allocation cliffs
_BLOCK_ELEMENTS = 4_000_000  # half-precision weights turned into float32 at a time: 16 MB
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Head:
    """The output projection: logits = then(softcap(scale * (hidden @ weight.T + bias))).

    Attributes:
        weight: (vocabulary, width).
        bias: (vocabulary,) or None.
        softcap: c in c * tanh(logits / c), as in Gemma 2; None for none.
        scale: factor on the logits, as in Cohere and Granite.
        then: what else the model does to its logits, (tokens, vocabulary) to the same shape; None for nothing. No fused
            kernel applies it.

    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0
    then: Callable[[Tensor], Tensor] | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head."""
        return int(self.weight.shape[0])

    def logits(self, hidden: Tensor) -> Tensor:
        """Full logits (tokens, vocabulary), float32, of hidden states (tokens, width): for checks, not for corpora."""
        return self.finish(hidden.float() @ self.weight.float().T)

    def finish(self, product: Tensor) -> Tensor:
        """Turn hidden @ weight.T (tokens, vocabulary) into logits; in place, unless `then` makes new ones."""
        if self.bias is not None:
            product.add_(self.bias)
        if self.scale != 1.0:
            product.mul_(self.scale)
        if self.softcap is not None:
            product.div_(self.softcap).tanh_().mul_(self.softcap)
        return product if self.then is None else self.then(product)


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

    @classmethod
    def concatenate(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of consecutive stretches of tokens as one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(p, n) for p in parts]) for n in ("greater", "ties", "logprob")))


def reference(logits: Tensor, targets: Tensor) -> Scores:
    """The definition, on full logits (tokens, vocabulary) and targets (tokens,); for tests and the bench."""
    logits = logits.float()
    own = logits.gather(1, targets[:, None])  # (tokens, 1)
    greater = (logits > own).sum(1)
    ties = (logits == own).sum(1) - 1
    logprob = torch.log_softmax(logits.double(), dim=1).gather(1, targets[:, None])[:, 0]
    return Scores(greater.int(), ties.int(), logprob.float())


class Scorer:
    """Scores hidden states against one head with preallocated buffers; one thread at a time.

    On CUDA with Triton, half-precision and TF32 products are reduced where they arise and no logits exist at all;
    float32 products are cuBLAS's, in chunks, and read once.

    Args:
        head: the output projection, on the device where scoring happens.
        chunk_tokens: rows of logits that exist at a time: chunk_tokens * |V| * 4 bytes.
        kernel: use the Triton kernels; None: wherever they can run.

    """

    def __init__(self, head: Head, *, chunk_tokens: int, kernel: bool | None = None) -> None:
        self.head = head
        self.kernel = kernels.available(head.weight.device) if kernel is None else kernel
        self.tf32 = torch.get_float32_matmul_precision() != "highest"
        single = head.weight.dtype == torch.float32
        self.fused = self.kernel and head.then is None and (self.tf32 or not single)
        self.chunk = max(1, chunk_tokens)
        if self.fused:
            return
        vocabulary, width, device = *head.weight.shape, head.weight.device
        self.rows = self.chunk if self.kernel else max(1, min(self.chunk, _TILE_ELEMENTS // vocabulary))
        self.logits = torch.empty(self.chunk, vocabulary, dtype=torch.float32, device=device)
        # Comparisons are written as 0.0 and 1.0: summing floats is several times faster than summing booleans,
        # and exact, because counts stay far below 2**24.
        self.hits = torch.empty(0 if self.kernel else self.rows, vocabulary, dtype=torch.float32, device=device)
        # Products in float32 whatever the weights: bfloat16 logits tie at a large share of positions. Weights of half
        # precision become float32 a block at a time, because a whole copy would take twice the head's memory.
        self.block = vocabulary if single else min(vocabulary, max(1, _BLOCK_ELEMENTS // width))
        self.weight = None if single else torch.empty(self.block, width, dtype=torch.float32, device=device)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width), any float type, against targets (tokens,), int64."""
        head = self.head
        if self.fused:
            found = kernels.score(
                hidden,
                head.weight,
                targets,
                bias=head.bias,
                softcap=head.softcap,
                scale=head.scale,
                tf32=self.tf32,
            )
            return Scores(*found)
        count = hidden.shape[0]
        greater = torch.empty(count, dtype=torch.int32, device=hidden.device)
        ties, logprob = torch.empty_like(greater), torch.empty(count, dtype=torch.float32, device=hidden.device)
        reduce = kernels.reduce if self.kernel else self._reduce
        for start in range(0, count, self.chunk):
            stop = min(start + self.chunk, count)
            logits = self.products(hidden[start:stop].float())
            for low in range(start, stop, self.rows):
                high = min(low + self.rows, stop)
                out = (greater[low:high], ties[low:high], logprob[low:high])
                reduce(logits[low - start : high - start], targets[low:high], *out)
        return Scores(greater, ties, logprob)

    def products(self, hidden: Tensor) -> Tensor:
        """Logits (tokens, vocabulary) of at most a chunk of float32 hidden states; the next call overwrites them."""
        logits = self.logits[: hidden.shape[0]]  # (chunk, vocabulary)
        if self.weight is None:
            torch.mm(hidden, self.head.weight.T, out=logits)
            return self.head.finish(logits)
        for low in range(0, self.head.vocab_size, self.block):
            rows = self.head.weight[low : low + self.block]
            block = self.weight[: rows.shape[0]].copy_(rows)
            torch.mm(hidden, block.T, out=logits[:, low : low + self.block])
        return self.head.finish(logits)

    def _reduce(self, tile: Tensor, targets: Tensor, greater: Tensor, ties: Tensor, logprob: Tensor) -> None:
        """Write counts and log-probability of one tile of logits (rows, vocabulary)."""
        own = tile.gather(1, targets[:, None])  # (rows, 1), from the same product as its competitors
        hits = self.hits[: tile.shape[0]]
        greater.copy_(torch.gt(tile, own, out=hits).sum(1))
        ties.copy_(torch.eq(tile, own, out=hits).sum(1) - 1)
        highest = tile.amax(1, keepdim=True)
        # sum of e^(x - highest) as powers of two: exp2 takes a quarter of exp's time on a CPU, and the subtraction and
        # the change of base are one operation. The largest error seen against float64 is 2e-6 nats, that of exp.
        total = torch.add(highest * -_LOG2_E, tile, alpha=_LOG2_E, out=hits).exp2_().sum(1)
        logprob.copy_((own - highest)[:, 0] - total.log())
