"""Reduce logits to scores with torch's operations, and compare faster reductions with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

_FLOAT32_ROUNDING = 2e-5  # the largest rounding error of a float32 logit, relative to the largest logit of its token
_SPAN = 256  # entries; a row is searched for its largest entry in spans of this length
_LOG2_E = math.log2(math.e)
_HAS_FMA = torch.backends.cpu.get_cpu_capability() not in ("DEFAULT", "NO AVX")  # a product and a sum round only once
_TOLERANCE = 1e-4  # nats; largest allowed difference between a kernel or compiled code and eager operations

Reduction = Callable[[Tensor, Tensor], dict[str, Tensor]]
"""A function that takes logits, (tokens, vocabulary), and the targets' logits, (tokens, 1).

It returns the columns of `Scores` that need no reference model, by name.
"""


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
    """Return whether ranks and strict ranks differ by at most `moves` places, and ln p and entropy by rounding.

    ln p of the target, ln p of the first choice and the entropy may differ by 1e-4 nats and by 1e-5 of their value.
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
