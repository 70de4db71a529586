"""The Triton kernel behind `kernels`: a module of its own, because importing it needs Triton."""
# mypy: ignore-errors

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-1e30)  # below every logit that counts, and no infinity, whose differences are NaN
NO_ENTRY = tl.constexpr(2147483647)
_VARY = ["tokens", "vocabulary", "stretch", "splits"]  # no variant of a kernel for the values that happen to be even


@triton.jit
def _rescaled(highest, new, total, weighted):
    """Return both sums of exponentials, relative to a new maximum instead of `highest`."""
    shift = highest - new
    factor = tl.exp2(shift * LOG2_E)
    return total * factor, tl.where(total > 0, weighted + shift * total, 0.0) * factor


@triton.jit
def _product(
    hidden,
    weight,
    token_mask,
    entry_mask,
    WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Return (BLOCK_T, BLOCK_V) products of the rows that pointers (BLOCK_T,) and (BLOCK_V,) begin; float32 sums."""
    sums = tl.zeros((BLOCK_T, BLOCK_V), dtype=tl.float32)
    for low in range(0, WIDTH, BLOCK_K):
        at = low + tl.arange(0, BLOCK_K)
        inside = at < WIDTH
        h = tl.load(hidden[:, None] + at[None, :], mask=token_mask[:, None] & inside[None, :], other=0.0)
        w = tl.load(weight[None, :] + at[:, None], mask=entry_mask[None, :] & inside[:, None], other=0.0)
        if UPCAST:
            h = h.to(tl.float32)
            w = w.to(tl.float32)
        sums = tl.dot(h, w, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _finish(x, offset, scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """Return softcap(scale * (x + offset)); tanh by exponentials that cannot overflow."""
    x = (x + offset) * scale
    if HAS_SOFTCAP:
        x = x / softcap
        e = tl.exp(-2.0 * tl.abs(x))
        t = (1.0 - e) / (1.0 + e)
        x = tl.where(x >= 0, t, -t) * softcap
    return x


@triton.jit(do_not_specialize=_VARY)
def head_kernel(
    hidden,  # (tokens, width)
    weight,  # (vocabulary, width)
    bias,  # (vocabulary,), not read without HAS_BIAS
    targets,  # (tokens,), int64
    counts,  # out: (3, splits, tokens) int32: greater, ties, first of the largest
    sums,  # out: (3, splits, tokens) float32: maximum, sum of e**z with z = logit - maximum, sum of z e**z
    own,  # out: (tokens,) float32: the target's logit
    tokens,
    vocabulary,
    stretch,
    splits,
    hidden_stride,
    weight_stride,
    scale,
    softcap,
    WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_K: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Score one block of tokens against one stretch of the vocabulary; `kernels.score` combines them."""
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    split = tl.program_id(1)
    token_mask = row < tokens
    target = tl.load(targets + row, mask=token_mask, other=0)
    rows = hidden + row.to(tl.int64) * hidden_stride

    # The targets' own logits: column j of this product belongs to token j modulo BLOCK_T; only the diagonal counts.
    column = tl.arange(0, BLOCK_V)
    wanted = tl.program_id(0) * BLOCK_T + column % BLOCK_T
    theirs = tl.load(targets + wanted, mask=wanted < tokens, other=0)
    entry_mask = column < BLOCK_T
    x = _product(
        rows,
        weight + theirs * weight_stride,
        token_mask,
        entry_mask,
        WIDTH,
        PRECISION,
        BLOCK_T,
        BLOCK_V,
        BLOCK_K,
        UPCAST,
    )
    offset = tl.load(bias + theirs).to(tl.float32) if HAS_BIAS else tl.zeros((BLOCK_V,), dtype=tl.float32)
    x = _finish(x, offset[None, :], scale, softcap, HAS_SOFTCAP)
    diagonal = column[None, :] == tl.arange(0, BLOCK_T)[:, None]
    own_logit = tl.sum(tl.where(diagonal, x, 0.0), 1)  # (BLOCK_T,)

    greater = tl.zeros((BLOCK_T,), dtype=tl.int32)
    ties = tl.zeros((BLOCK_T,), dtype=tl.int32)
    top = tl.full((BLOCK_T,), NO_ENTRY, dtype=tl.int32)
    highest = tl.full((BLOCK_T,), LOWEST, dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    weighted = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for low in range(split * stretch, tl.minimum((split + 1) * stretch, vocabulary), BLOCK_V):
        entry = low + column
        inside = entry < vocabulary
        x = _product(
            rows,
            weight + entry.to(tl.int64) * weight_stride,
            token_mask,
            inside,
            WIDTH,
            PRECISION,
            BLOCK_T,
            BLOCK_V,
            BLOCK_K,
            UPCAST,
        )
        offset = (
            tl.load(bias + entry, mask=inside, other=0.0).to(tl.float32)
            if HAS_BIAS
            else tl.zeros((BLOCK_V,), dtype=tl.float32)
        )
        x = _finish(x, offset[None, :], scale, softcap, HAS_SOFTCAP)
        x = tl.where(inside[None, :], x, float("-inf"))
        other = inside[None, :] & (entry[None, :] != target[:, None])
        greater += tl.sum((other & (x > own_logit[:, None])).to(tl.int32), 1)
        ties += tl.sum((other & (x == own_logit[:, None])).to(tl.int32), 1)
        largest = tl.max(x, 1)
        better = largest > highest
        if tl.sum(better.to(tl.int32), 0) > 0:  # seldom, once the first tiles are behind
            first = tl.min(tl.where(x == largest[:, None], entry[None, :], NO_ENTRY), 1)
            top = tl.where(better, first, top)
        new = tl.maximum(highest, largest)
        total, weighted = _rescaled(highest, new, total, weighted)
        z = x - new[:, None]
        terms = tl.exp2(z * LOG2_E)
        total += tl.sum(terms, 1)
        weighted += tl.sum(tl.maximum(z, LOWEST) * terms, 1)
        highest = new

    at = split * tokens + row
    tl.store(counts + at, greater, mask=token_mask)
    tl.store(counts + splits * tokens + at, ties, mask=token_mask)
    tl.store(counts + 2 * splits * tokens + at, top, mask=token_mask)
    tl.store(sums + at, highest, mask=token_mask)
    tl.store(sums + splits * tokens + at, total, mask=token_mask)
    tl.store(sums + 2 * splits * tokens + at, weighted, mask=token_mask)
    if split == 0:
        tl.store(own + row, own_logit, mask=token_mask)


@triton.jit(do_not_specialize=["vocabulary"])
def reduce_kernel(
    logits,  # (tokens, vocabulary) float32
    own,  # (tokens,) float32: the target's logit, which may stand in another process's rows
    greater,  # out: (tokens,) int32
    equal,  # out: (tokens,) int32
    top,  # out: (tokens,) int32: first of the largest
    maximum,  # out: (tokens,) float32
    sum_of_exponentials,  # out: (tokens,) float32: of e**z with z = logit - maximum
    sum_of_products,  # out: (tokens,) float32: of z e**z
    vocabulary,
    logits_stride,
    BLOCK_V: tl.constexpr,
):
    """Read one token's row of logits once and reduce it."""
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * logits_stride
    own_logit = tl.load(own + token)
    column = tl.arange(0, BLOCK_V)
    above = tl.zeros((BLOCK_V,), dtype=tl.int32)
    same = tl.zeros((BLOCK_V,), dtype=tl.int32)
    first = tl.full((BLOCK_V,), NO_ENTRY, dtype=tl.int32)
    highest = tl.full((BLOCK_V,), LOWEST, dtype=tl.float32)
    total = tl.zeros((BLOCK_V,), dtype=tl.float32)
    weighted = tl.zeros((BLOCK_V,), dtype=tl.float32)
    for low in range(0, vocabulary, BLOCK_V):
        entry = low + column
        inside = entry < vocabulary
        x = tl.load(row + entry, mask=inside, other=float("-inf"))
        above += (inside & (x > own_logit)).to(tl.int32)
        same += (inside & (x == own_logit)).to(tl.int32)
        first = tl.where(x > highest, entry, first)
        new = tl.maximum(highest, x)
        total, weighted = _rescaled(highest, new, total, weighted)
        z = x - new
        terms = tl.exp2(z * LOG2_E)
        total += terms
        weighted += tl.maximum(z, LOWEST) * terms  # where z is -inf, the term is 0
        highest = new
    largest = tl.max(highest, 0)
    total, weighted = _rescaled(highest, largest, total, weighted)
    tl.store(greater + token, tl.sum(above, 0))
    tl.store(equal + token, tl.sum(same, 0))
    tl.store(top + token, tl.min(tl.where(highest == largest, first, NO_ENTRY), 0))
    tl.store(maximum + token, largest)
    tl.store(sum_of_exponentials + token, tl.sum(total, 0))
    tl.store(sum_of_products + token, tl.sum(weighted, 0))
