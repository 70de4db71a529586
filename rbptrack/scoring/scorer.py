"""Compute ranks in constant memory: at most the logits of one chunk of tokens are in memory at any time.

There are three ways from hidden states to scores:

- On a GPU, a fused kernel multiplies and counts at once, without logits in memory, if `can_fuse` says so.
- For other heads on a GPU, torch multiplies. A kernel then reads the chunk's logits once.
- On a CPU, torch multiplies, and code in C reads the chunk's logits once. Without a C compiler, torch's operations
  reduce the chunk in smaller tiles, which fit into the processor's cache.

Both kernels are compared with eager operations on the first tokens. If the numbers differ, or a kernel does not run,
the next way takes its place, and a note says so.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from rbptrack.scoring.head import Head
from rbptrack.scoring.reduction import Reduction, agree, choose_reduction, eager_reduction, rounding_errors
from rbptrack.scoring.scores import Scores

log = logging.getLogger(__name__)

TILE_LOGITS = 800_000
"""The number of logits in a tile on a CPU. A tile takes 3.2 MB and stays in the processor's cache.

A temporary array above 32 MB is returned to the operating system after each use. Allocating it again takes several
times as long as the arithmetic.
"""

FUSED_UNITS = 64
"""The fused kernel multiplies this number of hidden units at once. The width of its head must be a multiple of it."""

FUSED_WIDTH = 4096
"""Heads in half precision with fewer hidden units use the fused kernel.

By arithmetic for an H100, it takes 20% less time than torch's product and a pass over the logits at 512 hidden units,
and 4% less at 4,096, which is less than the error of this arithmetic (docs/explanation/benchmarks.md). In float32,
Triton multiplies more slowly than torch at any width.
"""

_WEIGHTS_BLOCK = 4_000_000  # half-precision weights that are converted to float32 at once; they take 16 MB
_MM_HAS_OUT_DTYPE = hasattr(torch.ops.aten.mm, "dtype_out")  # torch 2.8: float32 products of half-precision factors
_CHECKED_TOKENS = 512  # tokens on which the fused kernel is compared with eager operations


class Scorer:
    """Scores targets from hidden states with one head. The buffer for logits is allocated when it is first needed.

    One thread may use it at a time.

    Args:
        head: the output head, on the device that computes the scores.
        chunk_tokens: the number of tokens whose logits are in memory at once. They take chunk_tokens * |V| * 4 bytes.
        cpu_reduction: the reduction in C from `compiled_cpu_reduction`. If None, a CPU uses eager operations.

    Attributes:
        note: why a kernel is not used on a GPU although it could be. Empty if there is no such reason.
    """

    def __init__(self, head: Head, *, chunk_tokens: int, cpu_reduction: Reduction | None = None) -> None:
        self.head = head
        self.chunk_tokens = chunk_tokens
        self.note = ""
        self._cpu_reduction = cpu_reduction
        weight = head.weight
        vocabulary, width = weight.shape
        self._on_cuda = weight.device.type == "cuda"
        self._can_fuse = can_fuse(head)
        self._fused_is_checked = False
        self._cuda_reduction: Reduction | None = None
        self._logits: Tensor | None = None
        self._scratch: Tensor | None = None
        is_half = weight.dtype != torch.float32 and head.product is None
        # Products are always float32, because bfloat16 logits tie at a large share of positions. If torch cannot
        # multiply the half-precision weights into float32, they are converted in blocks: a whole copy in float32 would
        # take twice the head's memory.
        self._multiplies_half = is_half and self._on_cuda and _MM_HAS_OUT_DTYPE
        self._block_rows = min(vocabulary, max(1, _WEIGHTS_BLOCK // width))
        converts = is_half and not self._multiplies_half
        self._float32_block = torch.empty(self._block_rows, width, device=weight.device) if converts else None

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width), any float type, against targets (tokens,), int64."""
        if self._can_fuse:
            scores = self._fuse(hidden, targets)
            if scores is not None:
                return scores
        size = self.chunk_tokens
        chunks = [slice(start, start + size) for start in range(0, len(targets), size)]
        return Scores.concatenate([self.reduce(self.logits(hidden[chunk]), targets[chunk]) for chunk in chunks])

    def _fuse(self, hidden: Tensor, targets: Tensor) -> Scores | None:
        """Score with the fused kernel. Returns None, now and for all later tokens, if its first scores are wrong."""
        try:
            scores = Scores(fused_scores(self.head, hidden, targets))
            reason = "" if self._fused_is_checked else self._fault_of_fused(scores, hidden, targets)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # for example, the compiler fails or the GPU has too little shared memory
            reason = f"it does not run here ({type(error).__name__})"
        self._fused_is_checked = True
        if not reason:
            return scores
        self._can_fuse = False
        self._add_note(f"the head runs without the fused kernel: {reason}")
        return None

    def _fault_of_fused(self, scores: Scores, hidden: Tensor, targets: Tensor) -> str:
        """Return what is wrong with the first scores of the fused kernel. Returns an empty string if nothing is.

        The product of the kernel and that of torch add numbers in different orders. The comparison with torch therefore
        permits what rounding can explain.
        """
        if bool((scores["ties"] < 0).any()):
            return "the logit of a token differs from its entry in the vocabulary"
        checked = slice(0, min(len(targets), _CHECKED_TOKENS, self.chunk_tokens))
        logits = self.logits(hidden[checked])
        target_logits = logits.gather(1, targets[checked, None])
        expected = eager_reduction(logits, target_logits)
        computed = {name: column[checked] for name, column in scores.items()}
        tolerance = rounding_errors(logits)
        near = (logits - target_logits).abs() <= tolerance
        top_logits = logits.gather(1, torch.stack([computed["top"], expected["top"]], 1).long())
        tops_are_near = (top_logits[:, :1] >= top_logits[:, 1:] - tolerance)[expected["logprob"].isfinite()]
        self._logits = None  # the fused kernel does not need the buffer
        if agree(computed, expected, moves=near.sum(1) - 1) and bool(tops_are_near.all()):
            return ""
        return "its numbers differ from those of eager operations"

    def _add_note(self, note: str) -> None:
        log.warning("%s", note)
        self.note = "; ".join(filter(None, (self.note, note)))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (tokens, vocabulary) of at most one chunk of hidden states. The next call overwrites them."""
        head = self.head
        if self._logits is None:
            shape = (self.chunk_tokens, head.vocab_size)
            self._logits = torch.empty(shape, dtype=torch.float32, device=head.weight.device)
        logits = self._logits[: len(hidden)]
        if head.product is not None:
            logits.copy_(head.product(hidden)[:, : head.vocab_size])
        elif self._multiplies_half:
            torch.mm(hidden.to(head.weight.dtype), head.weight.T, out_dtype=torch.float32, out=logits)
        elif self._float32_block is None:
            torch.mm(hidden.float(), head.weight.T, out=logits)
        else:
            hidden = hidden.float()
            for start in range(0, head.vocab_size, self._block_rows):
                rows = head.weight[start : start + self._block_rows]
                block = self._float32_block[: len(rows)].copy_(rows)
                torch.mm(hidden, block.T, out=logits[:, start : start + self._block_rows])
        return head.finish(logits)

    def reduce(self, logits: Tensor, targets: Tensor) -> Scores:
        """Reduce logits (tokens, vocabulary) from this scorer to scores. On a CPU this may overwrite the logits."""
        # The target's logit is taken from the logits, not computed again. It is thus exactly equal to its own entry.
        target_logits = logits.gather(1, targets[:, None])
        if self._on_cuda:
            return Scores(self._reduce_on_cuda(logits, target_logits))
        if self._cpu_reduction is not None:
            return Scores(self._cpu_reduction(logits, target_logits))
        tile_tokens = min(self.chunk_tokens, max(1, TILE_LOGITS // logits.shape[1]))
        if self._scratch is None:
            self._scratch = torch.empty(tile_tokens, logits.shape[1])
        parts = []
        for start in range(0, len(logits), tile_tokens):
            tile = slice(start, start + tile_tokens)
            parts.append(eager_reduction(logits[tile], target_logits[tile], self._scratch))
        return Scores.concatenate(parts)

    def _reduce_on_cuda(self, logits: Tensor, target_logits: Tensor) -> dict[str, Tensor]:
        """Reduce with a kernel, or with eager operations if the two disagree on the first chunk."""
        if self._cuda_reduction is None:
            self._cuda_reduction, reason = choose_reduction(one_pass_reduction, logits, target_logits)
            if reason:
                self._add_note(f"the reduction of logits runs eagerly: {reason}")
        return self._cuda_reduction(logits, target_logits)


def can_fuse(head: Head) -> bool:
    """Return whether a head is on a GPU, suits the fused kernel, and is multiplied faster by it than by torch."""
    weight = head.weight
    is_half = weight.dtype in (torch.float16, torch.bfloat16)
    if weight.device.type != "cuda" or head.product is not None or not is_half or weight.stride(1) != 1:
        return False
    return weight.shape[1] < FUSED_WIDTH and weight.shape[1] % FUSED_UNITS == 0


def fused_scores(head: Head, hidden: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Compute the columns of `eager_reduction` with the fused kernel. Needs triton, which CUDA builds of torch have."""
    from rbptrack.scoring.kernels import score_fused

    return score_fused(head, hidden, targets)


def one_pass_reduction(logits: Tensor, target_logits: Tensor) -> dict[str, Tensor]:
    """Compute the columns of `eager_reduction` with a kernel that reads logits once. Needs triton."""
    from rbptrack.scoring.kernels import reduce_logits

    return reduce_logits(logits, target_logits)
