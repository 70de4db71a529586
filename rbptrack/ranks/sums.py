"""The sums of a rank table from which the results of a measurement follow. The table is added piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from rbptrack.ranks.columns import token_totals
from rbptrack.ranks.counts import DocumentCounts
from rbptrack.ranks.histogram import RankHistogram
from rbptrack.ranks.rank_and_rest import rank_and_rest_sums
from rbptrack.ranks.table import RankTable


class RankSums:
    """Sums over the tokens of a rank table. Only one piece of the table is in memory at a time.

    Args:
        ks: the k for which hits are counted by document.
        vocab_size: |V|.

    Attributes:
        histogram: the number of tokens with each rank.

    """

    def __init__(self, ks: Sequence[int], vocab_size: int) -> None:
        no_ranks = np.zeros(0, dtype=np.int64)
        self.histogram = RankHistogram(no_ranks, no_ranks, np.zeros(0), vocab_size)
        self._ks = tuple(ks)
        self._counts: list[DocumentCounts] = []  # of each piece; merged once at the end, because merging sorts
        self._ce_sums = np.zeros(3)
        self._totals: dict[str, float] = {}

    def add(self, piece: RankTable) -> None:
        """Add a piece of the table. The pieces come in the order of the text."""
        self._counts.append(piece.document_counts(self._ks))
        self.histogram += piece.histogram()
        self._ce_sums += rank_and_rest_sums(piece)
        for metric, total in token_totals(piece).items():
            self._totals[metric] = self._totals.get(metric, 0.0) + total

    @classmethod
    def of(cls, pieces: Iterable[RankTable], ks: Sequence[int], vocab_size: int) -> RankSums:
        """Return the sums of all pieces."""
        sums = cls(ks, vocab_size)
        for piece in pieces:
            sums.add(piece)
        return sums

    @cached_property
    def counts(self) -> DocumentCounts:
        """Tokens, nats and hits of each document."""
        return DocumentCounts.merge(self._counts)

    @property
    def ce_parts(self) -> tuple[float, float] | None:
        """The means of ln R and of -ln(p R), or None if some p R is above 1 by more than rounding."""
        ln_rank, remainder, impossible = (self._ce_sums / self.histogram.num_tokens).tolist()
        return None if impossible else (ln_rank, remainder)

    @property
    def means(self) -> dict[str, float]:
        """The metrics that are means of a column, such as `tie_rate` and `kl`."""
        return {metric: total / self.histogram.num_tokens for metric, total in self._totals.items()}
