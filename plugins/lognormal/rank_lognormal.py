"""The lognormal of ranks in its natural parameters, ln P(k) = const - beta ln k - gamma ln^2 k on {1..V}.

beta = 1 - mu/sigma^2 and gamma = 1/(2 sigma^2) (arXiv 2510.20387, eq. 9). Gamma may come out negative, which
normalises on {1..V} but is no lognormal; gamma = 0 is Zipf's law, where mu and sigma are not defined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray

from .rank_distributions import Support


def log_sums(data: FloatArray, support: Support) -> FloatArray:
    """Return tokens, and their sums of ln k and ln^2 k: all that (beta, gamma) depend on, (..., 3).

    From weights of the support's points, (..., points).

    Source: the sufficient statistics of arXiv 2510.20387, eq. 9, in natural parameters.
    """
    return np.asarray(data @ np.column_stack([np.ones(len(support.log)), support.log, support.log**2]))


def fit_lognormal(sums: FloatArray, support: Support, *, start: FloatArray | None = None) -> FloatArray:
    """Return (beta, gamma) of maximum likelihood, (..., 2), gamma free to be negative, of `log_sums`, (..., 3).

    Source: the likelihood of arXiv 2510.20387, eq. 9, in natural parameters.
    """
    return maximum_likelihood(log_features(support), -sums[..., 1:] / sums[..., :1], support.weight, start=start)


def information_covariance(theta: FloatArray, support: Support, *, tokens: float) -> FloatArray:
    """Return covariance of (beta, gamma) if `tokens` tokens were independent: from the Fisher information, (2, 2).

    Source: the inverse Fisher information of arXiv 2510.20387, eq. 9, in natural parameters. Their correlation is near
    -1, so that an interval of mu/sigma needs all of it.
    """
    *_, covariance = _moments(log_features(support), theta[None], support.weight)
    return np.asarray(np.linalg.inv(covariance[0]) / tokens)


def _moments(features: FloatArray, theta: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return ln Z, mean and covariance of the features under exp(theta @ features): (B,), (B, p), (B, p, p)."""
    log_psi = theta @ features  # (B, points)
    top = log_psi.max(axis=1, keepdims=True)
    psi = np.exp(log_psi - top) * weight
    z = psi.sum(axis=1, keepdims=True)
    p = psi / z
    mean = p @ features.T
    count = len(features)
    products = (features[:, None] * features[None]).reshape(count * count, -1)
    second = (p @ products.T).reshape(-1, count, count)
    return (top + np.log(z))[:, 0], mean, second - mean[:, :, None] * mean[:, None, :]


def log_features(support: Support) -> FloatArray:
    """Return the factors of beta and gamma in ln P(k): -ln k and -ln^2 k at the support's points, (2, points)."""
    return np.stack([-support.log, -(support.log**2)])


def maximum_likelihood(
    features: FloatArray, mean_features: FloatArray, weight: FloatArray, *, start: FloatArray | None = None
) -> FloatArray:
    """Return maximum likelihood of exp(theta @ features)/Z, a concave problem, for many samples at once: (..., p).

    Args:
        features: (p, points).
        mean_features: their means over each sample's tokens, (..., p).
        weight: of the points.
        start: where to begin, (p,).

    """
    target = np.atleast_2d(mean_features)  # (B, p)
    first = np.eye(len(features))[0] if start is None else start  # Zipf's law with beta = 1
    theta = np.tile(first, (len(target), 1)).astype(np.float64)
    log_z, mean, covariance = _moments(features, theta, weight)
    value = (theta * target).sum(axis=1) - log_z
    for _ in range(60):
        step = np.linalg.solve(covariance, (target - mean)[:, :, None])[:, :, 0]
        scale = np.ones((len(target), 1))
        for _ in range(40):
            trial = theta + scale * step
            log_z, mean, covariance = _moments(features, trial, weight)
            trial_value = (trial * target).sum(axis=1) - log_z
            worse = trial_value < value - 1e-13 * (1 + np.abs(value))
            if not worse.any():
                break
            scale[worse] /= 2
        theta = trial
        value = trial_value
        if np.abs(scale * step).max() < 1e-10:
            break
    return np.asarray(theta if mean_features.ndim > 1 else theta[0])


@dataclass(frozen=True)
class IntegralApproximation:
    """What a lognormal implies by the integral over [1, inf) instead of the sum: for comparison with exact sums only.

    Attributes:
        neg_log_p1: -ln[phi(m) / (sigma Phi(m))], m = mu/sigma; below 0 (p_1 > 1) where the integral fails.
        neg_log_p1_corrected: the same with the Euler-Maclaurin terms at 1 that the integral drops, ln[sigma Phi(m)/
            phi(m) + 1/2 + beta/12].
        entropy: of ranks, nats.

    """

    neg_log_p1: float
    neg_log_p1_corrected: float
    entropy: float


def integral_approximation(mu: float, sigma: float) -> IntegralApproximation:
    """Return the approximations of arXiv 2510.20387's appendix (P = Phi(mu/sigma) for the normaliser)."""
    m = mu / sigma
    log_ratio = special.log_ndtr(m) + m**2 / 2 + np.log(2 * np.pi) / 2  # ln [Phi(m) / phi(m)]
    hazard = np.exp(-log_ratio)
    beta = 1 - mu / sigma**2
    mean_log = mu + sigma * hazard
    entropy = special.log_ndtr(m) + np.log(sigma * np.sqrt(2 * np.pi)) + mean_log + (1 - m * hazard) / 2
    return IntegralApproximation(
        neg_log_p1=float(np.log(sigma) + log_ratio),
        neg_log_p1_corrected=float(np.log(sigma * np.exp(log_ratio) + 0.5 + beta / 12)),
        entropy=float(entropy),
    )
