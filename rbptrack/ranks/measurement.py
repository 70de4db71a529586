"""A measurement: the ranks that one model gives to the tokens of one dataset, with sums and notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from rbptrack.ranks.counts import DocumentCounts
from rbptrack.ranks.histogram import RankHistogram
from rbptrack.ranks.names import FloatArray
from rbptrack.ranks.table import RankTable

RANKS_FILE = "ranks.parquet"
_FIRST_CHOICES = ("top", "reference_top")  # columns with the id that a model ranks first


@dataclass(frozen=True)
class Comparison:
    """A comparison of a model with its reference: means over all scored tokens.

    Attributes:
        kl: mean of KL(reference || model), nats.
        acceptance: mean of the sum over entries of min(p, q).
        same_top: share of tokens at which both models rank the same entry first.
        padding_mass: largest total probability of the padding rows at any token. The comparison leaves these rows out.

    """

    kl: float
    acceptance: float
    same_top: float
    padding_mass: float


@dataclass(frozen=True)
class Measurement:
    """The result of measuring one model on one dataset.

    Attributes:
        folder: the folder of `ranks.parquet`, the rank table.
        histogram: the number of tokens with each rank.
        counts: tokens, nats and hits of each document, for the k of the configuration.
        num_bytes: UTF-8 bytes of the text of the scored tokens.
        tied_tokens: number of scored tokens with a logit that another entry has too. None if ties are unknown.
        seconds: wall time of forward passes and scoring.
        fresh_tokens: number of tokens that were scored in these seconds. The others were on disk already.
        peak_memory_bytes: largest memory in use, weights included. On a CPU it is the memory of the process, on CUDA
            the memory of torch's allocator.
        batch_tokens: largest number of tokens of a forward pass, at the end of the measurement.
        chunk_tokens: number of tokens whose logits were in memory at once, at the end of the measurement.
        notes: notes for the user, such as that memory ran out or that the reduction was not compiled.
        comparison: the comparison with the reference, or None if there is no reference.
        ce_parts: the means of ln R and of -ln(p R), which add up to CE. None if some p R exceeds 1 by more than a
            rounding error.

    """

    folder: Path
    histogram: RankHistogram
    counts: DocumentCounts
    num_bytes: int
    tied_tokens: int | None
    seconds: float
    fresh_tokens: int
    peak_memory_bytes: int
    batch_tokens: int
    chunk_tokens: int
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    ce_parts: tuple[float, float] | None = None

    @property
    def path(self) -> Path:
        """The path of the rank table."""
        return self.folder / RANKS_FILE

    @property
    def num_tokens(self) -> int:
        """The number of scored tokens."""
        return self.histogram.num_tokens

    @property
    def ce(self) -> float:
        """Mean of -ln p(target), nats."""
        return self.histogram.ce

    @property
    def bits_per_byte(self) -> float:
        """CE in bits per UTF-8 byte of the scored text."""
        return float(self.ce * self.num_tokens / (np.log(2) * self.num_bytes))

    @property
    def tie_rate(self) -> float:
        """The share of scored tokens with a logit that another entry has too; NaN if ties are unknown."""
        return float("nan") if self.tied_tokens is None else self.tied_tokens / self.num_tokens

    @overload
    def rbp(self, k: int) -> float: ...
    @overload
    def rbp(self, k: Iterable[int]) -> FloatArray: ...
    def rbp(self, k: Any) -> Any:
        """Return RBP_k, the share of tokens with rank at most k. For several k, return an array.

        Raises BadInput if a k is not a whole number from 1 to |V|.
        """
        return self.histogram.rbp(k)

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.path)

    def first_choices(self) -> list[int]:
        """Return the ids of all entries that the model or its reference ranks first at some token, ascending."""
        ids: set[int] = set()
        for piece in RankTable.read_pieces(self.path, _FIRST_CHOICES):
            for name in _FIRST_CHOICES:
                if name in piece.table.column_names:
                    ids.update(np.unique(piece.column(name)).tolist())
        return sorted(ids)
