"""Compares a model's distribution with a reference model's at each token, one chunk of logits at a time."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from rbptrack.scoring.scorer import TILE_LOGITS, Scorer, first_largest
from rbptrack.scoring.scores import Scores

_TILE_CUDA = 16_000_000
_LOWEST = -1e30  # replaces logits of -inf, because the difference of two -inf would be NaN


class PairScorer:
    """Scores targets with a model, and compares the model's distribution with a reference model's.

    One thread may use it at a time.

    Args:
        scorer: the scorer of the measured model.
        reference: the scorer of the reference model, on the same device, with chunks of the same size.
        entries: the number of vocabulary entries that are compared, from the first. The rows after them are padding.

    Attributes:
        padding: the largest total probability of the padding rows at any token so far, in either model, ().
    """

    def __init__(self, scorer: Scorer, reference: Scorer, *, entries: int) -> None:
        self._model = scorer
        self._reference = reference
        self._entries = entries
        device = scorer.head.weight.device
        self._tile = max(1, (_TILE_CUDA if device.type == "cuda" else TILE_LOGITS) // entries)
        self.padding = torch.zeros((), device=device)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, reference_hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width) of both models against targets (tokens,), int64."""
        parts = []
        for start in range(0, len(targets), self._model.chunk_tokens):
            chunk = slice(start, start + self._model.chunk_tokens)
            logits = self._model.logits(hidden[chunk])
            reference_logits = self._reference.logits(reference_hidden[chunk])
            compared = self._compare(logits, reference_logits)  # before the reduction, which overwrites the logits
            parts.append(replace(self._model.reduce(logits, targets[chunk]), **compared))
        return Scores.concatenate(parts)

    def _compare(self, logits: Tensor, reference_logits: Tensor) -> dict[str, Tensor]:
        """Return the fields of `Scores` that compare the model's logits with the reference's, (tokens, vocabulary)."""
        parts: list[tuple[Tensor, ...]] = []
        for low in range(0, len(logits), self._tile):
            parts.append(self._compare_tile(logits[low : low + self._tile], reference_logits[low : low + self._tile]))
        names = ("kl", "accept", "reference_top", "reference_rank")
        return {name: torch.cat(columns) for name, columns in zip(names, zip(*parts, strict=True), strict=True)}

    def _compare_tile(self, logits: Tensor, reference_logits: Tensor) -> tuple[Tensor, ...]:
        _, top = first_largest(reference_logits[:, : self._entries])
        rank = (logits[:, : self._entries] >= logits.gather(1, top)).sum(1)
        log_p = self._log_probabilities(logits)
        log_q = self._log_probabilities(reference_logits)
        q = log_q.exp()
        infinite = ((log_p < _LOWEST / 2) & (q > 0)).any(1)  # p is 0 for an entry with q > 0
        # KL as the sum of q ln(q / p) + p - q. In this form the rounding errors of both normalisations cancel.
        ratio = torch.sub(log_q, log_p, out=log_q)
        p = log_p.exp_()
        kl = (ratio.mul_(q).sum(1) + (p - q).sum(1)).clamp(min=0).masked_fill(infinite, inf)
        accept = torch.minimum(p, q, out=p).sum(1).clamp(max=1)
        return kl, accept, top[:, 0].int(), rank.int()

    def _log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the ln of the probabilities (tokens, entries) among the compared entries. Updates `padding`."""
        named = logits[:, : self._entries].clamp(min=_LOWEST)
        total = named.logsumexp(1, keepdim=True)
        if logits.shape[1] > self._entries:
            odds = (logits[:, self._entries :] - total).exp().sum(1)  # odds of the padding against the compared entries
            self.padding = torch.maximum(self.padding, (odds / (1 + odds)).amax())
        return torch.sub(named, total, out=named)
