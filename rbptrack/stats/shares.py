"""Ratios of sums over documents, with their errors; rank tables read in step, and ranks by decade."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray, IntArray, RankTable
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval
from rbptrack.stats.spread import Spread

_POWER = 0.8


@dataclass(frozen=True)
class Share:
    """A ratio of sums over documents: its value, and its error over documents (sources, where they are named).

    Attributes:
        value: per token.
        spread: its error; None with fewer than 10 documents.

    """

    value: float
    spread: Spread | None

    def interval(self, level: float) -> Interval:
        """The value with its ends; NaN where there are none."""
        return Interval.around(self.value, self.spread.half(level) if self.spread else float("nan"))

    @property
    def p(self) -> float:
        """Two-sided p of 0."""
        return self.spread.p(self.value) if self.spread else float("nan")

    def detectable(self, level: float) -> float:
        """The smallest truth that such data would have told from 0 with a power of 80%.

        Source: (t + z) standard errors, the sample size formula turned round (Cohen, Statistical Power Analysis, 1988).
        """
        return self.spread.half(level) + float(special.ndtri(_POWER)) * self.spread.se if self.spread else np.nan


def share_of(values: FloatArray, tokens: FloatArray) -> Share:
    """The sum of values per token, with its error over documents, (documents,) both.

    Source: `ratio_and_error`, t with documents - 1.
    """
    value, se = ratio_and_error(values, tokens)
    known = len(tokens) >= LEAST_DOCUMENTS and np.isfinite(value)
    return Share(value, Spread.estimated(se, len(tokens) - 1) if known else None)


def decade_of(rank: IntArray) -> IntArray:
    """0 for rank 1, 1 for 2 to 10, 2 for 11 to 100, ..."""
    return np.asarray(np.searchsorted(10 ** np.arange(10), rank, side="left"))


def num_decades(vocab_size: int) -> int:
    """How many of them the ranks 1..|V| have."""
    return int(decade_of(np.array([vocab_size]))[0]) + 1


def in_step(a: Iterable[RankTable], b: Iterable[RankTable]) -> Iterator[tuple[RankTable, RankTable]]:
    """Two rank tables, given in pieces of whole documents, as pieces that end at the same documents.

    Where one ends before the other, nothing more is given. Source: a merge of sorted lists.
    """
    pieces = (iter(a), iter(b))
    held: list[RankTable | None] = [None, None]
    while True:
        held = [rest if rest is not None else next(more, None) for rest, more in zip(held, pieces, strict=True)]
        left, right = held
        if left is None or right is None:
            return
        last = min(int(table.documents[0][-1]) for table in (left, right))
        left, held[0] = _cut(left, last)
        right, held[1] = _cut(right, last)
        yield left, right


def _cut(table: RankTable, last: int) -> tuple[RankTable, RankTable | None]:
    """The documents up to a number, and those after it."""
    end = int(np.count_nonzero(table.column("document") <= last))
    rest = replace(table, table=table.table[end:])
    return replace(table, table=table.table[:end]), rest if len(rest) else None


def ratio_and_error(values: FloatArray, units: FloatArray) -> tuple[float, float]:
    """The sum of values over that of units, with its standard error over documents, (documents,) both.

    Source: the ratio estimator of clusters (Cochran, Sampling Techniques, 1977, section 6.3).
    """
    documents, total = len(units), units.sum()
    ratio = float(values.sum() / total)
    influence = (values - ratio * units) / total
    return ratio, float(np.sqrt(documents / max(documents - 1, 1) * (influence**2).sum()))
