"""From hidden states to ranks: the head's product in chunks, compared and reduced without full logits.

`reference` is the definition; `Scorer` is the same numbers in constant memory and one pass over each tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rbptrack.scoring import cpu, kernels
from rbptrack.scoring.scores import Scores, Sums

TILE_ELEMENTS = 800_000  # logits compared at a time: 3.2 MB, stays in cache and far below allocation cliffs
_BLOCK_ELEMENTS = 4_000_000  # half-precision weights turned into float32 at a time: 16 MB
_STRETCH = 256  # entries of a row among which its largest is sought at a time
_FEW_ROWS = 64
_DOT = 65536  # entries of one float32 dot product
_LOG2_E = math.log2(math.e)
_MM_WIDENS = hasattr(torch.ops.aten.mm, "dtype_out")  # torch 2.8: float32 products of half-precision factors, on CUDA


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
        product: hidden (tokens, width) to hidden @ weight.T + bias, float32, of a quantised head, which only its module
            can multiply with: `weight` is then of the right shape and holds nothing.

    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0
    then: Callable[[Tensor], Tensor] | None = None
    product: Callable[[Tensor], Tensor] | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head."""
        return int(self.weight.shape[0])

    def without(self, entries: Sequence[int]) -> Head:
        """Return the same head with logits of -inf at some entries: nothing is ranked among them."""
        left_out, then = torch.tensor(entries, device=self.weight.device), self.then

        def masked(logits: Tensor) -> Tensor:
            return (then(logits) if then else logits).index_fill_(1, left_out, float("-inf"))

        return replace(self, then=masked)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the full logits (tokens, vocabulary), float32, of hidden states (tokens, width): for checks, not for
        corpora.
        """
        if self.product is not None:
            return self.finish(self.product(hidden)[:, : self.vocab_size])
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


def reference(logits: Tensor, targets: Tensor) -> Scores:
    """Return the definition, on full logits (tokens, vocabulary) and targets (tokens,); for tests and the bench."""
    logits = logits.float()
    own = logits.gather(1, targets[:, None])  # (tokens, 1)
    greater = (logits > own).sum(1)
    ties = (logits == own).sum(1) - 1
    every = torch.log_softmax(logits.double(), dim=1)
    entropy = torch.special.entr(every.exp()).sum(1)
    top = (logits == logits.amax(1, keepdim=True)).int().argmax(1)
    logprob, top_logprob = (every.gather(1, ids[:, None])[:, 0].float() for ids in (targets, top))
    return Scores(greater.int(), ties.int(), logprob, entropy.float(), top.int(), top_logprob)


class Scorer:
    """Scores hidden states against one head with preallocated buffers; one thread at a time.

    On CUDA with Triton, chunks of logits are cuBLAS's and read once by a kernel, or, `fused`, no logits exist at all.
    On a CPU with numba, `one_pass`, they are read once, too. Ranks and tops are the same numbers with and without.

    Args:
        head: the output projection, on the device where scoring happens.
        chunk_tokens: rows of logits that exist at a time: chunk_tokens * |V| * 4 bytes.
        kernel: use the Triton kernels; None: wherever they can run.
        fused: let one kernel make logits and reduce them, where it can; None: where torch cannot multiply
            half-precision factors into float32.
        one_pass: on a CPU, read each row of logits once, where numba is installed; False: as torch's operations do.
        brief: on a CPU, take no time for entropy, top and top_logprob, which are then without meaning.

    """

    def __init__(
        self,
        head: Head,
        *,
        chunk_tokens: int,
        kernel: bool | None = None,
        fused: bool | None = None,
        one_pass: bool = False,
        brief: bool = False,
    ) -> None:
        weight = head.weight
        vocabulary, width, device = *weight.shape, weight.device
        single, cuda = weight.dtype == torch.float32, device.type == "cuda"
        self.head, self.chunk, self.brief = head, max(1, chunk_tokens), brief
        self.kernel = kernels.available(device) if kernel is None else kernel
        self.tf32 = torch.get_float32_matmul_precision() != "highest"
        plain = head.product is None
        self.wide = cuda and plain and not single and _MM_WIDENS
        wanted = not (single or self.wide) if fused is None else fused
        self.fused = self.kernel and wanted and plain and head.then is None and (self.tf32 or not single)
        once = one_pass and device.type == "cpu" and not self.kernel and cpu.available()
        self.once = cpu.OnePass() if once else None
        if self.fused:
            return
        whole = self.kernel or cuda or once  # only a CPU has a cache that a tile should stay in
        self.rows = self.chunk if whole else max(1, min(self.chunk, TILE_ELEMENTS // vocabulary))
        self.logits = torch.empty(self.chunk, vocabulary, dtype=torch.float32, device=device)
        # Comparisons are written as 0.0 and 1.0: summing floats is several times faster than summing booleans,
        # and exact, because counts stay far below 2**24.
        self.hits = torch.empty(0 if self.kernel or once else self.rows, vocabulary, dtype=torch.float32, device=device)
        # Products in float32 whatever the weights: bfloat16 logits tie at a large share of positions. Weights of half
        # precision become float32 a block at a time, because a whole copy would take twice the head's memory.
        self.block = min(vocabulary, max(1, _BLOCK_ELEMENTS // width))
        copied = plain and not single and not self.wide
        self.weight = torch.empty(self.block, width, dtype=torch.float32, device=device) if copied else None

    @property
    def path(self) -> str:
        """What scores, in words."""
        if self.once is not None:
            return "one pass over the logits (numba)"
        if not self.kernel:
            return "plain torch"
        return "the fused kernel, without logits" if self.fused else "products, and the kernel that reads their logits"

    @property
    def kind(self) -> str:
        """Name of the kernel, where one scores."""
        return "Triton kernel" if self.kernel else "numba kernel"

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor, look: Callable[[Tensor, int], None] | None = None) -> Scores:
        """Score hidden states (tokens, width), any float type, against targets (tokens,), int64.

        `look` is shown each chunk of logits, (tokens, vocabulary), and the number of its first token; not if `fused`.
        """
        head = self.head
        if self.fused:
            return kernels.score(
                hidden,
                head.weight,
                targets,
                bias=head.bias,
                softcap=head.softcap,
                scale=head.scale,
                tf32=self.tf32,
            )
        count = hidden.shape[0]
        sums = Sums(count, device=hidden.device)
        own = torch.empty(count, dtype=torch.float32, device=hidden.device)
        for start in range(0, count, self.chunk):
            stop = min(start + self.chunk, count)
            logits = self.products(hidden[start:stop])
            if look is not None:
                look(logits, start)
            # From the same product as its competitors: a target equals itself.
            own[start:stop] = logits.gather(1, targets[start:stop, None])[:, 0]
            self.reduce(logits, own[start:stop], sums, start)
        sums.counts[1] -= 1
        return sums.scores(own)

    def products(self, hidden: Tensor) -> Tensor:
        """Return logits (tokens, vocabulary) of at most a chunk of hidden states; the next call overwrites them."""
        head, logits = self.head, self.logits[: hidden.shape[0]]  # (chunk, vocabulary)
        if head.product is not None:
            return head.finish(logits.copy_(head.product(hidden)[:, : head.vocab_size]))
        if self.wide:
            torch.mm(hidden.to(head.weight.dtype), head.weight.T, out_dtype=torch.float32, out=logits)
            return head.finish(logits)
        hidden = hidden.float()
        if self.weight is None:
            torch.mm(hidden, head.weight.T, out=logits)
            return head.finish(logits)
        for low in range(0, head.vocab_size, self.block):
            rows = head.weight[low : low + self.block]
            block = self.weight[: rows.shape[0]].copy_(rows)
            torch.mm(hidden, block.T, out=logits[:, low : low + self.block])
        return head.finish(logits)

    def reduce(self, logits: Tensor, own: Tensor, sums: Sums, start: int) -> None:
        """Write what logits (tokens, vocabulary), which are lost, add to tokens start..; ties count the target too.

        Args:
            logits: of `products`.
            own: the targets' logits, (tokens,).
            sums: where the result is written.
            start: the place of the first token there.

        """
        reduce = kernels.reduce if self.kernel else self.once or self._reduce
        for low in range(0, logits.shape[0], self.rows):
            high = min(low + self.rows, logits.shape[0])
            reduce(logits[low:high], own[low:high], *sums.piece(start + low, start + high))

    def _reduce(
        self,
        tile: Tensor,
        own: Tensor,
        greater: Tensor,
        equal: Tensor,
        top: Tensor,
        highest: Tensor,
        total: Tensor,
        weighted: Tensor,
    ) -> None:
        """Write the sums of one tile of logits (rows, vocabulary), which is overwritten."""
        hits = self.hits[: tile.shape[0]]
        greater.copy_(torch.gt(tile, own[:, None], out=hits).sum(1))
        equal.copy_(torch.eq(tile, own[:, None], out=hits).sum(1))
        if self.brief:
            torch.amax(tile, 1, out=highest)
            powers = torch.add(highest[:, None] * -_LOG2_E, tile, alpha=_LOG2_E, out=tile)
            off = torch.add(highest * -_LOG2_E, highest, alpha=_LOG2_E)
            torch.mul(torch.exp2(powers, out=hits).sum(1), torch.exp2(-off), out=total)
            return
        largest, first = first_largest(tile)  # (rows, 1)
        highest.copy_(largest[:, 0])
        top.copy_(first[:, 0])
        # e^(x - x_max) as powers of two: exp2 takes a quarter of exp's time on a CPU, and the subtraction and the
        # change of base are one operation (one fused multiplication and addition). What that makes of the maximum
        # itself, which is 0 but for the rounding of x_max log2(e), all entries have: it is taken out. The largest error
        # seen against float64, at logits of 10,000 too, is 3e-6 nats.
        powers = torch.add(largest * -_LOG2_E, tile, alpha=_LOG2_E, out=tile)
        off = powers.gather(1, first)[:, 0]
        scale = torch.exp2(-off)
        terms = torch.exp2(powers, out=hits)
        torch.mul(terms.sum(1), scale, out=total)
        logits = _row_products(terms, powers)
        torch.sub(logits * (scale / _LOG2_E), off / _LOG2_E * total, out=weighted)


def _row_products(terms: Tensor, powers: Tensor) -> Tensor:
    """Return the sum of terms * powers in each row, (rows,), where 0 times -inf is 0; `powers` may be overwritten."""
    if not terms.is_cuda:
        if terms.shape[0] <= _FEW_ROWS:  # of long rows: nothing is written
            products = torch.stack([_long_dot(*row) for row in zip(terms.unbind(), powers.unbind(), strict=True)])
        else:
            products = (terms * powers).sum(1)
        if bool(torch.isfinite(products).all()):
            return products
    return torch.mul(terms, powers, out=powers).nansum(1)  # logits of -inf, as a mask gives them


def _long_dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of a * b, (vocabulary,) each, in pieces: one float32 sum over 262,144 entries is off by 2e-4."""
    pieces = [torch.dot(a[low : low + _DOT], b[low : low + _DOT]) for low in range(0, len(a), _DOT)]
    return torch.stack(pieces).sum() if len(pieces) > 1 else pieces[0]


def first_largest(tile: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest entry of each row of a tile (rows, vocabulary) and the first place where it stands, (rows, 1)
    each.

    torch searches a long row for a place ten times slower than for a maximum: maxima of stretches come first.
    """
    vocabulary = tile.shape[1]
    whole = vocabulary - vocabulary % _STRETCH
    maxima = tile[:, :whole].view(len(tile), -1, _STRETCH).amax(2)  # (rows, stretches)
    if whole < vocabulary:
        maxima = torch.cat([maxima, tile[:, whole:].amax(1, keepdim=True)], 1)
    stretch = maxima.argmax(1, keepdim=True)  # of equal ones the first, as torch promises
    places = stretch * _STRETCH + torch.arange(_STRETCH, device=tile.device)
    places.clamp_(max=vocabulary - 1)
    first = places.gather(1, tile.gather(1, places).argmax(1, keepdim=True))
    return maxima.gather(1, stretch), first
