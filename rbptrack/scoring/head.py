"""The output head of a language model, in the form that the scorer needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Head:
    """The output head: logits = softcap(scale * (hidden @ weight.T + bias)).

    Attributes:
        weight: the weight matrix, (vocabulary, width).
        bias: the bias, (vocabulary,). None if there is no bias or if `product` adds it.
        softcap: the number c in c * tanh(logits / c), which Gemma 2 uses. None if there is no softcap.
        scale: the factor by which logits are multiplied. Cohere's and Granite's models have one.
        excluded_ids: ids of entries that are not ranked, int64 (entries,), or None. Their logits become -inf.
        product: for a quantised head, the function that computes hidden @ weight.T + bias of hidden states (tokens,
            width). Only the shape and the device of `weight` are then used, not its values.
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0
    excluded_ids: Tensor | None = None
    product: Callable[[Tensor], Tensor] | None = None

    @property
    def vocab_size(self) -> int:
        """|V|, the number of rows of the head."""
        return int(self.weight.shape[0])

    def exclude(self, ids: Sequence[int]) -> Head:
        """Return a copy of this head that does not rank some entries. Their logits are -inf."""
        return replace(self, excluded_ids=torch.tensor(ids, dtype=torch.int64, device=self.weight.device))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the full float32 logits (tokens, vocabulary) of hidden states (tokens, width).

        Full logits take much memory. Call this for a few tokens only, to check a model.
        """
        if self.product is not None:
            return self.finish(self.product(hidden)[:, : self.vocab_size].float())
        return self.finish(hidden.float() @ self.weight.float().T)

    def finish(self, product: Tensor) -> Tensor:
        """Turn the product hidden @ weight.T (tokens, vocabulary) into logits. The product is overwritten."""
        if self.bias is not None:
            product.add_(self.bias)
        if self.scale != 1.0:
            product.mul_(self.scale)
        if self.softcap is not None:
            product.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.excluded_ids is not None:
            product.index_fill_(1, self.excluded_ids, float("-inf"))
        return product
