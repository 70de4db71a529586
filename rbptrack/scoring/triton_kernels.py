"""The Triton kernel behind `kernels`: a module of its own, because importing it needs Triton."""
# mypy: ignore-errors

import triton
import triton.language as tl


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
    """(BLOCK_T, BLOCK_V) products of the rows that pointers (BLOCK_T,) and (BLOCK_V,) begin; float32 sums."""
    sums = tl.zeros((BLOCK_T, BLOCK_V), dtype=tl.float32)
    for low in range(0, WIDTH, BLOCK_K):
        at = low + tl.arange(0, BLOCK_K)
        inside = at < WIDTH
        h = tl.load(hidden[:, None] + at[None, :], mask=token_mask[:, None] & inside[None, :], other=0.0)
        w = tl.load(weight[None, :] + at[:, None], mask=entry_mask[None, :] & inside[:, None], other=0.0)
        if UPCAST:
            h, w = h.to(tl.float32), w.to(tl.float32)
        sums = tl.dot(h, w, sums, input_precision=PRECISION)
    return sums


@triton.jit
def _finish(x, offset, scale, softcap, HAS_SOFTCAP: tl.constexpr):
    """softcap(scale * (x + offset)); tanh by exponentials that cannot overflow."""
    x = (x + offset) * scale
    if HAS_SOFTCAP:
        x = x / softcap
        e = tl.exp(-2.0 * tl.abs(x))
        t = (1.0 - e) / (1.0 + e)
        x = tl.where(x >= 0, t, -t) * softcap
    return x


@triton.jit
def head_kernel(
    hidden,  # (tokens, width)
    weight,  # (vocabulary, width)
    bias,  # (vocabulary,), not read without HAS_BIAS
    targets,  # (tokens,), int64
    counts,  # out: (2, splits, tokens) int32: greater, ties
    sums,  # out: (2, splits, tokens) float32: maximum, sum of e**(logit - maximum)
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
    """One block of tokens against one stretch of the vocabulary: what `kernels.score` combines."""
    row = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    split = tl.program_id(1)
    token_mask = row < tokens
    target = tl.load(targets + row, mask=token_mask, other=0)
    rows = hidden + row.to(tl.int64) * hidden_stride

    # The targets' own logits: column j of this product belongs to token j modulo BLOCK_T, of which the diagonal counts.
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
    mine = tl.sum(tl.where(diagonal, x, 0.0), 1)  # (BLOCK_T,)

    greater = tl.zeros((BLOCK_T,), dtype=tl.int32)
    ties = tl.zeros((BLOCK_T,), dtype=tl.int32)
    highest = tl.full((BLOCK_T,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
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
        greater += tl.sum((other & (x > mine[:, None])).to(tl.int32), 1)
        ties += tl.sum((other & (x == mine[:, None])).to(tl.int32), 1)
        above = tl.maximum(highest, tl.max(x, 1))
        total = total * tl.exp(highest - above) + tl.sum(tl.exp(x - above[:, None]), 1)
        highest = above

    at = split * tokens + row
    tl.store(counts + at, greater, mask=token_mask)
    tl.store(counts + splits * tokens + at, ties, mask=token_mask)
    tl.store(sums + at, highest, mask=token_mask)
    tl.store(sums + splits * tokens + at, total, mask=token_mask)
    if split == 0:
        tl.store(own + row, mine, mask=token_mask)


@triton.jit
def reduce_kernel(
    logits,  # (tokens, vocabulary) float32
    targets,  # (tokens,), int64
    greater,  # out: (tokens,) int32
    ties,  # out: (tokens,) int32
    logprob,  # out: (tokens,) float32
    vocabulary,
    logits_stride,
    BLOCK_V: tl.constexpr,
):
    """One token's row of logits, read once."""
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * logits_stride
    mine = tl.load(row + tl.load(targets + token))
    column = tl.arange(0, BLOCK_V)
    above = tl.zeros((BLOCK_V,), dtype=tl.int32)
    equal = tl.zeros((BLOCK_V,), dtype=tl.int32)
    highest = tl.full((BLOCK_V,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_V,), dtype=tl.float32)
    for low in range(0, vocabulary, BLOCK_V):
        inside = low + column < vocabulary
        # The row's first entries stand in beyond its end: their maximum is known, and they are counted nowhere.
        x = tl.load(row + tl.where(inside, low + column, 0))
        above += (inside & (x > mine)).to(tl.int32)
        equal += (inside & (x == mine)).to(tl.int32)
        new = tl.maximum(highest, x)
        total = total * tl.exp(highest - new) + tl.where(inside, tl.exp(x - new), 0.0)
        highest = new
    top = tl.max(highest, 0)
    total_of_row = tl.sum(total * tl.exp(highest - top), 0)
    tl.store(greater + token, tl.sum(above, 0))
    tl.store(ties + token, tl.sum(equal, 0) - 1)
    tl.store(logprob + token, mine - top - tl.log(total_of_row))
