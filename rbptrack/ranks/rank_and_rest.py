"""Cross-entropy, split exactly into what ranks fix and the rest: CE = E[ln R] + E[-ln(p R)].

p is the target's probability and R its rank with ties counted, so that p R <= 1: R entries have at least p each. Both
parts are at least 0. E[ln R] = sum over k >= 1 of ln(1 + 1/k) (1 - RBP_k): a weighted sum of all RBP_k, and a lower
bound of CE. Nothing is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.counts import DocumentSums
from rbptrack.ranks.histogram import ABOVE_ZERO, RankHistogram
from rbptrack.ranks.names import FloatArray, IntArray
from rbptrack.ranks.table import RankTable

BANDS = np.array([1, 2, 5, *(m * 10**e for e in range(1, 7) for m in (1, 2, 5))])
"""First k of each band of k; the last has no end."""

_ROUNDING = 1e-5  # of ln p + ln R above 0, by float32 arithmetic
_IMPORTED = 1.3e-2  # where log-probabilities were rounded to bfloat16
_AGREES = 1e-9  # relative: float64 sums of the same numbers in another order


def split_sums(table: RankTable) -> FloatArray:
    """Return sums of ln R (from its counts), of -ln(p R) (token by token), and tokens with p R above 1 by more than
    rounding.

    Source: arXiv 2510.20387, eq. 3, for R, also where `table.strict`; the mean log-rank is DetectLLM's (arXiv
    2306.05540).

    Raises:
        RbptrackError: the two sums do not add up to that of -ln p.

    """
    rest = _rest(table)
    counts = np.bincount(table.above)
    rank_sum = float(counts @ np.log(np.arange(1, len(counts) + 1)))
    nats = -float(table.column("logprob").sum(dtype=np.float64))
    if not abs(rank_sum + float(rest.sum()) - nats) <= _AGREES * (1 + rank_sum + abs(nats)):
        raise RbptrackError(f"ln R and -ln(p R) add up to {rank_sum + float(rest.sum())}, not to {nats} nats")
    return np.array([rank_sum, rest.sum(), np.count_nonzero(rest < -_tolerance(table))])


def histogram_parts(histogram: RankHistogram) -> tuple[float, float]:
    """Return the means of ln R and of -ln(p R), of a histogram of ranks that count ties."""
    log_rank = np.log(histogram.rank)
    rest = -histogram.logprob - histogram.count * log_rank
    return float(histogram.count @ log_rank / histogram.num_tokens), float(rest.sum() / histogram.num_tokens)


@dataclass(frozen=True)
class RankAndRest(DocumentSums):
    """Both parts of each document's nats.

    Attributes:
        tokens: scored tokens, (documents,).
        bands: sum of ln R, by `BANDS`: the part of sum over k of ln(1 + 1/k) (1 - RBP_k), (documents, bands).
        rest: sum of -ln(p R), (documents,).
        impossible: tokens with p R above 1 by more than rounding: then R and p are not of one distribution.

    """

    SUMMED = ("tokens", "bands", "rest", "impossible")

    tokens: IntArray
    bands: FloatArray
    rest: FloatArray
    impossible: IntArray

    @classmethod
    def of(cls, table: RankTable) -> Self:
        """Return sum a rank table or a piece of whole documents. Source and errors: `split_sums`."""
        split_sums(table)
        present, document = table.documents
        size = len(present)
        rest = _rest(table)
        log_rank = np.log(np.arange(1, int(table.above.max(initial=0)) + 2))
        ends = np.log(BANDS)
        bands = np.zeros((size, len(BANDS)))
        above, of_document = table.above, document
        for number, (low, high) in enumerate(zip(ends, [*ends[1:], np.inf], strict=True)):
            reaches = above >= BANDS[number]  # the others add 0 here and in all later bands
            above = above[reaches]
            of_document = of_document[reaches]
            if not len(above):
                break
            in_band = np.clip(log_rank, low, high) - low  # of every rank
            bands[:, number] = np.bincount(of_document, weights=in_band[above], minlength=size)
        return cls(
            np.bincount(document, minlength=size),
            bands,
            np.bincount(document, weights=rest, minlength=size),
            np.bincount(document[rest < -_tolerance(table)], minlength=size),
        )

    @property
    def parts(self) -> FloatArray:
        """Tokens, sum of ln R, and sum of -ln(p R), (documents, 3)."""
        return np.column_stack([self.tokens, self.bands.sum(axis=1), self.rest])


def _rest(table: RankTable) -> FloatArray:
    """Return -ln(p R) of each token, (tokens,)."""
    return np.asarray(-table.column("logprob").astype(np.float64) - np.log(table.above + 1.0))


def _tolerance(table: RankTable) -> float:
    if not table.ties_known:
        return _IMPORTED
    return ABOVE_ZERO if table.version == 1 else _ROUNDING
