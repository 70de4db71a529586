"""Sums by document, the unit that bootstraps resample: counted in pieces of a text, pooled over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray, IntArray


def sum_by(groups: Sequence[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return sums over the rows of each group, in the groups' order: (groups, ...) from values of each row, (rows,
    ...).
    """
    place = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(place, kind="stable")
    return np.asarray(np.add.reduceat(values[order], np.flatnonzero(np.diff(place[order], prepend=-1))))


class DocumentSums:
    """A frozen dataclass some of whose arrays have a first axis of documents; see `DocumentCounts`.

    Attributes:
        SUMMED: names of arrays by document that add over runs.
        LABELS: names of arrays by document that all runs share.
        TOTALS: names of totals that are not by document, and add over runs and over pieces.

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
        """Return two runs over the same documents, pooled."""
        return _with(self, {n: getattr(self, n) + getattr(other, n) for n in (*self.SUMMED, *self.TOTALS)})

    def take(self, documents: npt.NDArray[Any]) -> Self:
        """Return the sums of some documents: places, or whether to take each, (documents,)."""
        return _with(self, {name: getattr(self, name)[documents] for name in (*self.LABELS, *self.SUMMED)})

    def in_groups(self, groups: Sequence[Any]) -> Self:
        """Return the sums of each source in place of those of its documents; groups: that of each document,
        (documents,).

        Of the labels of documents (LABELS) those of each source's first document stay.
        """
        first = np.unique(np.asarray(groups), return_index=True)[1]
        labels = {name: getattr(self, name)[first] for name in self.LABELS}
        return _with(self, labels | {name: sum_by(groups, getattr(self, name)) for name in self.SUMMED})


class DocumentMeans(DocumentSums):
    """The same where runs are averaged in place of added; `runs` says over how many."""

    runs: int = 1

    def __add__(self, other: Self) -> Self:
        runs = self.runs + other.runs
        names = (*self.SUMMED, *self.TOTALS)
        means = {n: (self.runs / runs) * getattr(self, n) + (other.runs / runs) * getattr(other, n) for n in names}
        return _with(self, means | {"runs": runs})


_Sums = TypeVar("_Sums", bound=DocumentSums)


def _with(sums: _Sums, changed: dict[str, Any]) -> _Sums:
    made: _Sums = replace(sums, **changed)  # type: ignore[type-var]  # the subclasses are dataclasses
    return made


@dataclass(frozen=True)
class DocumentCounts(DocumentSums):
    """What CE and RBP_k are made of.

    Attributes:
        ks: the k that `hits` counts.
        document: numbers of the documents that have scored tokens, ascending, (documents,).
        tokens: scored tokens, (documents,).
        nats: sum of -ln p(target), (documents,).
        hits: tokens with rank <= k, (documents, len(ks)).
        grouped: whether each row is a source, the sum of its documents, rather than a document.

    """

    LABELS = ("document",)
    SUMMED = ("tokens", "nats", "hits")

    ks: tuple[int, ...]
    document: IntArray
    tokens: IntArray
    nats: FloatArray
    hits: IntArray
    grouped: bool = False

    @property
    def sums(self) -> FloatArray:
        """(documents, 2 + len(ks)): tokens, nats, then hits of each k."""
        return np.column_stack([self.tokens, self.nats, self.hits]).astype(np.float64, copy=False)

    def select(self, ks: Sequence[int]) -> DocumentCounts:
        """Return the same sums for some of the k, in the order given."""
        place = {k: i for i, k in enumerate(self.ks)}
        return replace(self, ks=tuple(ks), hits=self.hits[:, [place[k] for k in ks]])

    def in_groups(self, groups: Sequence[Any]) -> DocumentCounts:
        """Return the sums of each source, which are resampled then; groups: the source of each row,
        (documents,).
        """
        grouped = super().in_groups(groups)
        return replace(grouped, document=np.arange(len(grouped.tokens)), grouped=True)

    def __add__(self, other: DocumentCounts) -> DocumentCounts:
        """Return two runs, or two parts of a text that may have pieces of one document."""
        if self.ks != other.ks:
            raise RbptrackError(f"counts for k = {self.ks} and {other.ks} cannot be added")
        both = self.concatenate([self, other])
        return super(DocumentCounts, both).in_groups(both.document.tolist())
