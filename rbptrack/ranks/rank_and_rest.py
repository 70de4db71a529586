"""Split cross-entropy exactly into a part that the ranks determine and a remainder: CE = E[ln R] + E[-ln(p R)].

p is the target's probability and R its rank, ties included. At least R entries have a probability of at least p, so
p R <= 1. Both parts are therefore at least 0, and E[ln R] is a lower bound of CE. E[ln R] is the sum of all 1 - RBP_k,
with weights ln(1 + 1/k) for k >= 1. Neither part comes from a fit.
"""

from __future__ import annotations

import numpy as np

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks.names import FloatArray
from rbptrack.ranks.prompt_logprobs import BFLOAT16_ROUNDING
from rbptrack.ranks.table import RankTable

_FLOAT32_TOLERANCE = 1e-5  # nats; float32 arithmetic can make ln p + ln R larger than 0 by up to this
_SUM_TOLERANCE = 1e-9  # largest relative difference between float64 sums of equal numbers in different order


def rank_and_rest_sums(table: RankTable) -> FloatArray:
    """Sum ln R and -ln(p R) over all tokens.

    R is the rank of arXiv 2510.20387, eq. 3, even if `table.strict`. The mean of ln R is DetectLLM's mean log-rank
    (arXiv 2306.05540).

    Returns:
        An array (3,): the sum of ln R, the sum of -ln(p R), and the number of tokens whose p R exceeds 1 by more than a
        rounding error.

    Raises:
        RbptrackError: the two sums do not add up to the sum of -ln p.

    """
    counts = np.bincount(table.above)
    ln_rank = np.log(np.arange(1, len(counts) + 1))  # the index is `above`, R - 1
    remainder = -table.column("logprob").astype(np.float64) - ln_rank[table.above]  # (tokens,)
    rank_sum = float(counts @ ln_rank)
    nats = -float(table.column("logprob").sum(dtype=np.float64))
    if not abs(rank_sum + float(remainder.sum()) - nats) <= _SUM_TOLERANCE * (1 + rank_sum + abs(nats)):
        raise RbptrackError(f"ln R and -ln(p R) add up to {rank_sum + float(remainder.sum())}, not to {nats} nats")
    # Ties are unknown if the log-probabilities come from a server, which may round them.
    tolerance = _FLOAT32_TOLERANCE if table.ties_known else BFLOAT16_ROUNDING
    return np.array([rank_sum, remainder.sum(), np.count_nonzero(remainder < -tolerance)])
