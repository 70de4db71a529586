"""The paired document bootstrap: documents are the resampling unit, drawn jointly for all sizes of a family."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import DocumentCounts, FloatArray

BOOTSTRAP_REPLICATES = 1000
BOOTSTRAP_SEED = 20251020
Weights = FloatArray | npt.NDArray[np.uint8]

_MOST_FLOATS = 16_000_000  # weights beyond which a byte holds each: 128 MB of floats
_AT_ONCE = 2_000_000  # of these, turned into floats at a time: 16 MB


def document_weights(documents: int, *, replicates: int = BOOTSTRAP_REPLICATES, seed: int = BOOTSTRAP_SEED) -> Weights:
    """Draw how often each replicate takes each document: (replicates, documents), rows sum to `documents`.

    The same number of documents gives the same weights, so that sizes of a family, which read the same texts, are
    resampled jointly. Of many documents they are bytes (a document is drawn once on average, and 255 times never): use
    `drawn_sums`, which multiplies them without a copy as floats.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    return (_kept if documents * replicates <= _MOST_FLOATS else _kept_once)(documents, replicates, seed)


def _drawn(documents: int, replicates: int, seed: int) -> Weights:
    (weights,) = _blocks(documents, replicates, seed, rows=replicates)
    weights.flags.writeable = False  # shared
    return weights


# Every analyzer asks for the same few, and drawing takes longer than using them; of many documents they are large.
_kept = lru_cache(maxsize=8)(_drawn)
_kept_once = lru_cache(maxsize=1)(_drawn)


def _blocks(documents: int, replicates: int, seed: int, *, rows: int) -> Iterator[Weights]:
    """Yield the weights of some replicates at a time."""
    rng = np.random.default_rng(seed)
    many = documents * replicates > _MOST_FLOATS
    shares = np.full(documents, 1 / documents)
    for first in range(0, replicates, rows):
        weights = np.empty((min(rows, replicates - first), documents), dtype=np.uint8 if many else np.float64)
        for row in weights:  # not all at once: integers beside these would take as much memory again
            # One multinomial is drawn either way; with many documents counting the draws takes a tenth of the time.
            row[:] = (
                np.bincount(rng.integers(documents, size=documents, dtype=np.int32), minlength=documents)
                if many
                else rng.multinomial(documents, shares)
            )
        yield weights


def drawn_sums(weights: Weights, values: npt.NDArray[Any]) -> FloatArray:
    """Return sums of values, (documents, ...), over the documents that each replicate drew, (replicates, ...).

    Source: `weights @ values`, the sums of a bootstrap replicate (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 6).

    Raises:
        RbptrackError: the documents are not those of the weights.

    """
    if weights.shape[1] != len(values):
        raise RbptrackError(f"weights for {weights.shape[1]} documents, values of {len(values)}")
    flat = values.reshape(len(values), -1) if values.ndim > 2 else values
    if weights.dtype != np.uint8:
        sums = weights @ flat
    else:
        sums = np.zeros((len(weights), *flat.shape[1:]))
        step = max(1, _AT_ONCE // len(weights))
        for first in range(0, len(flat), step):
            part = slice(first, first + step)
            sums += weights[:, part].astype(np.float64) @ flat[part].astype(np.float64, copy=False)
    return np.asarray(sums.reshape(len(weights), *values.shape[1:]), dtype=np.float64)


def bootstrap_metrics(counts: DocumentCounts, weights: Weights) -> FloatArray:
    """Return metrics in each bootstrap replicate: (replicates, 1 + len(ks)): CE in nats, then RBP_k of each k.

    Sum, then divide: each replicate is total nats (or hits) over total tokens of the documents that it drew.

    Source: RBP_k and CE of arXiv 2510.20387 (R by its eq. 3), in each replicate of `document_weights`.
    """
    if weights.dtype == np.uint8:  # of many documents a table of all sums as floats is as large as the weights
        tokens, nats, hits = (drawn_sums(weights, values) for values in (counts.tokens, counts.nats, counts.hits))
        return np.column_stack([nats, hits]) / tokens[:, None]
    totals = drawn_sums(weights, counts.sums)  # (replicates, 2 + len(ks))
    return totals[:, 1:] / totals[:, :1]


def resampled_metrics(counts: DocumentCounts) -> FloatArray:
    """Return `bootstrap_metrics` with the standard replicates; of many documents a part of the weights at a time.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    documents = len(counts.document)
    if documents * BOOTSTRAP_REPLICATES <= _MOST_FLOATS:
        return bootstrap_metrics(counts, document_weights(documents))
    blocks = _blocks(documents, BOOTSTRAP_REPLICATES, BOOTSTRAP_SEED, rows=max(1, 8 * _MOST_FLOATS // documents))
    return np.concatenate([bootstrap_metrics(counts, weights) for weights in blocks])


def paired_covariance(replicates: npt.ArrayLike) -> FloatArray:
    """Return sampling covariances between sizes, (..., m, m), of a statistic's replicates at each, (..., m,
    replicates).

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    draws = np.asarray(replicates, dtype=np.float64)
    off = draws - draws.mean(axis=-1, keepdims=True)
    return np.asarray(off @ off.swapaxes(-1, -2) * (1 / (draws.shape[-1] - 1)))
