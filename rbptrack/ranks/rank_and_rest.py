"""Cross-entropy, split exactly into what ranks fix and the rest: CE = E[ln R] + E[-ln(p R)].

p is the target's probability and R its rank with ties counted. R entries have at least p each, so p R <= 1. Both
parts are at least 0. E[ln R] = sum over k >= 1 of ln(1 + 1/k) (1 - RBP_k): a weighted sum of all RBP_k, and a lower
bound of CE. Nothing is fitted.
"""

from __future__ import annotations

import numpy as np

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray
from rbptrack.ranks.table import RankTable

_ROUNDING = 1e-5  # of ln p + ln R above 0, by float32 arithmetic
_IMPORTED = 1.3e-2  # where log-probabilities were rounded to bfloat16
_AGREES = 1e-9  # relative: float64 sums of the same numbers in another order


def split_sums(table: RankTable) -> FloatArray:
    """Sums of ln R and of -ln(p R), and the number of tokens with p R above 1 by more than rounding, (3,).

    Source: arXiv 2510.20387, eq. 3, for R, also where `table.strict`; the mean log-rank is DetectLLM's (arXiv
    2306.05540).

    Raises:
        RbptrackError: the two sums do not add up to that of -ln p.

    """
    counts = np.bincount(table.above)
    logs = np.log(np.arange(1, len(counts) + 1))  # of R = above + 1
    rest = -table.column("logprob").astype(np.float64) - logs[table.above]  # (tokens,)
    rank_sum = float(counts @ logs)
    nats = -float(table.column("logprob").sum(dtype=np.float64))
    if not abs(rank_sum + float(rest.sum()) - nats) <= _AGREES * (1 + rank_sum + abs(nats)):
        raise RbptrackError(f"ln R and -ln(p R) add up to {rank_sum + float(rest.sum())}, not to {nats} nats")
    tolerance = _ROUNDING if table.ties_known else _IMPORTED
    return np.array([rank_sum, rest.sum(), np.count_nonzero(rest < -tolerance)])
