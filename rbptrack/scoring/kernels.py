"""Triton kernels that turn hidden states or logits into scores on a GPU.

`score_fused` multiplies hidden states with the head and counts in one kernel. It never writes logits to memory.
`reduce_logits` reads logits that are in memory once. Both return the columns of `Scores` that need no reference model.

A rank needs the number of logits above and equal to the target's logit. These implementations, as of November 2026, do
not count:

- Liger-Kernel's fused linear cross-entropy writes chunks of logits in the precision of the hidden states and returns
  losses. Its kernel for Hopper GPUs keeps the logits on the chip, rounded to float16.
- cut-cross-entropy adds up exponentials tile by tile and computes the target's logit in another kernel. That logit can
  differ by rounding from the target's own entry, so other entries cannot be compared with it.
- verl's linear cross-entropy returns log-probability and entropy. It reads the target's logit from a tile during the
  sweep. The entries of earlier tiles cannot be compared with it any more.
- `torch.nn.functional.linear_cross_entropy` computes chunks of logits and returns losses.

`score_fused` computes the targets' logits before the sweep over the vocabulary: as entries of the product with the
rows weight[target], through a tile of the same shape and the same instructions as in the sweep. An entry of a tile
depends on its own row and column only. The target's logit is therefore bit-equal to its own entry in the sweep. This is
checked at each token: if a token finds no entry that equals its own logit, its ties are -1.

Import this module only where triton is installed. Builds of torch for CUDA bring triton. With the environment variable
TRITON_INTERPRET=1, the kernels run slowly on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from rbptrack.scoring.head import Head

_LOG2_E = tl.constexpr(1.4426950408889634)
_NOWHERE = tl.constexpr(2**31 - 1)  # above every column
_EQUAL = tl.constexpr(2**16)  # what an equal entry adds to the number in which a tile counts greater and equal entries

_PROGRAMS_PER_PROCESSOR = 8  # the last programs of a launch run on a part of the GPU; with 8 this costs about 5%
_MIN_TILES = 8  # tiles of a program; each program loads its tokens' addresses and logits once
_OTHER_SHARED_BYTES = 2048  # shared memory of a program for other purposes
LOGITS_COLUMNS = 4096  # entries that `reduce_logits` reads at once
LOGITS_WARPS = 8
EXACT = {"enable_fp_fusion": False}  # each operation rounds once, so one formula gives the same bits in both kernels


@dataclass(frozen=True)
class Tile:
    """The shape of a tile of the fused kernel.

    Attributes:
        rows: the number of tokens.
        columns: the number of vocabulary entries, at least `rows`.
        bytes: the number of bytes of each row and each column that are multiplied at once.
        stages: the number of pieces of hidden states and weights that are loaded ahead into shared memory.
        warps: the number of warps that compute a tile.
    """

    rows: int
    columns: int
    bytes: int
    stages: int
    warps: int

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a program for hidden states and weights."""
        return (self.rows + self.columns) * self.bytes * self.stages


TILES = (Tile(128, 256, 128, 3, 8), Tile(128, 128, 64, 3, 8))
"""The tiles, the fastest first. They need 147 KB and 49 KB of shared memory."""


def score_fused(
    head: Head, hidden: Tensor, targets: Tensor, *, tile: Tile | None = None, parts: int | None = None
) -> dict[str, Tensor]:
    """Score hidden states without logits in memory. Sums are float32, products of half-precision factors are exact.

    Args:
        head: a head whose weight (vocabulary, width) is float32, bfloat16 or float16. Its rows are contiguous. The
            width is a multiple of the number of hidden units that are multiplied at once: tile.bytes / bytes of a unit.
        hidden: hidden states, (tokens, width), with at least one token. They are rounded to the weight's dtype.
        targets: the targets' ids, (tokens,), int64.
        tile: the shape of a tile. By default `fitting_tile` chooses it.
        parts: the number of parts of the vocabulary that are swept at the same time. By default it is chosen for the
            GPU. It changes ln p and entropy by rounding, and nothing else.

    Returns:
        The columns of `Scores` that need no reference model, (tokens,) each. Ties are -1 at a token that finds no entry
        equal to its own logit.
    """
    weight = head.weight
    hidden = hidden.to(weight.dtype).contiguous()
    tokens, width = hidden.shape
    entries = head.vocab_size
    tile = tile or fitting_tile(head)
    row_blocks = triton.cdiv(tokens, tile.rows)
    if parts is None:
        processors = torch.cuda.get_device_properties(weight.device).multi_processor_count
        most_parts = triton.cdiv(entries, tile.columns * _MIN_TILES)
        parts = min(triton.cdiv(processors * _PROGRAMS_PER_PROCESSOR, row_blocks), most_parts)
    part_entries = triton.cdiv(triton.cdiv(entries, parts), tile.columns) * tile.columns
    parts = triton.cdiv(entries, part_entries)
    is_ranked = None
    if head.excluded_ids is not None:
        is_ranked = torch.ones(entries, dtype=torch.uint8, device=weight.device).index_fill_(0, head.excluded_ids, 0)
    own = torch.empty(tokens, dtype=torch.float32, device=weight.device)
    counts = torch.empty(3, parts, tokens, dtype=torch.int32, device=weight.device)
    sums = torch.empty(3, parts, tokens, dtype=torch.float32, device=weight.device)
    scale = None if head.scale == 1.0 else head.scale
    head_arguments = (width, hidden.stride(0), weight.stride(0), weight, head.bias, is_ranked, scale, head.softcap)
    options = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.bytes // weight.element_size(),
        "UPCAST": not weight.is_cuda,  # numpy, which the interpreter uses, cannot multiply bfloat16
        "num_stages": tile.stages,
        "num_warps": tile.warps,
        **EXACT,
    }
    with torch.cuda.device_of(weight):
        _target_kernel[(row_blocks,)](hidden, targets, own, tokens, *head_arguments, **options)
        _sweep_kernel[(row_blocks, parts)](
            hidden, own, counts, sums, tokens, entries, part_entries, *head_arguments, **options
        )
    return _scores(own, counts, sums)


def reduce_logits(logits: Tensor, target_logits: Tensor) -> dict[str, Tensor]:
    """Compute the columns of `Scores` that need no reference model, (tokens,) each, from logits in memory.

    Args:
        logits: logits, (tokens, vocabulary), float32, with contiguous rows.
        target_logits: the targets' logits, (tokens, 1), taken from `logits`.
    """
    tokens, entries = logits.shape
    own = target_logits[:, 0].contiguous()
    counts = torch.empty(3, 1, tokens, dtype=torch.int32, device=logits.device)
    sums = torch.empty(3, 1, tokens, dtype=torch.float32, device=logits.device)
    with torch.cuda.device_of(logits):
        _logits_kernel[(tokens,)](
            logits,
            own,
            counts,
            sums,
            tokens,
            entries,
            logits.stride(0),
            COLUMNS=LOGITS_COLUMNS,
            num_warps=LOGITS_WARPS,
            **EXACT,
        )
    return _scores(own, counts, sums)


def fitting_tile(head: Head) -> Tile:
    """Return the first tile that fits into the shared memory of a program on the head's GPU.

    A head with a softcap gets the smallest tile. In a larger one, the formula of tanh needs more registers than there
    are.
    """
    properties = torch.cuda.get_device_properties(head.weight.device)
    available = getattr(properties, "shared_memory_per_block_optin", 0)  # torch does not report it for AMD's GPUs
    fitting = [tile for tile in TILES if tile.shared_bytes + _OTHER_SHARED_BYTES <= available]
    return fitting[0] if fitting and head.softcap is None else TILES[-1]


def _scores(own: Tensor, counts: Tensor, sums: Tensor) -> dict[str, Tensor]:
    """Combine the parts of the vocabulary. The formulas are those of `eager_reduction`.

    Args:
        own: the targets' logits, (tokens,).
        counts: number of greater entries, of equal entries, and first id of the largest logit, (3, parts, tokens).
        sums: largest logit, sum of e^(x - largest), and sum of (x - largest) e^(x - largest), (3, parts, tokens).
    """
    greater, equal, top = counts.unbind()
    highest, total, weighted = sums.unbind()
    overall_highest, part = highest.max(0)  # of several equal parts, torch returns the first
    step = highest - overall_highest
    fading = step.exp()
    step = step.masked_fill(fading == 0, 0.0)  # -inf for a part without ranked entries
    weighted = (fading * (weighted + step * total)).sum(0)
    total = (fading * total).sum(0)
    log_total = total.log().clamp(min=0)
    return {
        "greater": greater.sum(0, dtype=torch.int32),
        "ties": equal.sum(0, dtype=torch.int32) - 1,
        "logprob": (own - overall_highest - log_total).clamp(max=0),
        "entropy": (log_total - weighted / total).clamp(min=0),
        "top": top.gather(0, part[None])[0],
        "top_logprob": -log_total,
    }


@triton.jit
def _tanh(x):
    """Return tanh(x), float32. Triton's own tanh does not run in its interpreter."""
    square = x * x
    # The polynomial is fitted to (tanh(x) - x) / x^3 for |x| < 0.6. The relative error of tanh(x) is then below 1e-8.
    series = -0.0538035855 + square * (0.020868225 + square * -0.00598506117)
    small = x + x * square * (-0.333333045 + square * (0.13332133 + square * series))
    decay = tl.exp(-2.0 * tl.abs(x))
    large = 1.0 - 2.0 * decay / (1.0 + decay)
    return tl.where(square < 0.36, small, tl.where(x < 0, -large, large))


@triton.jit
def _finish(product, bias, scale, softcap):
    """Turn products into logits, as `Head.finish` does. What is None is left out."""
    logits = product
    if bias is not None:
        logits = logits + bias
    if scale is not None:
        logits = logits * scale
    if softcap is not None:
        logits = _tanh(logits / softcap) * softcap
    return logits


@triton.jit
def _multiply(
    hidden_rows,
    weight_rows,
    width,
    UPCAST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Return the float32 product (ROWS, COLUMNS) of rows of hidden states and of weights, given their addresses."""
    unit = tl.arange(0, DEPTH)
    product = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, width, DEPTH):
        hidden = tl.load(hidden_rows[:, None] + (start + unit)[None, :])
        weight = tl.load(weight_rows[:, None] + (start + unit)[None, :])
        if UPCAST:
            hidden = hidden.to(tl.float32)
            weight = weight.to(tl.float32)
        product = tl.dot(hidden, tl.trans(weight), product, input_precision="ieee")
    return product


@triton.jit
def _absorb(logits, start, own, greater, equal, top, highest, total, weighted):
    """Add a tile of logits (rows, columns) to the counts and sums of its rows, (rows,) each. Return these.

    Logits that do not count are -inf. `start` is the id of the tile's first column, above all earlier columns.
    """
    COLUMNS: tl.constexpr = logits.shape[1]
    found = tl.sum(tl.where(logits > own[:, None], 1, tl.where(logits == own[:, None], _EQUAL, 0)), axis=1)
    greater += found % _EQUAL
    equal += found // _EQUAL
    tile_highest = tl.max(logits, axis=1)
    # Columns are counted from the tile's first: their numbers are constants, which take no registers.
    is_highest = logits == tile_highest[:, None]
    tile_top = start + tl.min(tl.where(is_highest, tl.arange(0, COLUMNS)[None, :], _NOWHERE), axis=1)
    top = tl.where(tile_highest > highest, tile_top, top)
    new_highest = tl.maximum(highest, tile_highest)
    # While all logits are -inf, 0 replaces the largest logit, because the difference of two -inf would be NaN.
    origin = tl.where(new_highest == float("-inf"), 0.0, new_highest)
    below = logits - origin[:, None]
    terms = tl.exp2(below * _LOG2_E)
    step = tl.where(highest == float("-inf"), 0.0, highest - origin)
    fading = tl.exp2(step * _LOG2_E)
    weighted = fading * (weighted + step * total) + tl.sum(tl.where(terms > 0, below, 0.0) * terms, axis=1)
    total = fading * total + tl.sum(terms, axis=1)
    return greater, equal, top, new_highest, total, weighted


@triton.jit
def _store(counts, sums, place, size, is_row, greater, equal, top, highest, total, weighted):
    """Store counts and sums at `place`. The arrays of two of them are `size` numbers apart."""
    tl.store(counts + place, greater, mask=is_row)
    tl.store(counts + size + place, equal, mask=is_row)
    tl.store(counts + 2 * size + place, top, mask=is_row)
    tl.store(sums + place, highest, mask=is_row)
    tl.store(sums + size + place, total, mask=is_row)
    tl.store(sums + 2 * size + place, weighted, mask=is_row)


@triton.jit
def _target_kernel(
    hidden,
    targets,
    own,
    tokens,
    width,
    hidden_stride,
    weight_stride,
    weight,
    bias,
    is_ranked,
    scale,
    softcap,
    UPCAST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Compute the targets' logits `own` of ROWS tokens: the diagonal of the product with the rows weight[target]."""
    first = tl.program_id(0) * ROWS
    row = first + tl.arange(0, ROWS)
    hidden_rows = hidden + tl.minimum(row, tokens - 1).to(tl.int64) * hidden_stride
    # A tile has at least as many columns as rows. The columns after the rows' targets are not used.
    column = first + tl.arange(0, COLUMNS)
    target = tl.load(targets + tl.minimum(column, tokens - 1))
    weight_rows = weight + target * weight_stride
    product = _multiply(hidden_rows, weight_rows, width, UPCAST, ROWS, COLUMNS, DEPTH)
    product = tl.sum(tl.where(row[:, None] == column[None, :], product, 0.0), axis=1)
    target = tl.load(targets + tl.minimum(row, tokens - 1))
    column_bias = None
    if bias is not None:
        column_bias = tl.load(bias + target).to(tl.float32)
    logits = _finish(product, column_bias, scale, softcap)
    if is_ranked is not None:
        logits = tl.where(tl.load(is_ranked + target) != 0, logits, float("-inf"))
    tl.store(own + row, logits, mask=row < tokens)


@triton.jit
def _sweep_kernel(
    hidden,
    own,
    counts,
    sums,
    tokens,
    entries,
    part_entries,
    width,
    hidden_stride,
    weight_stride,
    weight,
    bias,
    is_ranked,
    scale,
    softcap,
    UPCAST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Count and add up the logits of ROWS tokens over one part of the vocabulary, tile by tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    is_row = row < tokens
    hidden_rows = hidden + tl.minimum(row, tokens - 1).to(tl.int64) * hidden_stride
    own_logit = tl.load(own + row, mask=is_row, other=0.0)
    greater = tl.zeros((ROWS,), dtype=tl.int32)
    equal = tl.zeros((ROWS,), dtype=tl.int32)
    top = tl.zeros((ROWS,), dtype=tl.int32)
    highest = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    weighted = tl.zeros((ROWS,), dtype=tl.float32)
    begin = part * part_entries
    end = tl.minimum(begin + part_entries, entries)
    for start in range(begin, end, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        counts_here = column < end
        column = tl.minimum(column, entries - 1)
        weight_rows = weight + column.to(tl.int64) * weight_stride
        product = _multiply(hidden_rows, weight_rows, width, UPCAST, ROWS, COLUMNS, DEPTH)
        column_bias = None
        if bias is not None:
            column_bias = tl.load(bias + column).to(tl.float32)[None, :]
        logits = _finish(product, column_bias, scale, softcap)
        if is_ranked is not None:
            counts_here = counts_here & (tl.load(is_ranked + column) != 0)
        logits = tl.where(counts_here[None, :], logits, float("-inf"))
        greater, equal, top, highest, total, weighted = _absorb(
            logits, start, own_logit, greater, equal, top, highest, total, weighted
        )
    size = tokens * tl.num_programs(1)
    _store(counts, sums, part * tokens + row, size, is_row, greater, equal, top, highest, total, weighted)


@triton.jit
def _logits_kernel(logits, own, counts, sums, tokens, entries, stride, COLUMNS: tl.constexpr):
    """Count and add up the logits of one token, which are in memory."""
    row = tl.program_id(0) + tl.arange(0, 1)
    address = logits + tl.program_id(0).to(tl.int64) * stride
    own_logit = tl.load(own + row)
    greater = tl.zeros((1,), dtype=tl.int32)
    equal = tl.zeros((1,), dtype=tl.int32)
    top = tl.zeros((1,), dtype=tl.int32)
    highest = tl.full((1,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((1,), dtype=tl.float32)
    weighted = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, entries, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        tile = tl.load(address + column, mask=column < entries, other=float("-inf"))[None, :]
        greater, equal, top, highest, total, weighted = _absorb(
            tile, start, own_logit, greater, equal, top, highest, total, weighted
        )
    _store(counts, sums, row, tokens, row < tokens, greater, equal, top, highest, total, weighted)
