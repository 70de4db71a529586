"""The definition of scores on full logits. Tests of scoring compare with it."""

from __future__ import annotations

import torch
from torch import Tensor

from rbptrack.scoring import Scores


def scores_by_definition(logits: Tensor, targets: Tensor) -> Scores:
    """Compute scores by their definition, on full logits.

    Args:
        logits: full logits, (tokens, vocabulary).
        targets: ids of the targets, (tokens,), int64.

    """
    logits = logits.float()
    target_logits = logits.gather(1, targets[:, None])  # (tokens, 1)
    log_p = torch.log_softmax(logits.double(), dim=1)
    top = (logits == logits.amax(1, keepdim=True)).int().argmax(1)
    return Scores(
        greater=(logits > target_logits).sum(1).int(),
        ties=(logits == target_logits).sum(1).int() - 1,
        logprob=log_p.gather(1, targets[:, None])[:, 0].float(),
        entropy=torch.special.entr(log_p.exp()).sum(1).float(),
        top=top.int(),
        top_logprob=log_p.gather(1, top[:, None])[:, 0].float(),
    )
