"""Statistics of sums over documents, such as cross-entropy and RBP_k.

A statistic is a function of sums over documents. Sums are an array, (documents, columns), or an object with such an
array as its attribute `sums`. The first column is the number of tokens. `DocumentCounts` is such an object: its columns
are tokens, nats, and the hits at each k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rbptrack.ranks import DocumentCounts, DocumentSums, FloatArray, IntArray

TOTALS = -1
"""The document number of a row that holds the totals of a dataset.

Metrics that were imported without ranks have only this row.
"""


class HasSums(Protocol):
    """An object with sums of each document, such as `DocumentCounts` or `Sums`."""

    @property
    def sums(self) -> FloatArray:
        """The sums of each document, (documents, columns)."""
        ...


SumsLike = HasSums | FloatArray
"""The sums of each document: an array, (documents, columns), or an object with such an array as its attribute `sums`.

The first column is the number of tokens. If each document has several parts, the array is (documents, parts, columns).
"""

Statistic = Callable[[FloatArray], FloatArray]
"""A function that takes sums, (..., columns), and returns a statistic, (...) or (..., values)."""


@dataclass(frozen=True)
class Sums(DocumentSums):
    """Sums of each document that an analyzer computes from rank tables, and passes to `read_families`.

    Attributes:
        document: the numbers of the documents, or of the first document of each group, ascending, (documents,).
        sums: the sums of each document, (documents, columns). The first column is the number of tokens.
        grouped: whether each row is a group rather than a document.

    """

    LABELS = ("document",)
    SUMMED = ("sums",)

    document: IntArray
    sums: FloatArray
    grouped: bool = False

    def in_groups(self, groups: Sequence[Any]) -> Sums:
        """Return the sums of each group. A row of the result is a group.

        Args:
            groups: the group of each row, (documents,).

        """
        return replace(super().in_groups(groups), grouped=True)


def ce_and_rbp(sums: FloatArray) -> FloatArray:
    """Return CE in nats and then RBP_k of each k, (..., 1 + ks).

    sums: the number of tokens, the sum of nats, and the hits at each k, (..., 2 + ks).
    """
    return np.asarray(sums[..., 1:] / sums[..., :1])


def cross_entropy(sums: FloatArray) -> FloatArray:
    """Return CE in nats per token, (...).

    sums: the number of tokens, the sum of nats, and any other columns, (..., columns).
    """
    return np.asarray(sums[..., 1] / sums[..., 0])


def rbp(sums: FloatArray) -> FloatArray:
    """Return RBP_k of each k, the share of tokens with rank <= k, (..., ks).

    sums: the number of tokens, the sum of nats, and the hits at each k, (..., 2 + ks).
    """
    return ce_and_rbp(sums)[..., 1:]


def neg_log_rbp(sums: FloatArray) -> FloatArray:
    """Return -ln RBP_k of each k, (..., ks).

    sums: the number of tokens, the sum of nats, and the hits at each k, (..., 2 + ks).
    """
    return np.asarray(-np.log(rbp(sums)))


def ce_and_neg_log_rbp(sums: FloatArray) -> FloatArray:
    """Return CE in nats and then -ln RBP_k of each k, (..., 1 + ks).

    sums: the number of tokens, the sum of nats, and the hits at each k, (..., 2 + ks).
    """
    values = ce_and_rbp(sums)
    return np.concatenate([values[..., :1], -np.log(values[..., 1:])], axis=-1)


def neg_log_rbp_over_ce(sums: FloatArray) -> FloatArray:
    """Return -ln RBP_k / CE of each k, (..., ks).

    The exponent of the law of this ratio is the exponent of -ln RBP_k minus the exponent of CE. Errors that both
    exponents have in common cancel in the difference.

    sums: the number of tokens, the sum of nats, and the hits at each k, (..., 2 + ks).
    """
    values = ce_and_neg_log_rbp(sums)
    return np.asarray(values[..., 1:] / values[..., :1])


def sums_array(sums: SumsLike) -> FloatArray:
    """Return sums as an array, (documents, columns) or (documents, parts, columns)."""
    return np.asarray(sums if isinstance(sums, np.ndarray) else sums.sums, dtype=np.float64)


def only_totals(sums: SumsLike) -> bool:
    """Return whether the sums hold only the totals of a dataset, because its documents are unknown.

    This is the case for metrics that were imported without ranks.
    """
    return isinstance(sums, DocumentCounts) and len(sums.document) == 1 and int(sums.document[0]) == TOTALS
