"""The output projection of a language model, as the scorer multiplies with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Head:
    """The output projection: logits = softcap(scale * (hidden @ weight.T + bias)).

    Attributes:
        weight: (vocabulary, width).
        bias: (vocabulary,) or None; None, too, where `product` adds it.
        softcap: c in c * tanh(logits / c), as in Gemma 2; None for none.
        scale: factor on the logits, as in Cohere and Granite.
        left_out: entries that are not ranked: their logits become -inf. int64 (entries,), or None.
        product: hidden (tokens, width) to hidden @ weight.T + bias of a quantised head, which only its own module can
            multiply with; `weight` then has the right shape and holds nothing.
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0
    left_out: Tensor | None = None
    product: Callable[[Tensor], Tensor] | None = None

    @property
    def vocab_size(self) -> int:
        """|V|: rows of the head."""
        return int(self.weight.shape[0])

    def without(self, entries: Sequence[int]) -> Head:
        """Return this head with logits of -inf at some entries."""
        return replace(self, left_out=torch.tensor(entries, dtype=torch.int64, device=self.weight.device))

    def logits(self, hidden: Tensor) -> Tensor:
        """Full float32 logits (tokens, vocabulary) of hidden states (tokens, width): for checks, not for corpora."""
        if self.product is not None:
            return self.finish(self.product(hidden)[:, : self.vocab_size].float())
        return self.finish(hidden.float() @ self.weight.float().T)

    def finish(self, product: Tensor) -> Tensor:
        """Turn hidden @ weight.T (tokens, vocabulary) into logits, in place."""
        if self.bias is not None:
            product.add_(self.bias)
        if self.scale != 1.0:
            product.mul_(self.scale)
        if self.softcap is not None:
            product.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.left_out is not None:
            product.index_fill_(1, self.left_out, float("-inf"))
        return product
