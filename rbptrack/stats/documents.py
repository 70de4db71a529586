"""Errors by the jackknife over documents. The document is the unit of every interval.

A statistic is a function of sums over documents. `estimate` gives its value and its error. Sums are an array,
(documents, columns), or something that has it as `sums`, such as `DocumentCounts` (tokens, nats, hits at each k).

Tokens of one text resemble each other. In simulation, intervals of an exponent that take tokens as units cover 8 to 92%
instead of 95%. If documents have groups (a site, a book), a row of the counts is a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Protocol

import numpy as np
import scipy

from rbptrack.ranks import DocumentCounts, DocumentSums, FloatArray, IntArray
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.rounding import ROUNDING

MIN_UNITS = 20
"""The fewest documents, or groups if they are known. With fewer, a number has no interval, p, verdict or error."""

TOTALS = -1
"""The number of the single document that stands for a whole dataset if only its totals are known (imported metrics)."""


class HasSums(Protocol):
    """Something with sums of each document, (documents, columns)."""

    @property
    def sums(self) -> FloatArray:
        """(documents, columns)."""
        ...


Summed = HasSums | FloatArray
"""Sums over documents, as `estimate` and `laws` take them."""

Statistic = Callable[[FloatArray], FloatArray]
"""From sums, (..., columns), to a statistic of them, (...) or (..., values)."""


@dataclass(frozen=True)
class Sums(DocumentSums):
    """Sums over documents that an analyzer computes from rank tables, for `read_families`.

    Attributes:
        document: numbers of the documents, ascending, (documents,).
        sums: of each document, (documents, columns).
        grouped: whether each row is a group rather than a document.

    """

    LABELS = ("document",)
    SUMMED = ("sums",)

    document: IntArray
    sums: FloatArray
    grouped: bool = False

    def in_groups(self, groups: Sequence[Any]) -> Sums:
        """Return the sums of each group. The group is then the unit. groups: the group of each row, (documents,)."""
        grouped = super().in_groups(groups)
        return replace(grouped, document=np.arange(len(grouped.sums)), grouped=True)


def ce_and_rbp(sums: FloatArray) -> FloatArray:
    """CE in nats, then RBP_k of each k, (..., 1 + ks), of tokens, nats and hits of each k, (..., 2 + ks)."""
    return np.asarray(sums[..., 1:] / sums[..., :1])


def cross_entropy(sums: FloatArray) -> FloatArray:
    """CE in nats, (...), of tokens, nats and anything else, (..., columns)."""
    return np.asarray(sums[..., 1] / sums[..., 0])


def rbp(sums: FloatArray) -> FloatArray:
    """RBP_k, the share of tokens with rank <= k, (..., ks), of tokens, nats and hits of each k, (..., 2 + ks)."""
    return ce_and_rbp(sums)[..., 1:]


def missed(sums: FloatArray) -> FloatArray:
    """-ln RBP_k, (..., ks), of tokens, nats and hits of each k, (..., 2 + ks)."""
    return np.asarray(-np.log(rbp(sums)))


def ce_and_missed(sums: FloatArray) -> FloatArray:
    """CE, then -ln RBP_k of each k, (..., 1 + ks), of tokens, nats and hits of each k, (..., 2 + ks)."""
    values = ce_and_rbp(sums)
    return np.concatenate([values[..., :1], -np.log(values[..., 1:])], axis=-1)


def missed_over_ce(sums: FloatArray) -> FloatArray:
    """-ln RBP_k / CE, (..., ks), of tokens, nats and hits of each k, (..., 2 + ks).

    The exponent of its law is the difference of both exponents, without the errors that both share.
    """
    values = ce_and_missed(sums)
    return np.asarray(values[..., 1:] / values[..., :1])


def influences(sums: Summed, statistic: Statistic) -> tuple[FloatArray, FloatArray]:
    """Compute a statistic of sums over documents, and the influence of each document on it.

    Returns:
        The value, () or (values,), and the influences, (documents,) or (documents, values). An influence is the value
        minus the value without the document, centred. A difference that is only a rounding error counts as 0.

    """
    of_documents = np.asarray(sums if isinstance(sums, np.ndarray) else sums.sums, dtype=np.float64)
    totals = of_documents.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.asarray(statistic(totals), dtype=np.float64)
        u = np.asarray(value - statistic(totals - of_documents))
        u[np.abs(u) <= ROUNDING * np.abs(value)] = 0.0
        return value, np.asarray(u - u.mean(axis=0))


def combined(u: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the influences on a weighted sum, (documents,), from the influences on its terms, (documents, values).

    A sum that cancels up to rounding errors counts as 0. What all sizes of a law share cancels in its exponent.
    """
    with np.errstate(invalid="ignore"):  # influences may be infinite
        total = u @ weights
        total[np.abs(total) <= ROUNDING * (np.abs(u) @ np.abs(weights))] = 0.0
    return np.asarray(total)


def estimate(sums: Summed, statistic: Statistic) -> Estimate:
    """Compute one statistic of sums over documents, and its error by the jackknife."""
    return from_influences(*influences(sums, statistic))


def from_influences(value: FloatArray, u: FloatArray) -> Estimate:
    """Make an estimate from its value and the influences of documents, (documents,)."""
    u = u.reshape(len(u))
    return Estimate(
        float(np.squeeze(value)),
        sampling=float(covariance(u[:, None])[0, 0]),
        sampling_df=float(degrees_of_freedom(u)),
        deciding=float(deciding(u)),
    )


def half_widths(u: FloatArray, level: float = 0.95) -> FloatArray:
    """Return half the width of the interval of many statistics, (values,), from influences, (documents, values)."""
    n = len(u)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.sqrt((u**2).sum(axis=0) * (n - 1) / n)
        half = scipy.special.stdtrit(degrees_of_freedom(u), (1 + level) / 2) * spread
    return np.where(np.isfinite(half) & (n >= MIN_UNITS), half, nan)


def covariance(u: FloatArray) -> FloatArray:
    """Return the covariance of statistics over documents, (values, values), from influences, (documents, values).

    It is NaN with fewer than `MIN_UNITS` documents, and for influences that are not finite. Every error over documents
    is computed by this function.
    """
    n, values = u.shape
    if n < MIN_UNITS:
        return np.full((values, values), nan)
    finite = np.isfinite(u).all(axis=0)  # without some document a statistic may be infinite; its error is then unknown
    sums = np.where(finite, u, 0.0)
    return np.where(np.outer(finite, finite), sums.T @ sums * (n - 1) / n, nan)


def deciding(u: FloatArray) -> FloatArray:
    """Return how many documents decide a number, () or (values,): K = (sum u^2)^2 / sum u^4.

    u are the influences of documents, (documents,) or (documents, values). If all documents have equal influence, K is
    the number of documents.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        squares = u**2
        fourth = (squares**2).sum(axis=0)
        count = np.where(fourth > 0, squares.sum(axis=0) ** 2 / fourth, len(u))
    return np.where(np.isfinite(u).all(axis=0), count, nan)


def degrees_of_freedom(u: FloatArray) -> FloatArray:
    """Return the degrees of freedom of a variance over documents, () or (values,): min(n - 1, 3K - 1).

    K = (sum u^2)^2 / sum u^4 for the influences u of n documents, (documents,) or (documents, values). This is
    Satterthwaite's rule with the fourth moment of a normal distribution.
    """
    return np.asarray(np.fmin(len(u) - 1, 3 * deciding(u) - 1))


def only_totals(sums: Summed) -> bool:
    """Whether only the totals are known and single documents are not, as in metrics imported without ranks."""
    return isinstance(sums, DocumentCounts) and len(sums.document) == 1 and int(sums.document[0]) == TOTALS
