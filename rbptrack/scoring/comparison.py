"""Compare a model's distribution with a reference model's at each token, one chunk of logits at a time."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from rbptrack.scoring.reduction import row_maxima
from rbptrack.scoring.scorer import TILE_LOGITS, Scorer
from rbptrack.scoring.scores import Scores

_TILE_LOGITS_CUDA = 16_000_000  # the number of logits in a tile on CUDA
_LOWEST = -1e30  # replaces logits of -inf, because the difference of two -inf would be NaN


class PairScorer:
    """Scores targets with a model, and compares the model's distribution with a reference model's.

    One thread may use it at a time.

    Args:
        scorer: the scorer of the measured model.
        reference: the scorer of the reference model. Its device and the size of its chunks equal those of `scorer`.
        entries: the number of vocabulary entries that are compared. They are the first rows of both heads. The rows
            after them are padding.

    Attributes:
        padding_mass: the largest total probability of the padding rows at any token that was scored so far, in either
            model, ().
    """

    def __init__(self, scorer: Scorer, reference: Scorer, *, entries: int) -> None:
        self._model = scorer
        self._reference = reference
        self._entries = entries
        device = scorer.head.weight.device
        self._tile_tokens = max(1, (_TILE_LOGITS_CUDA if device.type == "cuda" else TILE_LOGITS) // entries)
        self.padding_mass = torch.zeros((), device=device)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, reference_hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width) of both models against targets (tokens,), int64."""
        parts = []
        for start in range(0, len(targets), self._model.chunk_tokens):
            chunk = slice(start, start + self._model.chunk_tokens)
            logits = self._model.logits(hidden[chunk])
            reference_logits = self._reference.logits(reference_hidden[chunk])
            comparison = self._compare(logits, reference_logits)  # before the reduction, which overwrites the logits
            parts.append({**self._model.reduce(logits, targets[chunk]), **comparison})
        return Scores.concatenate(parts)

    def _compare(self, logits: Tensor, reference_logits: Tensor) -> dict[str, Tensor]:
        """Return the columns of `Scores` that compare two models, from logits (tokens, vocabulary) of both."""
        tiles: list[tuple[Tensor, ...]] = []
        for start in range(0, len(logits), self._tile_tokens):
            tile = slice(start, start + self._tile_tokens)
            tiles.append(self._compare_tile(logits[tile], reference_logits[tile]))
        names = ("kl", "accept", "reference_top", "reference_rank")
        return {name: torch.cat(parts) for name, parts in zip(names, zip(*tiles, strict=True), strict=True)}

    def _compare_tile(self, logits: Tensor, reference_logits: Tensor) -> tuple[Tensor, ...]:
        """Return kl, accept, reference_top and reference_rank, (tokens,) each. p is the model, q the reference."""
        _, top = row_maxima(reference_logits[:, : self._entries])
        rank = (logits[:, : self._entries] >= logits.gather(1, top)).sum(1)
        log_p = self._log_probabilities(logits)
        log_q = self._log_probabilities(reference_logits)
        q = log_q.exp()
        is_infinite = ((log_p < _LOWEST / 2) & (q > 0)).any(1)  # p is 0 for an entry with q > 0
        # KL is computed as the sum of q ln(q / p) + p - q, in which the rounding errors of both normalisations cancel.
        log_ratio = torch.sub(log_q, log_p, out=log_q)
        p = log_p.exp_()
        kl = (log_ratio.mul_(q).sum(1) + (p - q).sum(1)).clamp(min=0).masked_fill(is_infinite, inf)
        accept = torch.minimum(p, q, out=p).sum(1).clamp(max=1)
        return kl, accept, top[:, 0].int(), rank.int()

    def _log_probabilities(self, logits: Tensor) -> Tensor:
        """Return ln p of the compared entries, (tokens, entries), normalised over them. Updates `padding_mass`."""
        compared = logits[:, : self._entries].clamp(min=_LOWEST)
        log_total = compared.logsumexp(1, keepdim=True)
        if logits.shape[1] > self._entries:
            # The probability of the padding, divided by that of the compared entries.
            odds = (logits[:, self._entries :] - log_total).exp().sum(1)
            self.padding_mass = torch.maximum(self.padding_mass, (odds / (1 + odds)).amax())
        return torch.sub(compared, log_total, out=compared)
