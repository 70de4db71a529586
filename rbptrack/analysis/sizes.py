"""What S is: parameters without embeddings, all parameters, or the compute of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import pandas as pd

from rbptrack.analysis.families import Family
from rbptrack.base.errors import BadInput
from rbptrack.ranks import FloatArray

_OTHER = {"non_embedding_params": "total_params", "total_params": "non_embedding_params"}
_LABELS = {
    "non_embedding_params": "S, non-embedding parameters",
    "total_params": "S, all parameters",
    "training_flops": "S, training FLOPs (6 S D)",
}


@dataclass(frozen=True)
class SizeUnit:
    """The unit of S, an option of analyzers.

    Attributes:
        name: non_embedding_params, total_params or training_flops.
        training_tokens: tokens D that models were trained on, by pattern over model names; training_flops needs them.

    Raises:
        BadInput: an unknown name, or training_flops without tokens.

    """

    name: str
    training_tokens: Mapping[str, float]

    def __post_init__(self) -> None:
        if self.name not in _LABELS:
            raise BadInput(f"analyzer.size={self.name}: expected one of {', '.join(_LABELS)}")
        if self.name == "training_flops" and not self.training_tokens:
            raise BadInput("analyzer.size=training_flops needs tokens: '+analyzer.training_tokens={pythia-*: 3e11}'")

    @property
    def label(self) -> str:
        """For an axis."""
        return _LABELS[self.name]

    @property
    def other(self) -> str:
        """The column with the other way to count parameters, by which exponents differ; empty for training_flops."""
        return _OTHER.get(self.name, "")

    def of(self, family: Family) -> FloatArray:
        """Return S of each size of a family, (m,); NaN if unknown."""
        if self.name == "training_flops":
            return np.asarray(6 * family.s * self.trained_on(family))
        return family.s if self.name == "non_embedding_params" else family.column(self.name)

    def trained_on(self, family: Family) -> FloatArray:
        """Return training tokens of each size, (m,); NaN where no pattern fits the model's name."""

        def known(models: pd.Series) -> float:
            tokens = [t for pattern, t in self.training_tokens.items() if fnmatchcase(str(models.iloc[0]), pattern)]
            return tokens[0] if tokens else float("nan")

        grouped = family.rows.groupby("non_embedding_params", sort=True)["model"]
        return np.asarray(grouped.agg(known).to_numpy(dtype=np.float64))
