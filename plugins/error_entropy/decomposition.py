"""Cross-entropy in three parts, CE = H(P) + KL(P || Q^) - ln Z_Q, and how each document moves them.

arXiv 2510.04067: P(e) is the share of tokens with rank e, Q(e) = exp(mean ln p(target) given rank e), Z_Q the sum of
Q(e) over the observed e, and Q^ = Q/Z_Q. The parts are error entropy, self-alignment and confidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy import special

from rbptrack.analysis import RbptrackError
from rbptrack.ranks import DocumentMeans, FloatArray, RankHistogram, RankTable
from rbptrack.stats.intervals import Interval, widening, worth
from rbptrack.stats.power_law import fit_power_law

from .smooth_entropy import BinnedRanks, rank_bins, smooth_parts


@dataclass(frozen=True)
class Decomposition(DocumentMeans):
    """The parts of one model's cross-entropy, nats: CE, H(P), KL(P || Q^), -ln Z_Q; the first is the others' sum.

    Attributes:
        parts: of these texts as they are (plug-in), (4,).
        influence: each document's part in their sampling error, to first order, (documents, 4); columns sum to 0.
        corrected: of unlimited text like these (`smooth_parts`), (4,); NaN if undecided.
        corrected_influence: each document's part in their sampling error, (documents, 4).
        runs: how many runs this is the mean of.

    """

    SUMMED = ("influence", "corrected_influence")
    TOTALS = ("parts", "corrected")

    parts: FloatArray
    influence: FloatArray
    corrected: FloatArray
    corrected_influence: FloatArray
    runs: int = 1


def decompose(histogram: RankHistogram) -> FloatArray:
    """Return CE, H(P), KL(P || Q^) and -ln Z_Q in nats, (4,), from counts and log-probabilities by rank (arXiv
    2510.04067).

    The identity CE = H(P) + KL(P || Q^) - ln Z_Q is exact; -ln Z_Q may be negative.
    """
    p = histogram.count / histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    log_z = float(special.logsumexp(log_q))
    entropy = float(-p @ np.log(p))
    alignment = float(p @ (np.log(p) - log_q + log_z))
    return np.array([histogram.ce, entropy, alignment, -log_z])


def decompose_pieces(pieces: Iterable[RankTable], histogram: RankHistogram) -> Decomposition:
    """Return the parts, and each document's influence on them (the infinitesimal jackknife, Efron 1982, chapter 6).

    Raises:
        RbptrackError: the cross-entropy of the ranks is not the histogram's within 1e-6 nats.

    """
    parts = decompose(histogram)
    n = histogram.num_tokens
    log_q = histogram.logprob / histogram.count
    by_rank = np.zeros((3, histogram.vocab_size + 1))
    by_rank[0, histogram.rank] = -np.log(histogram.count / n)
    by_rank[1, histogram.rank] = log_q
    by_rank[2, histogram.rank] = np.exp(log_q + parts[3]) / histogram.count  # Q^(e) / count
    influence = []
    edges = rank_bins(histogram)
    binned = list[BinnedRanks]()
    nats = 0.0
    for piece in pieces:
        rank = piece.rank
        logprob = piece.column("logprob").astype(np.float64)
        present, document = piece.documents
        tokens = np.bincount(document, minlength=len(present))
        nats -= float(logprob.sum())
        ce = (np.bincount(document, weights=-logprob) - tokens * parts[0]) / n
        entropy = (np.bincount(document, weights=by_rank[0][rank]) - tokens * parts[1]) / n
        confidence = -np.bincount(document, weights=by_rank[2][rank] * (logprob - by_rank[1][rank]))
        influence.append(np.column_stack([ce, entropy, ce - entropy - confidence, confidence]))
        binned.append(BinnedRanks.of(piece, edges))
    if not abs(parts[1:].sum() - nats / n) < 1e-6:
        raise RbptrackError(f"CE is {nats / n:.9f} by its ranks, {parts[0]:.9f} by its histogram: over 1e-6 apart")
    return Decomposition(parts, np.concatenate(influence), *smooth_parts(BinnedRanks.concatenate(binned)))


def part_covariance(influence: FloatArray) -> FloatArray:
    """Return sampling covariance between sizes of each part, (parts, m, m), from influence, (m, documents, parts).

    sum_d I_id I_jd D/(D - 1), over the D documents that all sizes read.

    Source: the infinitesimal jackknife (Efron, The Jackknife, the Bootstrap and Other Resampling Plans, 1982,
    chapter 6).
    """
    return np.asarray(np.einsum("idp,jdp->pij", influence, influence) * _unbiased(influence.shape[1]))


def part_errors(influence: FloatArray, *, level: float = 0.95) -> FloatArray:
    """Return standard errors of the parts, (m, parts), from influence, (m, documents, parts), for few documents too.

    Wider than the square root of `part_covariance`'s diagonal where few documents decide (`widening`, by as many as
    their influences are worth), so that two of them cover as often as `level` says.

    Source: the infinitesimal jackknife (Efron 1982, chapter 6); simulated in docs/validity.md.
    """
    wider = np.apply_along_axis(lambda column: widening(worth(column), level), 1, influence)
    return np.asarray(np.sqrt((influence**2).sum(axis=1)) * wider)


def shares_of_fall(values: FloatArray, influence: FloatArray, *, level: float) -> list[Interval] | None:
    """Return each part's share of CE's change over all sizes: the slope of the part against CE.

    A line through the sizes by ordinary least squares, so that the shares sum to 1; its interval holds the scatter
    between models (tau, by REML) and the sampling error of part - share * CE, paired by document, with t of m - 2
    degrees of freedom.

    Source: the parts of arXiv 2510.04067; least squares of a part on CE over the sizes.

    Args:
        values: CE and its parts at each size, nats, (m, 1 + parts), m >= 3, ascending in S.
        influence: each document's influence on them, (m, documents, 1 + parts).
        level: nominal coverage of the intervals.

    Returns:
        A share for each part; None where CE does not fall by more than 3 standard errors from the first size to the
        last: nothing is left to share.

    """
    fall = values[0, 0] - values[-1, 0]
    moved = influence[0, :, 0] - influence[-1, :, 0]
    if not fall > 3 * np.sqrt(_unbiased(len(moved)) * float(moved @ moved)):
        return None
    shares = []
    for part in range(1, values.shape[1]):
        slope = np.polyfit(values[:, 0], values[:, part], 1)[0]
        rest = influence[:, :, part] - slope * influence[:, :, 0]
        sampling = part_covariance(rest[:, :, None])[0]
        # A line in nats is a power law in their exponentials.
        law = fit_power_law(np.exp(values[:, 0]), np.exp(values[:, part]), covariance=sampling, level=level)
        shares.append(Interval(-law.alpha, -law.high, -law.low))
    return shares


def _unbiased(documents: int) -> float:
    return documents / max(documents - 1, 1)
