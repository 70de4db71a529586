"""How far ranks, RBP_k and CE move when weights, logits or products are rounded: the reason for the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rbptrack.config.schema import Dtype
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import batch_of, compose
from rbptrack.models.causal import CausalModel
from rbptrack.ranks import RankTable
from rbptrack.scoring.scorer import reference
from rbptrack.scoring.scores import Scores

KS = (1, 10, 100)
VARIANTS = {
    "float32": "weights and products in float32, the default",
    "tf32": "products of factors rounded to TF32's 10 bits, summed in float32 (simulated, as GPUs do it)",
    "bfloat16": "weights and hidden states in bfloat16, logits in float32: model.dtype=bfloat16",
    "float16": "weights and hidden states in float16, logits in float32: model.dtype=float16",
    "bfloat16 logits": "bfloat16 throughout, logits rounded too: what model(x).logits of a bfloat16 model gives",
}
_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Row:
    """One variant against float32, on the same tokens.

    Attributes:
        model, dataset, variant: what was compared.
        num_tokens: scored tokens.
        tie_rate: share of tokens whose logit another entry equals.
        moved: share of tokens whose rank is another than in float32.
        largest: the largest change of a rank.
        ce: change of CE, nats.
        rbp: change of RBP_k by k.

    """

    model: str
    dataset: str
    variant: str
    num_tokens: int
    tie_rate: float
    moved: float
    largest: int
    ce: float
    rbp: dict[int, float]


def compare(name: str, dataset: str, models: dict[Dtype, CausalModel], corpus: Corpus) -> list[Row]:
    """Every variant of `VARIANTS` for one model, given in each precision."""
    single, half = models[Dtype.float32], models[Dtype.bfloat16]

    def of(model: CausalModel) -> Callable[[Tensor], Tensor]:
        return lambda tokens: model.head.logits(model.backbone(tokens).flatten(0, 1))

    def tf32(tokens: Tensor) -> Tensor:
        with TF32():  # type: ignore[no-untyped-call]
            return of(single)(tokens)

    ways = {
        "float32": of(single),
        "tf32": tf32,
        "bfloat16": of(half),
        "float16": of(models[Dtype.float16]),
        "bfloat16 logits": lambda tokens: half.whole(tokens).flatten(0, 1).bfloat16(),
    }
    tables = {variant: _table(ways[variant], single, corpus) for variant in VARIANTS}
    base = tables["float32"]
    return [
        Row(
            model=name,
            dataset=dataset,
            variant=variant,
            num_tokens=len(table),
            tie_rate=table.tie_rate,
            moved=float((table.rank != base.rank).mean()),
            largest=int(np.abs(table.rank - base.rank).max()),
            ce=table.ce - base.ce,
            rbp={k: table.rbp(k) - base.rbp(k) for k in KS if k <= base.vocab_size},
        )
        for variant, table in tables.items()
    ]


@torch.inference_mode()
def _table(logits_of: Callable[[Tensor], Tensor], model: CausalModel, corpus: Corpus) -> RankTable:
    """Ranks by the definition, on full logits (sequences * length, vocabulary)."""
    target_index, scores = [], []
    for sequences in compose(corpus, range(len(corpus.start)), _BATCH_TOKENS):
        batch = batch_of(corpus, sequences).to(model.device)
        scores.append(reference(logits_of(batch.token_ids)[batch.state_index], batch.target_ids))
        target_index.append(batch.target_index)
    index, scored = torch.cat(target_index).cpu().numpy(), Scores.concatenate(scores)
    order = np.argsort(index)
    index = index[order]
    columns: dict[str, Any] = {name: column.cpu().numpy()[order] for name, column in scored.columns.items()}
    columns |= {n: getattr(corpus, n)[index] for n in ("document", "position", "field", "token")}
    return RankTable.from_arrays(vocab_size=model.vocab_size, **columns)


class TF32(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rounds the float32 factors of every matrix product to TF32 (8 bits of exponent, 10 of mantissa), to nearest.

    Attention's products included. For inference mode.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Round, then run the operation."""
        kwargs = kwargs or {}
        if func.overloadpacket is _aten.scaled_dot_product_attention:
            return _attention(*args, **kwargs)
        if func.overloadpacket in _PRODUCTS:
            first = _PRODUCTS[func.overloadpacket]
            args = (*args[:first], *(to_tf32(a) for a in args[first : first + 2]), *args[first + 2 :])
        return func(*args, **kwargs)


_aten: Any = torch.ops.aten
_PRODUCTS = {  # where their two factors begin; linear and matmul arrive whole in inference mode
    _aten.linear: 0,
    _aten.matmul: 0,
    _aten.mm: 0,
    _aten.bmm: 0,
    _aten.addmm: 1,
    _aten.baddbmm: 1,
}


def to_tf32(x: Tensor) -> Tensor:
    """The nearest TF32 number of each float32."""
    if x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention in products that are rounded, (batch, heads, length, width); an additive or boolean mask."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    weights = to_tf32(query) @ to_tf32(key).transpose(-1, -2) * (scale or query.shape[-1] ** -0.5)
    if is_causal:  # (batch, heads, length, length)
        attn_mask = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        weights = weights.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        weights = weights + attn_mask
    return to_tf32(torch.softmax(weights, -1)) @ to_tf32(value)
