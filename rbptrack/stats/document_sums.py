"""Sums by document: the base of everything that is counted in pieces of a text, pooled over runs and resampled.

@dataclass(frozen=True)
class WordCounts(DocumentSums):
    LABELS = ("document",)                # the same in every run over these documents
    SUMMED = ("words", "whole")           # arrays (documents, ...)
    ks: tuple[int, ...]                   # everything else: the same in all parts
    document: IntArray
    words: IntArray
    whole: IntArray
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray, sum_by
from rbptrack.stats.bootstrap import Weights, drawn_sums


class DocumentSums:
    """A frozen dataclass some of whose arrays have a first axis of documents.

    Attributes:
        SUMMED: names of arrays by document that add over runs.
        LABELS: names of arrays by document that all runs share.
        TOTALS: names of what is not by document, and adds over runs and over pieces.

    """

    SUMMED: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[tuple[str, ...]] = ()
    TOTALS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the sums of disjoint documents, given in their order."""
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in (*cls.LABELS, *cls.SUMMED)}
        return _with(parts[0], joined | {name: sum(getattr(part, name) for part in parts) for name in cls.TOTALS})

    def __add__(self, other: Self) -> Self:
        """Two runs over the same documents, pooled."""
        return _with(self, {n: getattr(self, n) + getattr(other, n) for n in (*self.SUMMED, *self.TOTALS)})

    def take(self, documents: npt.NDArray[Any]) -> Self:
        """The sums of some documents: places, or whether to take each, (documents,)."""
        return _with(self, {name: getattr(self, name)[documents] for name in (*self.LABELS, *self.SUMMED)})

    def in_groups(self, groups: Sequence[str]) -> Self:
        """The sums of each source in place of those of its documents; groups: that of each document, (documents,).

        Of what is said of documents (LABELS) that of each source's first document stays.
        """
        first = np.unique(np.asarray(groups), return_index=True)[1]
        labels = {name: getattr(self, name)[first] for name in self.LABELS}
        return _with(self, labels | {name: sum_by(groups, getattr(self, name)) for name in self.SUMMED})

    def drawn(self, name: str, weights: Weights) -> FloatArray:
        """One of the arrays summed over the documents that each bootstrap replicate drew, (replicates, ...).

        Source: `drawn_sums`.
        """
        return drawn_sums(weights, getattr(self, name))


class DocumentMeans(DocumentSums):
    """The same where runs are averaged in place of added; `runs` says over how many."""

    runs: int = 1

    def __add__(self, other: Self) -> Self:
        runs, names = self.runs + other.runs, (*self.SUMMED, *self.TOTALS)
        means = {n: (self.runs / runs) * getattr(self, n) + (other.runs / runs) * getattr(other, n) for n in names}
        return _with(self, means | {"runs": runs})


_Sums = TypeVar("_Sums", bound=DocumentSums)


def _with(sums: _Sums, changed: dict[str, Any]) -> _Sums:
    made: _Sums = replace(sums, **changed)  # type: ignore[type-var]  # the subclasses are dataclasses
    return made
