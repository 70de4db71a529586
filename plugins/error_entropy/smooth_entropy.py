"""The parts of cross-entropy without the bias of a sample: shares and probabilities taken for smooth in the rank.

Plug-in parts are biased by orders of their standard errors: most of |V| ranks occur a few times or never, so that
H(P) comes out low, and Z_Q lacks the ranks that did not occur. Neither P(e) nor Q(e) jumps from one large rank to the
next. So ranks are counted in bins: each up to 64 on its own, then eight bins to a doubling, wider where fewer than 50
tokens fall. Within a bin P and Q follow a parabola in ln e, and what bias is left goes by the jackknife over documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from rbptrack.ranks import DocumentSums, FloatArray, IntArray, RankHistogram, RankTable

_EVERY_RANK = 64
_PER_DOUBLING = 8
_LEAST_TOKENS = 50
_LEAST_BINS = 8
_AT_ONCE = 2_000_000  # elements of a matrix of documents x bins


@dataclass(frozen=True)
class BinnedRanks(DocumentSums):
    """Tokens and their nats by document and bin of ranks.

    Attributes:
        edges: of the bins, the last one |V| + 1, (bins + 1,).
        count: tokens, (documents, bins).
        cost: sum of -ln p(target), nats, (documents, bins).

    """

    SUMMED = ("count", "cost")

    edges: IntArray
    count: IntArray
    cost: FloatArray

    @classmethod
    def of(cls, table: RankTable, edges: IntArray) -> BinnedRanks:
        """Count a rank table, or a piece of whole documents. Source: the bins of `rank_bins`."""
        present, document = table.documents
        shape = (len(present), len(edges) - 1)
        every = np.searchsorted(edges, np.arange(table.vocab_size + 1), side="right") - 1  # looked up: 5 times as fast
        cell = document * shape[1] + every[table.rank]
        nats = -table.column("logprob").astype(np.float64)
        count, cost = (np.bincount(cell, weights=w, minlength=shape[0] * shape[1]).reshape(shape) for w in (None, nats))
        return cls(edges, count.astype(np.int32), cost)


def smooth_parts(ranks: BinnedRanks) -> tuple[FloatArray, FloatArray]:
    """Return CE, H(P), KL(P || Q^) and -ln Z_Q of a model on unlimited text like this, nats, and documents' influences.

    Returns:
        The parts, (4,), with the jackknife's correction of bias (Quenouille 1956), the first the sum of the others;
        and each document's influence on them to first order, (documents, 4). NaN where ranks fall in fewer than 8
        bins, too few to take them for smooth, or a single document.

    """
    count = ranks.count
    cost = ranks.cost
    documents, bins = count.shape
    if bins < _LEAST_BINS or documents < 2:
        return np.full(4, np.nan), np.full((documents, 4), np.nan)
    total = count.sum(axis=0).astype(np.float64)
    total_cost = cost.sum(axis=0)
    within = _within(ranks.edges, total, -total_cost / total)
    whole = _parts(total, total_cost, -total_cost / total, *within)
    blocks = [slice(first, first + _AT_ONCE // bins) for first in range(0, documents, _AT_ONCE // bins)]
    parts = [_parts(total - count[b], total_cost - cost[b], -total_cost / total, *within) for b in blocks]
    without = np.concatenate(parts)  # (documents, 4)
    mean = without.mean(axis=0)
    return whole - (documents - 1) * (mean - whole), (documents - 1) / documents * (mean - without)


def rank_bins(histogram: RankHistogram) -> IntArray:
    """Return edges of bins of ranks, the last one |V| + 1: each rank up to 64, then even in ln e, with 50 tokens or
    more.

    Source: this module's smoothing of the parts of arXiv 2510.04067.
    """
    vocab_size = histogram.vocab_size
    steps = max(1, int(_PER_DOUBLING * np.log2(max((vocab_size + 1) / _EVERY_RANK, 1))))
    near = np.arange(1.0, min(_EVERY_RANK, vocab_size) + 1)
    far = np.rint(np.geomspace(near[-1], vocab_size + 1, steps + 1))
    edges = np.unique(np.concatenate([near, far]))
    count = np.histogram(histogram.rank, bins=edges, weights=histogram.count)[0]
    kept = [1]
    inside = 0
    for edge, tokens in zip(edges[1:], count, strict=True):
        inside += int(tokens)
        if inside >= _LEAST_TOKENS:
            kept.append(int(edge))
            inside = 0
    if inside or len(kept) == 1:
        kept.append(int(vocab_size) + 1)
    kept[-1] = int(vocab_size) + 1
    return np.asarray(kept)


def _within(edges: IntArray, count: FloatArray, log_q: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return, for each bin, the entropy of P within it, and the sum of Q(e) over exp(its mean of ln Q), both
    (bins,).
    """
    e = np.arange(1, edges[-1])
    place = np.searchsorted(edges, e, side="right") - 1
    width = np.diff(edges)
    middle = np.log(edges[:-1] * (edges[1:] - 1.0)) / 2
    wide = width > 1
    shape = []
    for y in (np.log(count / width), log_q):
        few = wide.sum() < 3
        parabola = np.zeros(1) if few else np.polyfit(middle[wide], y[wide], 2, w=np.sqrt(count[wide]))
        shape.append(np.polyval(parabola, np.log(e)))
    top = np.maximum.reduceat(shape[0], edges[:-1] - 1)[place]
    p = np.exp(shape[0] - top)
    p /= np.add.reduceat(p, edges[:-1] - 1)[place]
    entropy = np.add.reduceat(-special.xlogy(p, p), edges[:-1] - 1)
    mean = np.add.reduceat(p * shape[1], edges[:-1] - 1)[place]
    return entropy, np.add.reduceat(np.exp(shape[1] - mean), edges[:-1] - 1)


def _parts(
    count: FloatArray, cost: FloatArray, log_q: FloatArray, entropy_within: FloatArray, ranks_within: FloatArray
) -> FloatArray:
    """Return the four parts from tokens and nats by bin, (..., bins); log_q stands in for a bin that has no token."""
    tokens = count.sum(axis=-1, keepdims=True)
    p = count / tokens
    ce = cost.sum(axis=-1) / tokens[..., 0]
    entropy = (p * entropy_within - special.xlogy(p, p)).sum(axis=-1)
    mean = np.where(count > 0, -cost / np.maximum(count, 1), log_q)
    log_z = special.logsumexp(mean, b=ranks_within, axis=-1)
    return np.stack([ce, entropy, ce - entropy + log_z, -log_z], axis=-1)
