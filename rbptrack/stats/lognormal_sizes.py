"""How the lognormal of ranks changes with model size, from (beta, gamma) of every size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats.intervals import Interval
from rbptrack.stats.linear import centred, inverse, line_error
from rbptrack.stats.spread import Spread


@dataclass(frozen=True)
class LognormalTrend:
    """Lines of beta and gamma in ln S, and what they say of mu/sigma = (1 - beta)/sqrt(2 gamma).

    Attributes:
        beta: change of beta per unit of ln S.
        gamma: likewise.
        mu_over_sigma: change of mu/sigma at the geometric mean of the sizes; None where gamma may be near 0 there (its
            interval reaches below half of it): Zipf's law has no mu and sigma.
        r2: of both lines, (2,).

    """

    beta: Interval
    gamma: Interval
    mu_over_sigma: Interval | None
    r2: FloatArray


def mu_over_sigma(theta: FloatArray) -> FloatArray:
    """mu/sigma = (1 - beta)/sqrt(2 gamma) of (beta, gamma), gamma > 0, (..., 2) to (...) (arXiv 2510.20387, eq. 9)."""
    return np.asarray((1 - theta[..., 0]) / np.sqrt(2 * theta[..., 1]))


def lognormal_trend(s: FloatArray, theta: FloatArray, draws: FloatArray, *, level: float) -> LognormalTrend:
    """Fit beta and gamma as lines in ln S to every size, identified or not.

    To leave some out would select by the answer. Least squares; what the sampling covariance of all sizes (paired by
    document) says of a slope is known, scatter between models is estimated from m - 2 residuals (`Spread`). mu/sigma's
    change, -beta'/sqrt(2 gamma) - (1 - beta) gamma'/(2 gamma)^(3/2), is linearised at the middle of the lines: it is
    the slope of one combination of (beta, gamma), moved by the error of another there.
    Source: the lognormal of arXiv 2510.20387, eq. 9, in natural parameters.

    Args:
        s: sizes S, (m,), m >= 3.
        theta: (beta, gamma) of each, gamma free to be negative, (m, 2).
        draws: the same in bootstrap replicates, (m, replicates, 2).
        level: nominal coverage of the intervals.

    """
    m = len(s)
    x = np.log(s)
    design = centred(x)
    middle, slope = inverse(design) @ theta  # beta and gamma each
    sampling = np.cov(np.moveaxis(draws, 1, 0).reshape(draws.shape[1], -1).T).reshape(m, 2, m, 2)

    def error(at: FloatArray, of: FloatArray) -> Spread:
        """Of at @ (intercept, slope) of the line through the combination theta @ of."""
        return line_error(at, x, theta @ of, np.einsum("iajb,a,b->ij", sampling, of, of))

    level_at, slope_at = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    halves = [error(slope_at, of).half(level) for of in np.eye(2)]
    slopes = [Interval(float(b), float(b - h), float(b + h)) for b, h in zip(slope, halves, strict=True)]
    ratio = None
    if middle[1] > 2 * error(level_at, np.eye(2)[1]).half(level):  # else it is too crooked for a straight line
        value, by_slope, by_middle = _change(middle, slope)
        solved = inverse(design)
        shared = np.einsum("i,iajb,j,a,b->", solved[0], sampling, solved[1], by_middle, by_slope)
        whole = (error(slope_at, by_slope) + error(level_at, by_middle)).minus_shared(-float(shared))
        ratio = Interval(value, value - whole.half(level), value + whole.half(level))
    residual = theta - design @ np.stack([middle, slope])
    total = ((theta - theta.mean(axis=0)) ** 2).sum(axis=0)
    return LognormalTrend(slopes[0], slopes[1], ratio, 1 - (residual**2).sum(axis=0) / total)


def _change(middle: FloatArray, slope: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """d(mu/sigma)/d ln S at the middle of lines, and its derivatives by the lines' slopes and by their middles.

    Args:
        middle: (beta, gamma), (2,).
        slope: of each in ln S, (2,).

    """
    (beta, gamma), (beta_slope, gamma_slope) = middle, slope
    root = np.sqrt(2 * gamma)
    by_slope = np.array([-1 / root, -(1 - beta) / root**3])
    by_middle = np.array([gamma_slope / root**3, beta_slope / root**3 + 3 * (1 - beta) * gamma_slope / root**5])
    return float(by_slope @ slope), by_slope, by_middle
