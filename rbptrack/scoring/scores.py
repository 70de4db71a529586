"""What a head says of each target, and its definition on full logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """What the head says of each target and of its distribution; every field has shape (tokens,).

    Attributes:
        greater: entries with a logit strictly above the target's, int32.
        ties: other entries with an equal logit, int32.
        logprob: ln p(target), nats, at most 0, float32. NaN or -inf where the logits hold a NaN or an infinity.
        entropy: -sum p ln p over the entries, nats, float32.
        top: the entry with the largest logit, of several the first, int32.
        top_logprob: ln p(top), nats, at most 0, float32.
        kl: KL(reference || model), nats, at least 0, float32. This and the following: None without a reference.
        accept: the sum over entries of the smaller of both probabilities, float32.
        reference_top: the entry that the reference ranks first, int32.
        reference_rank: its rank in the model, 1 + entries above it + others equal to it, int32.
    """

    greater: Tensor
    ties: Tensor
    logprob: Tensor
    entropy: Tensor
    top: Tensor
    top_logprob: Tensor
    kl: Tensor | None = None
    accept: Tensor | None = None
    reference_top: Tensor | None = None
    reference_rank: Tensor | None = None

    def __len__(self) -> int:
        return len(self.greater)

    @property
    def columns(self) -> dict[str, Tensor]:
        """Every field that is there, by its name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def concatenate(cls, parts: Sequence[Scores]) -> Scores:
        """The scores of consecutive tokens as one."""
        if len(parts) == 1:
            return parts[0]
        return cls(**{name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns})


def reference(logits: Tensor, targets: Tensor) -> Scores:
    """The definition, on full logits (tokens, vocabulary) and targets (tokens,), int64: for tests and benchmarks."""
    logits = logits.float()
    own = logits.gather(1, targets[:, None])  # (tokens, 1)
    log_p = torch.log_softmax(logits.double(), dim=1)
    top = (logits == logits.amax(1, keepdim=True)).int().argmax(1)
    return Scores(
        greater=(logits > own).sum(1).int(),
        ties=(logits == own).sum(1).int() - 1,
        logprob=log_p.gather(1, targets[:, None])[:, 0].float(),
        entropy=torch.special.entr(log_p.exp()).sum(1).float(),
        top=top.int(),
        top_logprob=log_p.gather(1, top[:, None])[:, 0].float(),
    )
