"""Sums by document, the unit of every interval: counted in pieces of a text, pooled over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray, IntArray


def sum_by(groups: Sequence[Any] | npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sums over the rows of each group, (groups, ...) in the groups' order, of values (rows, ...)."""
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.asarray(np.add.reduceat(values[order], first))


class DocumentSums:
    """Base of frozen dataclasses with arrays that have a first axis of documents.

    Attributes:
        SUMMED: names of arrays by document that add over runs.
        LABELS: names of arrays by document that all runs share.

    """

    SUMMED: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join the sums of disjoint documents, given in their order."""
        names = (*cls.LABELS, *cls.SUMMED)
        return parts[0]._with({name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def __add__(self, other: Self) -> Self:
        """Pool two runs over the same documents."""
        return self._with({name: getattr(self, name) + getattr(other, name) for name in self.SUMMED})

    def take(self, documents: npt.NDArray[Any]) -> Self:
        """The sums of some documents: indices, or whether to take each, (documents,)."""
        return self._with({name: getattr(self, name)[documents] for name in (*self.LABELS, *self.SUMMED)})

    def in_groups(self, groups: Sequence[Any]) -> Self:
        """The sums of each group in place of those of its documents.

        Args:
            groups: the group of each document, (documents,). Of the labels those of its first document stay.

        """
        first = np.unique(np.asarray(groups), return_index=True)[1]
        labels = {name: getattr(self, name)[first] for name in self.LABELS}
        return self._with(labels | {name: sum_by(groups, getattr(self, name)) for name in self.SUMMED})

    def _with(self, changed: dict[str, Any]) -> Self:
        return replace(self, **changed)  # type: ignore[type-var]  # the subclasses are dataclasses


@dataclass(frozen=True)
class DocumentCounts(DocumentSums):
    """What CE and RBP_k are made of.

    Attributes:
        ks: the k that `hits` counts.
        document: numbers of the documents that have scored tokens, ascending, (documents,).
        tokens: scored tokens, (documents,).
        nats: sum of -ln p(target), (documents,).
        hits: tokens with rank <= k, (documents, len(ks)).
        grouped: whether each row is a group, the sum of its documents, rather than a document.

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
        """Return the sums for some of the k, in the order given."""
        column = {k: i for i, k in enumerate(self.ks)}
        return replace(self, ks=tuple(ks), hits=self.hits[:, [column[k] for k in ks]])

    def in_groups(self, groups: Sequence[Any]) -> DocumentCounts:
        """The sums of each group, which is the unit then; groups: the group of each row, (documents,)."""
        grouped = super().in_groups(groups)
        return replace(grouped, document=np.arange(len(grouped.tokens)), grouped=True)

    @classmethod
    def merge(cls, parts: Sequence[DocumentCounts]) -> DocumentCounts:
        """The sums of parts of a text, of which several may have pieces of one document; or of runs over one text."""
        joined = cls.concatenate(parts)
        if (np.diff(joined.document) > 0).all():
            return joined
        merged = super(DocumentCounts, joined).in_groups(joined.document.tolist())
        nats = np.bincount(np.unique(joined.document, return_inverse=True)[1], weights=joined.nats)  # part after part
        return replace(merged, nats=nats, hits=merged.hits.astype(joined.hits.dtype))  # sums are wider

    def __add__(self, other: DocumentCounts) -> DocumentCounts:
        """Pool two runs.

        Raises:
            RbptrackError: they count different k, or the rows of one are groups and those of the other documents.

        """
        if self.ks != other.ks:
            raise RbptrackError(f"counts for k = {self.ks} and {other.ks} cannot be added")
        if self.grouped != other.grouped:
            raise RbptrackError("counts by group and counts by document cannot be added")
        return self.merge([self, other])
