"""Splits cross-entropy exactly into a part that the ranks determine and the rest: CE = E[ln R] + E[-ln(p R)].

p is the target's probability and R its rank, ties included. At least R entries have a probability of at least p, so
p R <= 1, and both parts are at least 0. E[ln R] is a weighted sum of all 1 - RBP_k, with weights ln(1 + 1/k) for
k >= 1. It is a lower bound of CE. Neither part is an estimate from a fit.
"""

from __future__ import annotations

import numpy as np

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray
from rbptrack.ranks.table import RankTable

_ROUNDING = 1e-5  # nats; float32 arithmetic can make ln p + ln R larger than 0 by up to this
_IMPORTED = 1.3e-2  # nats; the tolerance if log-probabilities were rounded to bfloat16
_AGREES = 1e-9  # largest relative difference between float64 sums of the same numbers in different order


def rank_and_rest_sums(table: RankTable) -> FloatArray:
    """Return the sum of ln R, the sum of -ln(p R), and the number of tokens with p R above 1 by more than rounding.

    R is the rank of arXiv 2510.20387, eq. 3, even if `table.strict`. The mean of ln R is DetectLLM's mean log-rank
    (arXiv 2306.05540).

    Returns:
        An array (3,).

    Raises:
        RbptrackError: the two sums do not add up to the sum of -ln p.

    """
    counts = np.bincount(table.above)
    logs = np.log(np.arange(1, len(counts) + 1))  # ln R, by `above` = R - 1
    rest = -table.column("logprob").astype(np.float64) - logs[table.above]  # (tokens,)
    rank_sum = float(counts @ logs)
    nats = -float(table.column("logprob").sum(dtype=np.float64))
    if not abs(rank_sum + float(rest.sum()) - nats) <= _AGREES * (1 + rank_sum + abs(nats)):
        raise RbptrackError(f"ln R and -ln(p R) add up to {rank_sum + float(rest.sum())}, not to {nats} nats")
    tolerance = _ROUNDING if table.ties_known else _IMPORTED
    return np.array([rank_sum, rest.sum(), np.count_nonzero(rest < -tolerance)])
