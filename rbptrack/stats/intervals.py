"""Intervals of shares, ratios and bootstrapped numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rbptrack.ranks import FloatArray


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float]:
        """As columns of a table: name, name_low and name_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def percentiles(draws: FloatArray, *, level: float) -> tuple[float, float]:
    """The percentile interval of bootstrap draws; from -infinity where a replicate has no success at all.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    tail = 50 * (1 - level)
    low, high = np.percentile(draws, [tail, 100 - tail], method="nearest")
    return float(low), float(high)


def simultaneous(draws: FloatArray, *, level: float) -> tuple[FloatArray, FloatArray]:
    """Percentile intervals of several numbers that hold all of them at once with probability `level`.

    Each leaves out as many draws at its ends as makes `1 - level` of the replicates fall outside of any (Mandel and
    Betensky 2008). Draws of -infinity are the lowest.

    Args:
        draws: bootstrap replicates, (replicates, numbers).
        level: nominal coverage of all.

    Returns:
        Lower and upper ends, each (numbers,).

    """
    replicates = len(draws)
    place = draws.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    depth = np.sort(np.minimum(place, replicates - 1 - place).min(axis=1))
    cut = int(depth[int((1 - level) * replicates)])
    ordered = np.sort(draws, axis=0)
    return ordered[cut], ordered[replicates - 1 - cut]


def studentized(value: float, se: float, draws: FloatArray, draw_se: FloatArray, *, level: float) -> Interval:
    """The bootstrap-t interval, for skewed or heavy-tailed errors: value - q * se, q from t = (draw - value)/draw_se.

    On each side q is the larger of the equal-tailed quantile of t (Efron and Tibshirani 1993, section 12.5) and the
    quantile of |t| (the symmetric interval, Hall 1992, section 3.6): with 20 to 1000 documents of heavy-tailed
    difficulty that covers nearest to its level. Fewer than some 200 documents do not know a skewed tail: there every
    bootstrap interval is too narrow, this one least.

    Args:
        value: the estimate.
        se: its standard error.
        draws: the estimate in each bootstrap replicate, (replicates,).
        draw_se: its standard error in each, (replicates,).
        level: nominal coverage.

    """
    usable = draw_se > 0
    if not se > 0 or not usable.any():
        return Interval(value, value, value)
    t = (draws[usable] - value) / draw_se[usable]
    low, high = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
    both = np.quantile(np.abs(t), level)
    return Interval(value, float(value - max(high, both) * se), float(value + max(-low, both) * se))


def fieller(a: float, b: float, a_se: float, b_se: float, *, quantile: float) -> tuple[float, float]:
    """Fieller's interval (1954) of a/b for independent, normal a and b; (-inf, inf) where b may be 0.

    With g = (quantile b_se / b)^2 < 1 it is [a/b +- quantile/|b| sqrt(a_se^2 (1 - g) + (a/b)^2 b_se^2)] / (1 - g).

    Args:
        a: the numerator.
        b: the denominator.
        a_se: standard error of a.
        b_se: standard error of b.
        quantile: of the t or normal distribution, for the level wanted.

    """
    g = (quantile * b_se / b) ** 2 if b else np.inf
    if g >= 1:
        return -np.inf, np.inf
    ratio = a / b
    half = quantile / abs(b) * np.sqrt(a_se**2 * (1 - g) + ratio**2 * b_se**2)
    return float((ratio - half) / (1 - g)), float((ratio + half) / (1 - g))


def share_interval(share: float, n: int, *, level: float) -> tuple[float, float]:
    """Wilson's interval (1927) of a share of n independent documents.

    A share that is the mean over several runs of one size may stand for a broken number of successes; it is rounded
    to the nearest whole one, which moves the interval by at most half a document.
    """
    interval = stats.binomtest(round(share * n), n).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)
