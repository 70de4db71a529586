"""A measurement: one model's ranks of one dataset's tokens, and how they were made."""

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
_FIRST = ("top", "reference_top")  # columns of ids


@dataclass(frozen=True)
class Compared:
    """How a model's distributions differ from its reference's, over all scored tokens.

    Attributes:
        kl: mean KL(reference || model), nats.
        acceptance: mean of sum over v of min(p, q).
        same_top: share of tokens at which both rank the same entry first.
        padding_mass: the largest probability that was left out with rows that the tokenizer cannot name.

    """

    kl: float
    acceptance: float
    same_top: float
    padding_mass: float

    @classmethod
    def of(cls, sums: FloatArray, tokens: int, padding_mass: float) -> Compared:
        """Make means of `RankTable.compared_sums` over so many tokens."""
        kl, acceptance, same_top = (float(total) / tokens for total in sums)
        return cls(kl, acceptance, same_top, padding_mass)


@dataclass(frozen=True)
class Measurement:
    """What one model says about one dataset.

    Attributes:
        folder: holds the rank table, `ranks.parquet`.
        histogram: counts by rank.
        counts: per-document sums for the k that were asked for.
        num_bytes: UTF-8 bytes of the scored tokens' text.
        tied: scored tokens whose logit another entry equals.
        seconds: wall time of the forward passes and the scoring.
        fresh_tokens: scored tokens that were measured in these seconds; the others were found on disk.
        peak_memory_bytes: the most memory in use while it was measured, weights included: of the process on a CPU, of
            torch's allocator on CUDA.
        batch_tokens: tokens of a forward pass, as chosen, or as it was after memory ran out.
        chunk_tokens: rows of logits at a time, likewise.
        notes: changes on the way, because memory ran out or a compiled function was not used.
        compared: with the reference; None without one.
        split: the means of ln R and of -ln(p R), which add up to CE; None where a p R is above 1 by more than rounding.

    """

    folder: Path
    histogram: RankHistogram
    counts: DocumentCounts
    num_bytes: int
    tied: int
    seconds: float
    fresh_tokens: int
    peak_memory_bytes: int
    batch_tokens: int
    chunk_tokens: int
    notes: tuple[str, ...] = ()
    compared: Compared | None = None
    split: tuple[float, float] | None = None

    @property
    def path(self) -> Path:
        """The rank table's file."""
        return self.folder / RANKS_FILE

    @property
    def num_tokens(self) -> int:
        """How many tokens were scored."""
        return self.histogram.num_tokens

    @property
    def ce(self) -> float:
        """Mean of -ln p(target), nats."""
        return self.histogram.ce

    @property
    def bits_per_byte(self) -> float:
        """Bits that the model spends per UTF-8 byte of scored text."""
        return float(self.ce * self.num_tokens / (np.log(2) * self.num_bytes))

    @property
    def tie_rate(self) -> float:
        """Share of scored tokens whose logit another entry equals."""
        return self.tied / self.num_tokens

    @overload
    def rbp(self, k: int) -> float: ...
    @overload
    def rbp(self, k: Iterable[int]) -> FloatArray: ...
    def rbp(self, k: Any) -> Any:
        """Return RBP_k = Pr(R <= k): a number for one k, an array for several."""
        return self.histogram.rbp(k)

    @property
    def ranks(self) -> RankTable:
        """The rank table, read from disk."""
        return RankTable.read(self.path)

    def first_choices(self) -> list[int]:
        """The ids that the model, or its reference, ranks first somewhere."""
        ids: set[int] = set()
        for piece in RankTable.read_pieces(self.path, _FIRST):
            for name in _FIRST:
                if name in piece.table.column_names:
                    ids.update(np.unique(piece.column(name)).tolist())
        return sorted(ids)
