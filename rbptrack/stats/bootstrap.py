"""The paired document bootstrap: documents are the resampling unit, drawn jointly for all sizes of a family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from rbptrack.errors import RbptrackError
from rbptrack.ranks import DocumentCounts, FloatArray

BOOTSTRAP_REPLICATES = 1000
BOOTSTRAP_SEED = 20251020
_MOST_WEIGHTS = 16_000_000  # in memory at a time where they are used once: 128 MB


@lru_cache(maxsize=8)  # every analyzer of a sweep asks for the same few, and drawing takes longer than using them
def document_weights(
    documents: int, *, replicates: int = BOOTSTRAP_REPLICATES, seed: int = BOOTSTRAP_SEED
) -> FloatArray:
    """How often each replicate draws each document: (replicates, documents), rows sum to `documents`.

    The same number of documents gives the same weights, so that sizes of a family, which read the same texts, are
    resampled jointly.
    """
    (weights,) = _blocks(documents, replicates, seed, rows=replicates)
    weights.flags.writeable = False  # shared
    return weights


def _blocks(documents: int, replicates: int, seed: int, *, rows: int) -> Iterator[FloatArray]:
    """The weights of some replicates at a time."""
    rng, shares = np.random.default_rng(seed), np.full(documents, 1 / documents)
    for first in range(0, replicates, rows):
        weights = np.empty((min(rows, replicates - first), documents))
        for row in weights:  # not all at once: integers beside these would take as much memory again
            row[:] = rng.multinomial(documents, shares)
        yield weights


def bootstrap_metrics(counts: DocumentCounts, weights: FloatArray) -> FloatArray:
    """Metrics in each bootstrap replicate: (replicates, 1 + len(ks)): CE in nats, then RBP_k of each k.

    Sum, then divide: each replicate is total nats (or hits) over total tokens of the documents that it drew.

    Source: RBP_k and CE of arXiv 2510.20387 (R by its eq. 3), in each replicate of `document_weights`.
    """
    if weights.shape[1] != len(counts.tokens):
        raise RbptrackError(f"weights for {weights.shape[1]} documents, counts of {len(counts.tokens)}")
    totals = weights @ counts.sums  # (replicates, 2 + len(ks))
    return np.asarray(totals[:, 1:] / totals[:, :1])


def resampled_metrics(counts: DocumentCounts) -> FloatArray:
    """`bootstrap_metrics` with the standard replicates; of many documents a part of the weights at a time.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    documents = len(counts.document)
    if documents * BOOTSTRAP_REPLICATES <= _MOST_WEIGHTS:
        return bootstrap_metrics(counts, document_weights(documents))
    blocks = _blocks(documents, BOOTSTRAP_REPLICATES, BOOTSTRAP_SEED, rows=max(1, _MOST_WEIGHTS // documents))
    return np.concatenate([bootstrap_metrics(counts, weights) for weights in blocks])


def paired_covariance(replicates: Sequence[FloatArray]) -> FloatArray:
    """Sampling covariance (m, m) between sizes, from replicates (each (replicates,)) of one statistic per size.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    return np.atleast_2d(np.cov(np.stack(replicates)))
