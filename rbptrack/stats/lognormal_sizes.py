"""How the lognormal of ranks changes with model size, from (beta, gamma) of every size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rbptrack.ranks import FloatArray
from rbptrack.stats.intervals import Interval

_DRAWS = 4000


@dataclass(frozen=True)
class LognormalTrend:
    """Lines of beta and gamma in ln S, and what they say of mu/sigma = (1 - beta)/sqrt(2 gamma).

    Attributes:
        beta: change of beta per unit of ln S.
        gamma: likewise.
        mu_over_sigma: change of mu/sigma at the geometric mean of the sizes; None where gamma may be 0 there, Zipf's
            law, which has no mu and sigma.
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

    To leave some out would select by the answer. Least squares; the coefficients' covariance holds the sampling
    covariance of all sizes (paired by document) and the scatter between models, a 2 x 2 matrix by the method of
    moments; t with m - 2 degrees of freedom. mu/sigma's change, -beta'/sqrt(2 gamma) - (1 - beta) gamma'/(2
    gamma)^(3/2), is taken over draws of the coefficients.
    Source: the lognormal of arXiv 2510.20387, eq. 9, in natural parameters.

    Args:
        s: sizes S, (m,), m >= 3.
        theta: (beta, gamma) of each, gamma free to be negative, (m, 2).
        draws: the same in bootstrap replicates, (m, replicates, 2).
        level: nominal coverage of the intervals.

    """
    m = len(s)
    x = np.log(s) - np.log(s).mean()
    design = np.column_stack([np.ones(m), x])
    inverse = np.linalg.pinv(design)  # (2, m)
    coefficients = inverse @ theta  # (intercept and slope, beta and gamma)
    residual = theta - design @ coefficients
    sampling = np.cov(np.moveaxis(draws, 1, 0).reshape(draws.shape[1], -1).T).reshape(m, 2, m, 2)
    free = np.eye(m) - design @ inverse
    between = (residual.T @ residual - np.einsum("ij,jaib->ab", free, sampling)) / (m - 2)
    values, vectors = np.linalg.eigh((between + between.T) / 2)
    between = (vectors * np.clip(values, 0, None)) @ vectors.T
    covariance = np.einsum("ci,iajb,dj->cadb", inverse, sampling, inverse)
    covariance = (covariance + np.einsum("cd,ab->cadb", inverse @ inverse.T, between)).reshape(4, 4)
    quantile = float(stats.t.ppf(0.5 + level / 2, m - 2))
    half = (quantile * np.sqrt(np.diag(covariance))).reshape(2, 2)
    slopes = [Interval(float(b), float(b - h), float(b + h)) for b, h in zip(coefficients[1], half[1], strict=True)]
    ratio = None
    if coefficients[0, 1] - half[0, 1] > 0:
        found = stats.multivariate_t(coefficients.ravel(), covariance, df=m - 2, allow_singular=True, seed=0)
        several = found.rvs(_DRAWS).reshape(-1, 2, 2)
        low, high = np.quantile(_change(several[several[:, 0, 1] > 0]), [(1 - level) / 2, (1 + level) / 2])
        ratio = Interval(float(_change(coefficients[None])[0]), float(low), float(high))
    total = ((theta - theta.mean(axis=0)) ** 2).sum(axis=0)
    return LognormalTrend(slopes[0], slopes[1], ratio, 1 - (residual**2).sum(axis=0) / total)


def _change(coefficients: FloatArray) -> FloatArray:
    """d(mu/sigma)/d ln S at the middle of lines, (n, intercept and slope, beta and gamma) to (n,)."""
    (beta, gamma), (beta_slope, gamma_slope) = coefficients[:, 0].T, coefficients[:, 1].T
    return np.asarray(-beta_slope / np.sqrt(2 * gamma) - (1 - beta) * gamma_slope / (2 * gamma) ** 1.5)
