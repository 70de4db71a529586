"""How far ranks, RBP_k and CE move when weights, logits or products are rounded: the reason for the default.

    python -m tools.precision 'nano/*' stdlib,pydocs [--tokens 16384] [--base float32|float64] [--out FILE.json]

TF32 is simulated: factors are rounded as GPUs round them, and summed in float32 (tensor cores sum in a little less).
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rbptrack.bench import machine
from rbptrack.config.compose import Composer
from rbptrack.config.patterns import chosen, split_list
from rbptrack.config.schema import Dtype
from rbptrack.console.output import say
from rbptrack.console.tables import table
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine.batches import batch_of, compose
from rbptrack.models.causal import CausalModel
from rbptrack.ranks import RankTable
from rbptrack.scoring.scorer import reference
from rbptrack.scoring.scores import Scores
from rbptrack.sweep.resolve import Resolver

KS = (1, 10, 100)
VARIANTS = {
    "float64": "weights and products in float64",
    "float32": "weights and products in float32, the default",
    "float32, one at a time": "likewise, in batches of one sequence instead of 2,048 tokens",
    "tf32 split": "float32 activations as the sum of two TF32 numbers: two products with weights that TF32 holds, three else",
    "tf32": "products of factors rounded to TF32's 10 bits, summed in float32",
    "bfloat16": "weights and hidden states in bfloat16, logits in float32: model.dtype=bfloat16",
    "float16": "weights and hidden states in float16, logits in float32: model.dtype=float16",
    "bfloat16 logits": "bfloat16 throughout, logits rounded too: what model(x).logits of a bfloat16 model gives",
}
_BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Row:
    """One variant against the base, on the same tokens.

    Attributes:
        model, dataset, variant: what was compared.
        num_tokens: scored tokens.
        tie_rate: share of tokens whose logit another entry equals.
        moved: share of tokens whose rank is another than in the base.
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


LogitsOf = Callable[[Tensor], Tensor]


def compare(name: str, dataset: str, models: dict[Dtype, CausalModel], corpus: Corpus, *, base: str) -> list[Row]:
    """Compare every variant of a model, given in each precision, with the base, a name of `VARIANTS`."""
    single, half = models[Dtype.float32], models[Dtype.bfloat16]
    ways: dict[str, tuple[LogitsOf, int]] = {
        "float64": (_in_float64(single), _BATCH_TOKENS),
        "float32": (_logits(single), _BATCH_TOKENS),
        "float32, one at a time": (_logits(single), 1),
        "tf32 split": (_rounding(single, split=True), _BATCH_TOKENS),
        "tf32": (_rounding(single, split=False), _BATCH_TOKENS),
        "bfloat16": (_logits(half), _BATCH_TOKENS),
        "float16": (_logits(models[Dtype.float16]), _BATCH_TOKENS),
        "bfloat16 logits": (lambda tokens: half.whole(tokens).flatten(0, 1).bfloat16(), _BATCH_TOKENS),
    }
    tables = {variant: _table(*ways[variant], single, corpus) for variant in VARIANTS}
    origin = tables[base]
    return [
        Row(
            model=name,
            dataset=dataset,
            variant=variant,
            num_tokens=len(ranks),
            tie_rate=ranks.tie_rate,
            moved=float((ranks.rank != origin.rank).mean()),
            largest=int(np.abs(ranks.rank - origin.rank).max()),
            ce=ranks.ce - origin.ce,
            rbp={k: ranks.rbp(k) - origin.rbp(k) for k in KS if k <= origin.vocab_size},
        )
        for variant, ranks in tables.items()
    ]


def _logits(model: CausalModel) -> LogitsOf:
    """Return the logits as rbptrack computes them, (sequences * length, vocabulary)."""
    return lambda tokens: model.head.logits(model.backbone(tokens).flatten(0, 1))


def _rounding(model: CausalModel, *, split: bool) -> LogitsOf:
    def logits(tokens: Tensor) -> Tensor:
        with TF32(split=split):
            return _logits(model)(tokens)

    return logits


def _in_float64(model: CausalModel) -> LogitsOf:
    module = copy.deepcopy(model.backbone._module).double()  # type: ignore[attr-defined]
    return lambda tokens: module(tokens).logits.flatten(0, 1)[:, : model.vocab_size]


@torch.inference_mode()
def _table(logits_of: LogitsOf, batch_tokens: int, model: CausalModel, corpus: Corpus) -> RankTable:
    """Ranks by the definition, on full logits."""
    target_index, scores = [], []
    for sequences in compose(corpus, range(len(corpus.start)), batch_tokens):
        batch = batch_of(corpus, sequences).to(model.device)
        scores.append(reference(logits_of(batch.token_ids)[batch.state_index], batch.target_ids))
        target_index.append(batch.target_index)
    index, scored = torch.cat(target_index).cpu().numpy(), Scores.concatenate(scores)
    order = np.argsort(index)
    index = index[order]
    columns: dict[str, Any] = {name: column.cpu().numpy()[order] for name, column in scored.columns.items()}
    columns |= {n: getattr(corpus, n)[index] for n in ("document", "position", "field", "token")}
    return RankTable.from_arrays(vocab_size=model.vocab_size, **columns)


class TF32(TorchDispatchMode):
    """Rounds the float32 factors of every matrix product to TF32 (8 bits of exponent, 10 of mantissa), to nearest.

    Attention's products included. For inference mode. `split`: each factor is two such numbers, the second of what
    rounding leaves of the first; the product of the two second ones is left out.
    """

    def __init__(self, *, split: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.split = split

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, products in rounded factors."""
        kind, kwargs = func.overloadpacket, kwargs or {}
        if kind is _aten.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if kind is _aten.linear:
            product = self._product(args[0], args[1].t())
            return product if len(args) < 3 or args[2] is None else product + args[2]
        if kind in (_aten.matmul, _aten.mm, _aten.bmm):
            return self._product(*args)
        if kind in (_aten.addmm, _aten.baddbmm):
            return kwargs.get("beta", 1) * args[0] + kwargs.get("alpha", 1) * self._product(*args[1:3])
        return func(*args, **kwargs)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        left_high, right_high = to_tf32(left), to_tf32(right)
        product = left_high @ right_high
        if self.split:
            product = product + to_tf32(left - left_high) @ right_high
            if (rest := right - right_high).any():  # no rest, of weights that were stored in half precision
                product = product + left_high @ to_tf32(rest)
        return product

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attention in products, (batch, heads, length, width); an additive or boolean mask."""
        if enable_gqa:
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        weights = self._product(query, key.transpose(-1, -2)) * (scale or query.shape[-1] ** -0.5)
        if is_causal:  # (batch, heads, length, length)
            attn_mask = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            weights = weights.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            weights = weights + attn_mask
        return self._product(torch.softmax(weights, -1), value)


_aten: Any = torch.ops.aten


def to_tf32(x: Tensor) -> Tensor:
    """Return the nearest TF32 number of each float32."""
    if x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def show(rows: Sequence[Row], base: str) -> None:
    """Print the rows of one model on one dataset."""
    headers = ["", "ties", "moved", "farthest", "CE", *(f"RBP_{k}" for k in rows[0].rbp)]
    shown = [
        [
            row.variant,
            f"{row.tie_rate:.3%}",
            f"{row.moved:.3%}",
            f"{row.largest:,d}",
            f"{row.ce:+.7f}",
            *(f"{row.rbp[k]:+.5f}" for k in row.rbp),
        ]
        for row in rows
    ]
    title = f"\n{rows[0].model} / {rows[0].dataset}: {rows[0].num_tokens:,} tokens; differences from {base}"
    table(headers, shown, title=title, text_columns=1)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Compare configured models on configured datasets; returns and shows the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="?", default="nano/*")
    parser.add_argument("datasets", nargs="?", default="stdlib")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--base", choices=VARIANTS, default="float32")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    composer, resolver = Composer("config", []), Resolver()
    names = [n for wanted in split_list(options.models) for n in chosen("model", wanted, composer.options("model"))]
    rows: list[Row] = []
    for name in names:
        for dataset in split_list(options.datasets):
            models, corpora = {}, {}
            for dtype in Dtype:
                words = [f"model={name}", f"dataset={dataset}", f"model.dtype={dtype.value}"]
                cell = resolver.resolve(composer.compose_typed(words))
                models[dtype], corpora[dtype] = cell.load_model(), cell.load_corpus().first_tokens(options.tokens)
            rows += compare(name, dataset, models, corpora[Dtype.float32], base=options.base)
            show(rows[-len(VARIANTS) :], options.base)
    for variant, text in VARIANTS.items():
        say(f"{variant}: {text}")
    if options.out:
        figures = {"machine": machine.describe(), "options": vars(options) | {"out": ""}}
        options.out.write_text(json.dumps(figures | {"precision": [asdict(row) for row in rows]}, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    main()
