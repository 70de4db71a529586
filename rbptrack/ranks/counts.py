"""Sums by document, from which metrics and their intervals are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray, IntArray


def sum_by(groups: Sequence[Any] | npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sum values (rows, ...) over the rows of each group (rows,). Returns (groups, ...), sorted by group."""
    if len(groups) != len(values):
        raise ValueError(f"there are {len(groups):,} groups for {len(values):,} rows")
    group = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.diff(group[order], prepend=-1))
    return np.asarray(np.add.reduceat(values[order], first))


def first_of_group(document: IntArray, groups: Sequence[Any]) -> IntArray:
    """Return the number of the first document of each document's group, (documents,).

    `document` holds the numbers of the documents, (documents,).
    """
    first, group = np.unique(np.asarray(groups), return_index=True, return_inverse=True)[1:]
    return np.asarray(document[first][group])


class DocumentSums:
    """Base class of frozen dataclasses that hold arrays with one element or row for each document.

    Attributes:
        SUMMED: names of the arrays that hold sums.
        LABELS: names of the arrays that describe the documents. They are not added.
        TOTALS: names of values over all documents of a run. They are added, too.

    """

    SUMMED: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[tuple[str, ...]] = ()
    TOTALS: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """Join sums of different documents. The documents keep the order of the parts.

        Raises TypeError if the sums have totals over all documents, because a part does not have those.
        """
        if cls.TOTALS:
            raise TypeError(f"{cls.__name__} has totals over all documents, so its parts cannot be joined")
        names = (*cls.LABELS, *cls.SUMMED)
        return parts[0]._replace({name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def __add__(self, other: Self) -> Self:
        """Add the sums of two runs over the same documents. Raises RbptrackError if their documents differ."""
        same_labels = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.LABELS)
        if not same_labels or any(len(getattr(self, name)) != len(getattr(other, name)) for name in self.SUMMED):
            raise RbptrackError("sums of different documents cannot be added")
        names = (*self.SUMMED, *self.TOTALS)
        return self._replace({name: getattr(self, name) + getattr(other, name) for name in names})

    def in_groups(self, groups: Sequence[Any]) -> Self:
        """Return sums by group instead of by document, for the group of each document (documents,).

        Groups are sorted by their first document, and have its labels.
        """
        first = first_of_group(np.arange(len(groups)), groups)
        labels = {name: getattr(self, name)[np.unique(first)] for name in self.LABELS}
        return self._replace(labels | {name: sum_by(first, getattr(self, name)) for name in self.SUMMED})

    def _replace(self, arrays: dict[str, Any]) -> Self:
        return replace(self, **arrays)  # type: ignore[type-var]  # the subclasses are dataclasses


@dataclass(frozen=True)
class DocumentCounts(DocumentSums):
    """Sums by document from which CE and RBP_k are computed.

    Attributes:
        ks: the k for which `hits` counts tokens.
        document: numbers of the documents that have scored tokens, or of the first document of each group, ascending,
            (documents,).
        tokens: number of scored tokens, (documents,).
        nats: sum of -ln p(target), in nats, (documents,).
        hits: number of tokens with rank <= k, (documents, len(ks)).
        grouped: whether each row is the sum over a group of documents, not a single document.

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
        """All sums as one array (documents, 2 + len(ks)). The columns are tokens, nats, and the hits at each k."""
        return np.column_stack([self.tokens, self.nats, self.hits]).astype(np.float64, copy=False)

    def select(self, ks: Sequence[int]) -> DocumentCounts:
        """Return a copy with the hits at some of the k only, in the order of `ks`."""
        column = {k: i for i, k in enumerate(self.ks)}
        return replace(self, ks=tuple(ks), hits=self.hits[:, [column[k] for k in ks]])

    def has_rows_of(self, other: DocumentCounts) -> bool:
        """Return whether other counts have the same documents or groups. Their errors can then be paired."""
        return np.array_equal(self.document, other.document) and self.grouped == other.grouped

    def take(self, documents: npt.NDArray[Any]) -> DocumentCounts:
        """Return the sums of some documents, which are given by their indices or by a boolean mask (documents,)."""
        return self._replace({name: getattr(self, name)[documents] for name in (*self.LABELS, *self.SUMMED)})

    def in_groups(self, groups: Sequence[Any]) -> DocumentCounts:
        """Return sums by group, for the group of each row (documents,). Intervals then treat groups as independent."""
        return replace(super().in_groups(groups), grouped=True)

    @classmethod
    def merge(cls, parts: Sequence[DocumentCounts]) -> DocumentCounts:
        """Add the counts of parts of a text, or of several runs. A document may be in one or in several of them.

        Raises RbptrackError if they count hits at different k, or if only some of them are summed by group.
        """
        if len({part.ks for part in parts}) > 1:
            raise RbptrackError("counts for different k cannot be added")
        if len({part.grouped for part in parts}) > 1:
            raise RbptrackError("counts by group and counts by document cannot be added")
        joined = cls.concatenate(parts)
        if (np.diff(joined.document) > 0).all():
            return joined
        joined = joined.take(np.argsort(joined.document, kind="stable"))
        merged = super(DocumentCounts, joined).in_groups(joined.document.tolist())
        # bincount adds the parts in their order.
        nats = np.bincount(np.unique(joined.document, return_inverse=True)[1], weights=joined.nats)
        return replace(merged, nats=nats, hits=merged.hits.astype(joined.hits.dtype))  # sums of int32 are int64

    def __add__(self, other: DocumentCounts) -> DocumentCounts:
        """Add the counts of two runs with `merge`."""
        return self.merge([self, other])
