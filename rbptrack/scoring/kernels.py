"""CUDA kernels in Triton: the head's product and its reduction in one, and the reduction of given logits.

`score` never writes a logit. Each program takes a block of tokens and a stretch of the vocabulary. It first multiplies
its tokens with the rows of their own targets, in a product of the same shape and order as every other, so that a
target's logit and its competitors' are rounded alike; then it goes over its stretch tile by tile, counting what lies
above and those equal, and keeping a running maximum and sum of exponentials (Milakov and Gimelshein, arXiv
1805.02867). The target's own column counts for neither, so that a target can never differ from itself.

`reduce` reads logits once, for float32 products without TF32: Triton has no matrix instruction for those, cuBLAS does
better.

The tests run both in Triton's interpreter (TRITON_INTERPRET=1) and compile them for sm_80 and sm_90; neither needs a
GPU. Block sizes are chosen by reasoning: no speed of these kernels has been measured yet.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from rbptrack.scoring.scores import Scores, Sums

BLOCK_T, BLOCK_V = 128, 256  # tokens and entries in a tile of logits: as many as keep a Hopper's matrix units busy
WARPS = 8
STAGES = 3
REDUCE_V = 2048  # entries that `reduce` reads at a time
_SPLITS_AT_MOST = 64


@cache
def available(device: torch.device) -> bool:
    """Return whether the kernels can run on a device."""
    return device.type == "cuda" and find_spec("triton") is not None


def score(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None,
    softcap: float | None,
    scale: float,
    tf32: bool = False,
) -> Scores:
    """Return the scores of hidden states against a head, without logits and without a synchronisation.

    Args:
        hidden: (tokens, width).
        weight: (vocabulary, width); products are of its type, sums always float32.
        targets: (tokens,), int64.
        bias: (vocabulary,) or None.
        softcap: c in c * tanh(logits / c), or None.
        scale: factor on the logits.
        tf32: let float32 products round their factors to TF32.

    """
    tokens, width = hidden.shape
    vocabulary = weight.shape[0]
    hidden = hidden.to(weight.dtype)
    blocks = -(-tokens // BLOCK_T)
    splits = _splits(blocks, vocabulary, hidden.device)
    stretch = -(-vocabulary // (splits * BLOCK_V)) * BLOCK_V  # entries per program, whole tiles
    splits = -(-vocabulary // stretch)
    sums = Sums(splits, tokens, device=hidden.device)
    own = torch.empty(tokens, dtype=torch.float32, device=hidden.device)
    if tokens:
        with _on(hidden.device):
            _triton().head_kernel[(blocks, splits)](
                hidden,
                weight,
                weight if bias is None else bias,
                targets,
                sums.counts,
                sums.sums,
                own,
                tokens,
                vocabulary,
                stretch,
                splits,
                hidden.stride(0),
                weight.stride(0),
                float(scale),
                float(softcap or 1.0),
                WIDTH=width,
                HAS_BIAS=bias is not None,
                HAS_SOFTCAP=softcap is not None,
                PRECISION="tf32" if tf32 else "ieee",
                BLOCK_T=BLOCK_T,
                BLOCK_V=BLOCK_V,
                BLOCK_K=_step(weight),
                UPCAST=_interpreted(),
                num_warps=WARPS,
                num_stages=STAGES,
                enable_fp_fusion=False,  # a target's logit and its competitors' go through the same operations
            )
    return sums.scores(own)


def reduce(logits: Tensor, own: Tensor, *out: Tensor) -> None:
    """Write the `Sums` of logits (tokens, vocabulary), given the targets' logits (tokens,); ties count the target."""
    tokens, vocabulary = logits.shape
    if tokens:
        with _on(logits.device):
            _triton().reduce_kernel[(tokens,)](
                logits,
                own,
                *out,
                vocabulary,
                logits.stride(0),
                BLOCK_V=REDUCE_V,
                num_warps=8,
                enable_fp_fusion=False,
            )


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Return Triton launches on the thread's current device, which need not be the tensors'."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _splits(blocks: int, vocabulary: int, device: torch.device) -> int:
    """Return how many programs share a block of tokens, so that each of the device's processors has four."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    wanted = -(-4 * processors // max(blocks, 1))
    # A stretch of at least 16 tiles, so that the product with the targets' own rows stays a small share.
    return max(1, min(wanted, _SPLITS_AT_MOST, vocabulary // (16 * BLOCK_V)))


def _step(weight: Tensor) -> int:
    """Return features that are multiplied at a time: three stages of them fit in 99 KiB of shared memory, or in 227."""
    hopper = weight.device.type == "cuda" and torch.cuda.get_device_capability(weight.device) >= (9, 0)
    return (64 if hopper else 32) * 2 // weight.element_size()


def _interpreted() -> bool:
    """Return Triton's interpreter multiplies bfloat16 as if it were integers: there, factors become float32 first."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _triton() -> Any:
    return import_module("rbptrack.scoring.triton_kernels")  # needs Triton, which only CUDA needs
