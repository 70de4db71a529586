"""How cells are cut into shards, so that all jobs end at about the same time."""

from __future__ import annotations

import math
from collections.abc import Mapping

LEAST_SECONDS = 180.0  # of a task: below, starting a process and loading weights cost more than is gained
_ROUNDS = 8.0  # tasks of the longest kind that each job does at least: a job is idle at the end for one of them at most


def cut(seconds: Mapping[int, float], *, jobs: int, most: float = math.inf) -> dict[int, int]:
    """Return the number of shards of each cell.

    The longest task takes a third of each job's share of the whole, or three minutes. Pulled longest first, tasks then
    leave jobs idle for at most a third of their time at the end, and for far less than that as a rule.

    Args:
        seconds: that each cell takes one job, by its number; 0 if unknown.
        jobs: how many run at the same time.
        most: seconds that no task may exceed, such as a queue's limit.

    Examples:
        >>> cut({0: 7200.0, 1: 1200.0, 2: 60.0}, jobs=4)
        {0: 11, 1: 2, 2: 1}

    """
    share = sum(seconds.values()) / max(1, jobs)
    longest = min(max(share / _ROUNDS, LEAST_SECONDS), most) if jobs > 1 else most
    return {number: max(1, math.ceil(cell / longest)) for number, cell in seconds.items()}
