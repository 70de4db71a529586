"""Computes ranks in constant memory: at most the logits of one chunk of tokens are in memory at any time.

There are three ways from hidden states to scores:

- On a GPU, a fused kernel multiplies and counts at once, without logits in memory, if `can_fuse` says so.
- For other heads on a GPU, torch multiplies. A kernel then reads the chunk's logits once.
- On a CPU, torch multiplies. A chunk is reduced to scores in smaller tiles, which fit into the processor's cache.

Both kernels are compared with eager operations on the first tokens. If the numbers differ, or a kernel does not run,
the next way takes its place, and a note says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rbptrack.scoring.head import Head
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

_FLOAT32_ROUNDING = 2e-5  # the largest rounding error of a float32 logit, relative to the largest logit of its token
_WEIGHTS_BLOCK = 4_000_000  # half-precision weights that are converted to float32 at once; they take 16 MB
_SPAN = 256  # entries; a row is searched for its largest entry in spans of this length
_LOG2_E = math.log2(math.e)
_HAS_FMA = torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "NO AVX")  # a product and a sum round only once
_MM_HAS_OUT_DTYPE = hasattr(torch.ops.aten.mm, "dtype_out")  # torch 2.8: float32 products of half-precision factors
_TOLERANCE = 1e-4  # nats; largest allowed difference between a kernel or compiled code and eager operations
_CHECKED_TOKENS = 512  # tokens on which the fused kernel is compared with eager operations

Reduction = Callable[[Tensor, Tensor], dict[str, Tensor]]
"""A function that takes logits, (tokens, vocabulary), and the targets' logits, (tokens, 1).

It returns the columns of `Scores` that need no reference model, by name.
"""


class Scorer:
    """Scores targets from hidden states with one head. Its buffers are allocated when they are first needed.

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
        self._tile_tokens = chunk_tokens if self._on_cuda else min(chunk_tokens, max(1, TILE_LOGITS // vocabulary))
        self._scratch = None if self._on_cuda else torch.empty(self._tile_tokens, vocabulary)
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
        parts = []
        for start in range(0, len(logits), self._tile_tokens):
            tile = slice(start, start + self._tile_tokens)
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


def eager_reduction(logits: Tensor, target_logits: Tensor, scratch: Tensor | None = None) -> dict[str, Tensor]:
    """Compute the columns of `Scores` that need no reference model, (tokens,) each, with torch's eager operations.

    The formulas, with Z = sum of e^(x - x_max):

        ln p(target) = x - x_max - ln Z
        entropy H = ln Z - sum of (x - x_max) e^(x - x_max) / Z

    Args:
        logits: logits, (tokens, vocabulary), float32. They are overwritten if `scratch` is given.
        target_logits: the targets' logits, (tokens, 1).
        scratch: a float32 tensor for temporary results, at least as large as the logits, or None. If it is given,
            comparisons give 0.0 and 1.0 instead of booleans. Summing floats is several times faster, and exact below
            2^24.
    """
    in_place = scratch is not None
    if scratch is not None:
        scratch = scratch[: len(logits)]
    greater = torch.gt(logits, target_logits, out=scratch).sum(1)
    equal = torch.eq(logits, target_logits, out=scratch).sum(1)
    highest, top = row_maxima(logits)  # (tokens, 1)
    # e^(x - x_max) is computed as a power of two: exp2 takes a third of exp's time on a CPU, and subtraction and change
    # of base are one operation. The exponent of the maximum should be 0 but is `offset`, the rounding error of
    # x_max log2(e). All entries have this error, so it is taken out. The largest error against float64 was 3e-6 nats,
    # also for logits of 10,000. This needs a processor that multiplies and adds with one rounding.
    if logits.is_cuda or _HAS_FMA:
        powers = torch.add(highest * -_LOG2_E, logits, alpha=_LOG2_E, out=logits if in_place else None)
    else:
        powers = torch.sub(logits, highest, out=logits if in_place else None).mul_(_LOG2_E)
    offset = powers.gather(1, top)[:, 0]
    scale = torch.exp2(-offset)
    terms = torch.exp2(powers, out=scratch)
    total = terms.sum(1) * scale
    products = torch.mul(terms, powers, out=powers if in_place else None)
    weighted = products.nansum(1)  # the product of an entry that is left out, 0 * -inf, is NaN
    weighted = weighted * (scale / _LOG2_E) - offset / _LOG2_E * total
    log_total = total.log().clamp(min=0)
    return {
        "greater": greater.int(),
        "ties": equal.int() - 1,
        "logprob": (target_logits[:, 0] - highest[:, 0] - log_total).clamp(max=0),
        "entropy": (log_total - weighted / total).clamp(min=0),
        "top": top[:, 0].int(),
        "top_logprob": -log_total,
    }


def row_maxima(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest entry of each row of logits (tokens, vocabulary) and its first index, (tokens, 1) each.

    On a CPU, torch takes ten times as long for the index of a maximum in a long row as for the maximum. The maxima of
    spans are therefore computed first, and the index is then sought in one span.
    """
    if logits.is_cuda:
        top = logits.argmax(1, keepdim=True)  # torch returns the first of several equal entries
        return logits.gather(1, top), top
    vocabulary = logits.shape[1]
    in_whole_spans = vocabulary - vocabulary % _SPAN
    maxima = logits[:, :in_whole_spans].view(len(logits), -1, _SPAN).amax(2)  # (tokens, spans)
    if in_whole_spans < vocabulary:
        maxima = torch.cat([maxima, logits[:, in_whole_spans:].amax(1, keepdim=True)], 1)
    span = maxima.argmax(1, keepdim=True)
    indices = (span * _SPAN + torch.arange(_SPAN, device=logits.device)).clamp(max=vocabulary - 1)
    top = indices.gather(1, logits.gather(1, indices).argmax(1, keepdim=True))
    return maxima.gather(1, span), top


def choose_reduction(candidate: Reduction, logits: Tensor, target_logits: Tensor) -> tuple[Reduction, str]:
    """Return a reduction if it agrees with eager operations on some logits, otherwise `eager_reduction`.

    Also returns why the candidate is not used; an empty string if it is used. Raises torch.OutOfMemoryError if the
    memory does not suffice for this check.
    """
    expected = eager_reduction(logits, target_logits)
    try:
        computed = candidate(logits, target_logits)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers fail in many ways, for example if there is none
        return eager_reduction, f"it cannot be compiled ({type(error).__name__})"
    is_finite = expected["logprob"].isfinite()
    if agree(computed, expected, moves=0) and torch.equal(computed["top"][is_finite], expected["top"][is_finite]):
        return candidate, ""
    return eager_reduction, "its numbers differ from those of eager operations"


def agree(computed: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, moves: Tensor | int) -> bool:
    """Return whether ranks and strict ranks differ by at most `moves` places, and ln p and entropy by 1e-4 nats.

    Both must have a finite ln p at the same tokens. Only these tokens are compared. `moves` is a number or (tokens,).
    """
    is_finite = expected["logprob"].isfinite()
    if not torch.equal(computed["logprob"].isfinite(), is_finite):
        return False
    for name in ("logprob", "entropy", "top_logprob"):
        pair = (computed[name][is_finite], expected[name][is_finite])
        if not torch.allclose(*pair, rtol=1e-5, atol=_TOLERANCE):
            return False
    strict_moves = computed["greater"] - expected["greater"]
    rank_moves = strict_moves + computed["ties"] - expected["ties"]
    return bool((torch.maximum(strict_moves.abs(), rank_moves.abs()) <= moves)[is_finite].all())


def rounding_errors(logits: Tensor) -> Tensor:
    """Return the largest rounding error of each token's logits in float32, (tokens, 1)."""
    return _FLOAT32_ROUNDING * logits.nan_to_num(0.0, 0.0, 0.0).abs().amax(1, keepdim=True).clamp(min=1)
