"""Sums per document, the unit that bootstraps resample."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray, IntArray


def sum_by(groups: Sequence[str], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sums over the rows of each group, in the groups' order: (groups, ...) from values of each row, (rows, ...)."""
    place = np.unique(np.asarray(groups), return_inverse=True)[1]
    order = np.argsort(place, kind="stable")
    return np.asarray(np.add.reduceat(values[order], np.flatnonzero(np.diff(place[order], prepend=-1))))


@dataclass(frozen=True)
class DocumentCounts:
    """Sums per document, the unit of resampling.

    Attributes:
        ks: the k that `hits` counts.
        document: numbers of the documents that have scored tokens, ascending, (documents,).
        tokens: scored tokens, (documents,).
        nats: sum of -ln p(target), (documents,).
        hits: tokens with rank <= k, (documents, len(ks)).
        grouped: whether each row is a source, the sum of its documents, rather than a document.

    """

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
        """The same sums for some of the k, in the order given."""
        place = {k: i for i, k in enumerate(self.ks)}
        columns = [place[k] for k in ks]
        return replace(self, ks=tuple(ks), hits=self.hits[:, columns])

    def take(self, rows: npt.NDArray[Any]) -> DocumentCounts:
        """The sums of some documents: places, or whether to take each, (documents,)."""
        names = ("document", "tokens", "nats", "hits")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def in_groups(self, groups: Sequence[str]) -> DocumentCounts:
        """The sums of each source, which are then what is resampled; groups: the source of each row, (documents,)."""
        tokens, nats, hits = (sum_by(groups, values) for values in (self.tokens, self.nats, self.hits))
        return DocumentCounts(self.ks, np.arange(len(tokens)), tokens, nats, hits, grouped=True)

    @classmethod
    def concatenate(cls, parts: Sequence[DocumentCounts]) -> DocumentCounts:
        """Join the counts of disjoint documents, given in their order; where documents are shared, add."""
        ends = [(part.document[0], part.document[-1]) for part in parts if len(part.document)]
        if any(before[1] >= after[0] for before, after in itertools.pairwise(ends)):
            return reduce(operator.add, parts)
        document, tokens, nats, hits = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("document", "tokens", "nats", "hits")
        )
        return cls(parts[0].ks, document, tokens, nats, hits)

    def __add__(self, other: DocumentCounts) -> DocumentCounts:
        if self.ks != other.ks:
            raise RbptrackError(f"counts for k = {self.ks} and {other.ks} cannot be added")
        document, inverse = np.unique(np.concatenate([self.document, other.document]), return_inverse=True)

        def total(mine: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
            both = np.concatenate([mine, theirs])
            result = np.zeros((len(document), *both.shape[1:]), dtype=both.dtype)
            np.add.at(result, inverse, both)
            return result

        return DocumentCounts(
            self.ks,
            document,
            total(self.tokens, other.tokens),
            total(self.nats, other.nats),
            total(self.hits, other.hits),
            self.grouped,
        )
