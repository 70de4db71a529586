"""A model's distribution beside a reference's, token by token: a chunk of logits of each at a time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rbptrack.scoring.scorer import TILE_ELEMENTS, Scorer, first_largest
from rbptrack.scoring.scores import Scores

_TILE_ELEMENTS_CUDA = 16_000_000
_LOWEST = -1e30  # for logits of -inf, as a mask gives them: a difference of two is 0 and not NaN


class PairScorer:
    """Scores against one head, and says how its distribution differs from a reference's; one thread at a time.

    Args:
        scorer: of the model that is measured, not `fused`.
        reference: of the other model, on the same device, with chunks of the same size.
        entries: the first so many rows of both heads are compared: what lies behind them is padding.

    Attributes:
        padding: the largest probability of a token's padding, in the model and in the reference, (2,).

    """

    def __init__(self, scorer: Scorer, reference: Scorer, *, entries: int) -> None:
        self._own = scorer
        self._other = reference
        self._entries = entries
        device = scorer.head.weight.device
        tile = _TILE_ELEMENTS_CUDA if device.type == "cuda" else TILE_ELEMENTS
        self._rows = max(1, min(scorer.chunk, tile // entries))
        self.padding = torch.zeros(2, device=device)

    @torch.inference_mode()
    def __call__(self, hidden: Tensor, reference_hidden: Tensor, targets: Tensor) -> Scores:
        """Score hidden states (tokens, width) of both models against targets (tokens,), int64."""
        parts: list[tuple[Tensor, ...]] = []

        def look(logits: Tensor, start: int) -> None:
            others = self._other.products(reference_hidden[start : start + len(logits)])
            for low in range(0, len(logits), self._rows):
                parts.append(self._compare(logits[low : low + self._rows], others[low : low + self._rows]))

        scores = self._own(hidden, targets, look)
        names = ("kl", "accept", "reference_top", "reference_rank")
        return replace(scores, **dict(zip(names, map(torch.cat, zip(*parts, strict=True)), strict=True)))

    def _compare(self, logits: Tensor, others: Tensor) -> tuple[Tensor, ...]:
        """Return KL, accept, the reference's first entry and its rank, (rows,) each, of tiles of logits (rows,
        vocabulary).
        """
        first = first_largest(others[:, : self._entries])[1]
        chosen = logits.gather(1, first)
        rank = (logits >= chosen).sum(1)
        log_p, p_padding = self._log_probabilities(logits)
        log_q, q_padding = self._log_probabilities(others)
        self.padding = torch.maximum(self.padding, torch.stack([p_padding, q_padding]))
        q = log_q.exp()
        # KL as the sum of q ln(q / p) + p - q: what rounding does to both normalisations drops out of it
        ratio = torch.sub(log_q, log_p, out=log_q)
        p = log_p.exp_()
        kl = (ratio.mul_(q).sum(1) + (p - q).sum(1)).clamp(min=0)
        return kl, torch.minimum(p, q, out=p).sum(1).clamp(max=1), first[:, 0].int(), rank.int()

    def _log_probabilities(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return ln of the probabilities (rows, entries) among the compared entries, and the largest probability of the
        rest.
        """
        named = logits[:, : self._entries].clamp(min=_LOWEST)
        total = named.logsumexp(1, keepdim=True)
        odds = (logits[:, self._entries :] - total).exp().sum(1)  # of the padding, against the named entries
        return torch.sub(named, total, out=named), (odds / (1 + odds)).amax()
