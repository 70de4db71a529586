"""The scores of each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scores:
    """The scores of each target, (tokens,) in each field. The last four fields are None without a reference model.

    Attributes:
        greater: number of entries with a logit strictly above the target's, int32.
        ties: number of other entries with a logit equal to the target's, int32.
        logprob: ln p(target), nats, at most 0, float32. NaN or -inf if the logits hold a NaN or an infinity.
        entropy: -sum p ln p over the entries, nats, float32.
        top: id of the entry with the largest logit, int32. If several have it, the smallest id.
        top_logprob: ln p(top), nats, at most 0, float32.
        kl: KL(reference || model), nats, at least 0, float32.
        accept: sum over the entries of the smaller of the two models' probabilities, float32.
        reference_top: id of the entry that the reference ranks first, int32.
        reference_rank: rank of `reference_top` in the model (1 + entries above it + other entries equal to it), int32.
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

    @property
    def columns(self) -> dict[str, Tensor]:
        """The fields that are not None, by their names."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def concatenate(cls, parts: Sequence[Scores]) -> Scores:
        """Join the scores of consecutive tokens."""
        if len(parts) == 1:
            return parts[0]
        return cls(**{name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns})
