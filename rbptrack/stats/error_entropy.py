"""Cross-entropy in three parts, CE = H(P) + KL(P || Q^) - ln Z_Q, and how each document moves them.

arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean ln p(target) given rank e), Z_Q the sum of
Q(e) over the observed e, and Q^ = Q/Z_Q. The parts are error entropy, self-alignment and confidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.errors import RbptrackError
from rbptrack.ranks import FloatArray, RankHistogram, RankTable


@dataclass(frozen=True)
class Decomposition:
    """The parts of one model's cross-entropy, nats.

    Attributes:
        parts: CE, H(P), KL(P || Q^), -ln Z_Q, (4,): the first is the sum of the others.
        miller_madow: (K - 1)/(2n), K observed ranks: what Miller and Madow (1955) add to H(P) for its downward bias.
        influence: each document's part in the sampling error of `parts`, to first order, (documents, 4); columns sum
            to 0.
        runs: how many runs this is the mean of.

    """

    parts: FloatArray
    miller_madow: float
    influence: FloatArray
    runs: int = 1

    def __add__(self, other: Decomposition) -> Decomposition:
        """The mean over the runs of both (of one size, over the same documents)."""
        runs = self.runs + other.runs
        a, b = self.runs / runs, other.runs / runs
        return Decomposition(
            a * self.parts + b * other.parts,
            a * self.miller_madow + b * other.miller_madow,
            a * self.influence + b * other.influence,
            runs,
        )


def decompose(histogram: RankHistogram) -> FloatArray:
    """CE, H(P), KL(P || Q^) and -ln Z_Q in nats, (4,), from counts and log-probabilities by rank (arXiv 2510.04067).

    The identity CE = H(P) + KL(P || Q^) - ln Z_Q is exact; -ln Z_Q may be negative.
    """
    p = histogram.count / histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    top = log_q.max()
    log_z = float(top + np.log(np.exp(log_q - top).sum()))
    entropy = float(-p @ np.log(p))
    alignment = float(p @ (np.log(p) - log_q + log_z))
    return np.array([histogram.ce, entropy, alignment, -log_z])


def decompose_table(table: RankTable, histogram: RankHistogram) -> Decomposition:
    """The parts, and each document's influence on them (the infinitesimal jackknife, Efron 1982, chapter 6).

    Args:
        table: ranks and log-probabilities by token.
        histogram: of the same ranks.

    Raises:
        RbptrackError: the parts do not add up to the cross-entropy of the ranks within 1e-6 nats.

    """
    parts = decompose(histogram)
    if not abs(parts[1:].sum() - table.ce) < 1e-6:
        raise RbptrackError(f"CE is {table.ce:.9f}, the sum of its parts {parts[1:].sum():.9f}: more than 1e-6 apart")
    n = histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    by_rank = np.zeros((histogram.vocab_size + 1, 3))
    by_rank[histogram.rank, 0] = -np.log(histogram.count / n)
    by_rank[histogram.rank, 1] = log_q
    by_rank[histogram.rank, 2] = np.exp(log_q + parts[3]) / histogram.count  # Q^(e) / count
    rank, logprob = table.rank, table.column("logprob").astype(np.float64)
    _, document = np.unique(table.column("document"), return_inverse=True)
    tokens = np.bincount(document)
    ce = (np.bincount(document, weights=-logprob) - tokens * parts[0]) / n
    entropy = (np.bincount(document, weights=by_rank[rank, 0]) - tokens * parts[1]) / n
    confidence = -np.bincount(document, weights=by_rank[rank, 2] * (logprob - by_rank[rank, 1]))
    return Decomposition(
        parts=parts,
        miller_madow=(len(histogram.rank) - 1) / (2 * n),
        influence=np.column_stack([ce, entropy, ce - entropy - confidence, confidence]),
    )


def part_covariance(influence: FloatArray) -> FloatArray:
    """Sampling covariance between sizes of each part, (parts, m, m), from influence, (m, documents, parts).

    sum_d I_id I_jd D/(D - 1), over the D documents that all sizes read.
    """
    return np.asarray(np.einsum("idp,jdp->pij", influence, influence) * _unbiased(influence.shape[1]))


def shares_of_fall(values: FloatArray, influence: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What share of CE's fall from the first size to the last each part has, and its standard error over documents.

    The standard error is the delta method's, with both sizes' influences paired by document. The shares sum to 1.

    Args:
        values: CE and its parts at each size, nats, (m, 1 + parts).
        influence: each document's influence on them, (m, documents, 1 + parts).

    Returns:
        Shares and standard errors, both (parts,); NaN where CE does not fall.

    """
    fall, moved = values[0] - values[-1], influence[0] - influence[-1]
    if not fall[0] > 0:
        return np.full(len(fall) - 1, np.nan), np.full(len(fall) - 1, np.nan)
    shares = fall[1:] / fall[0]
    squares = (((moved[:, 1:] - shares * moved[:, :1]) / fall[0]) ** 2).sum(axis=0)
    return shares, np.sqrt(_unbiased(influence.shape[1]) * squares)


def _unbiased(documents: int) -> float:
    return documents / max(documents - 1, 1)
