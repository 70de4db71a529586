"""Intervals of shares, ratios and bootstrapped numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import FloatArray

LEAST_DOCUMENTS = 10
"""Fewer are too few to resample: no interval over documents is printed."""

_MIDDLE = (0.16, 0.84)


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval."""

    value: float
    low: float = float("nan")
    high: float = float("nan")

    @classmethod
    def around(cls, value: float, half: float) -> Interval:
        """Return an interval that reaches equally far to either side of the value."""
        return cls(value, value - half, value + half)

    def columns(self, name: str) -> dict[str, float]:
        """Return the columns of a table: name, name_low and name_high."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def detectable(number: Interval, *, level: float, tests: int = 1, power: float = 0.8) -> float:
    """Return the smallest distance from a null that an interval as wide would have excluded in 80% of repetitions.

    Source: the sample size formula turned round (Cohen, Statistical Power Analysis, 1988), for a normal estimate.

    Args:
        number: an estimate and its interval of coverage `level`.
        level: nominal coverage.
        tests: how many tests the level that decides is corrected for (Bonferroni).
        power: share of repetitions.

    """
    from scipy import special  # not for everyone who needs `Interval`

    se = (number.high - number.low) / 2 / float(special.ndtri(0.5 + level / 2))
    return se * float(special.ndtri(1 - (1 - level) / (2 * tests)) + special.ndtri(power))


def percentiles(draws: FloatArray, *, level: float) -> tuple[float, float]:
    """Return the percentile interval of bootstrap draws; from -infinity where a replicate has no success at all.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.
    """
    tail = 50 * (1 - level)
    low, high = np.percentile(draws, [tail, 100 - tail], method="nearest")
    return float(low), float(high)


def simultaneous(value: FloatArray, draws: FloatArray, *, level: float) -> FloatArray:
    """Return half the widths of symmetric intervals that hold several numbers at once with probability `level`.

    Each is as many spreads of its draws (half the range of their middle 68 %) as the largest |draw - value| of all
    numbers reaches. A percentile interval of a skewed estimate lies on the wrong side, and of several is too narrow.

    Source: the largest studentized deviation of Romano and Wolf, Econometrica 73, 2005; symmetric as in Hall, The
    Bootstrap and Edgeworth Expansion, 1992, section 3.6.

    Args:
        value: the estimates, (numbers,).
        draws: bootstrap replicates, (replicates, numbers); a few may be -infinity: no success at all.
        level: nominal coverage of all.

    Returns:
        Half widths, (numbers,); infinite where more than a few replicates are.

    """
    low, high = np.quantile(draws, _MIDDLE, axis=0, method="nearest")
    is_finite = np.isfinite(draws).mean(axis=0) >= (1 + level) / 2
    spread = np.where(is_finite, (high - low) / 2, np.inf)
    distance = np.abs(np.where(is_finite, draws - value, 0.0))
    with np.errstate(divide="ignore"):
        largest = np.divide(distance, spread, out=np.zeros_like(distance), where=distance > 0).max(axis=1)
    reach = float(np.quantile(largest, level, method="nearest"))
    return np.asarray(np.where(spread > 0, max(reach, np.finfo(np.float64).tiny) * spread, 0.0))


def worth(weight: FloatArray) -> float:
    """Return how many equal documents unequal ones are worth: (sum w^2)^2 / sum w^4 of their influences on an estimate.

    Source: the effective number of Kish, Survey Sampling, 1965, of the squares whose mean is the variance.
    """
    squares = np.asarray(weight, dtype=np.float64) ** 2
    return float(squares.sum()) ** 2 / float((squares**2).sum()) if squares.any() else float(len(squares))


def widening(documents: float, level: float) -> float:
    """Return the factor by which an interval of few documents must be wider than their bootstrap makes it.

    t over normal quantile with `documents` - 1 degrees of freedom, and their variance's n/(n - 1).

    Source: Student, Biometrika 6, 1908; simulated in docs/validity.md.

    Args:
        documents: how many, or as how many they count (`worth`); below 2 they count as 2.
        level: nominal coverage of the interval.

    """
    from scipy import special  # not for everyone who needs `Interval`

    n = max(documents, 2.0)
    quantile = 0.5 + level / 2
    return float(special.stdtrit(n - 1, quantile) / special.ndtri(quantile) * np.sqrt(n / (n - 1)))


def studentized(
    value: float, se: float, draws: FloatArray, draw_se: FloatArray, *, documents: float = np.inf, level: float
) -> Interval:
    """Return the bootstrap-t interval, for skewed or heavy-tailed errors: value - q * se, q from t = (draw -
    value)/draw_se.

    On each side q is the larger of the equal-tailed quantile of t (Efron and Tibshirani 1993, section 12.5) and the
    quantile of |t| (the symmetric interval, Hall 1992, section 3.6). No bootstrap knows a tail from which nothing was
    drawn: where few documents decide, it is too narrow by up to half, and is widened for that (`widening`).

    Args:
        value: the estimate.
        se: its standard error.
        draws: the estimate in each bootstrap replicate, (replicates,).
        draw_se: its standard error in each, (replicates,).
        documents: as how many equal ones the documents count (`worth` of their influences).
        level: nominal coverage.

    """
    usable = draw_se > 0
    if not se > 0 or not usable.any():
        return Interval(value, value, value)
    t = (draws[usable] - value) / draw_se[usable]
    low, high = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
    both = np.quantile(np.abs(t), level)
    wide = se * (widening(documents, level) if np.isfinite(documents) else 1.0)
    return Interval(value, float(value - max(high, both) * wide), float(value + max(-low, both) * wide))


def fieller(a: float, b: float, a_se: float, b_se: float, *, quantile: float) -> tuple[float, float]:
    """Return Fieller's interval (1954) of a/b for independent, normal a and b of those errors; (-inf, inf) where b may
    be 0.

    With g = (quantile b_se / b)^2 < 1 it is [a/b +- quantile/|b| sqrt(a_se^2 (1 - g) + (a/b)^2 b_se^2)] / (1 - g).
    """
    g = (quantile * b_se / b) ** 2 if b else np.inf
    if g >= 1:
        return -np.inf, np.inf
    ratio = a / b
    half = quantile / abs(b) * np.sqrt(a_se**2 * (1 - g) + ratio**2 * b_se**2)
    return float((ratio - half) / (1 - g)), float((ratio + half) / (1 - g))


def share_interval(share: float, n: float, *, level: float) -> Interval:
    """Return Wilson's interval (1927) of a share of n independent trials, or of trials that count as n
    (`worth_of_share`).
    """
    from scipy import special

    z2 = float(special.ndtri(0.5 + level / 2)) ** 2
    centre = (2 * n * share + z2) / (2 * (n + z2))
    half = float(np.sqrt(z2 * (4 * n * share * (1 - share) + z2))) / (2 * (n + z2))
    return Interval(share, max(centre - half, 0.0) if share else 0.0, min(centre + half, 1.0) if share < 1 else 1.0)


def worth_of_share(successes: FloatArray, trials: FloatArray, *, level: float) -> float:
    """Return how many independent trials those of sources, (sources,), are worth: p (1 - p) / variance of their share
    p.

    Source: the effective sample size of Korn and Graubard, Survey Methodology 24, 1998; `widening` for few sources.
    """
    share = float(successes.sum() / trials.sum())
    every = float(trials.sum())
    variance = float((((successes - share * trials) / every) ** 2).sum()) * widening(len(trials), level) ** 2
    return min(every, share * (1 - share) / variance) if variance > 0 else float(len(trials))


def middle_spread(draws: FloatArray) -> FloatArray:
    """Return half the range of the middle 68% of draws, (numbers,); infinite where more than a few of them are.

    Source: the standard deviation of a normal distribution, by its quantiles, which few wild draws do not move.
    """
    low, high = np.quantile(draws, (0.16, 0.84), axis=0, method="nearest")
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isfinite(low) & np.isfinite(high), (high - low) / 2, np.inf))
