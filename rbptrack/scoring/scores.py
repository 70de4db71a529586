"""The scores of each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class Scores(dict[str, Tensor]):
    """The scores of some targets: a tensor (targets,) for each column, by the column's name.

    The names, types and meanings are those of `rbptrack.ranks.COLUMNS`. Every engine gives `greater` and `logprob`. An
    engine that does not compute another column leaves it out. Without `ties`, `greater` counts the other entries with a
    logit at least as large as the target's. `logprob` is NaN or -inf if the logits hold a NaN or an infinity.
    """

    @classmethod
    def concatenate(cls, parts: Sequence[Mapping[str, Tensor]]) -> Scores:
        """Join the scores of consecutive targets. All parts have the same columns."""
        if len(parts) == 1:
            return cls(parts[0])
        return cls({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
