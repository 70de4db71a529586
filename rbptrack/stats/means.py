"""Random-effects means of exponents over datasets and over families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import scipy

from rbptrack.ranks import FloatArray
from rbptrack.stats.documents import combined_influences, estimate_from_influences
from rbptrack.stats.estimate import LEVEL, Estimate, sum_of_variances
from rbptrack.stats.laws import Law, Scatter
from rbptrack.stats.lines import variance_of_models

MIN_POOLED = 3
"""The smallest number of exponents that a random-effects mean is computed from."""


@dataclass(frozen=True)
class Mean:
    """A random-effects mean of exponents.

    Attributes:
        mean: the mean with its error.
        tau: standard deviation of the true exponents, by Paule and Mandel's estimator.
        low: lower end of the 95% prediction interval of the true exponent of one more dataset or family.
        high: upper end of the prediction interval.
        number: the number of exponents.

    """

    mean: Estimate
    tau: float
    low: float
    high: float
    number: int


def mean_over_datasets(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of one family over datasets.

    A model may lie above its law on every dataset, or below its law on every dataset. More datasets do not reduce this
    common scatter, so the interval of the mean includes it. It is estimated from the residuals of each model, averaged
    over the datasets. The remaining scatter is treated as independent between datasets. The noise of documents is
    subtracted from both, as in `Law.scatter`.

    Returns None if an exponent has no interval, or if there are fewer than `MIN_POOLED` laws.

    Args:
        laws: one law for each dataset, at least 2. All have the same sizes.

    """
    number = len(laws)
    residuals = np.array([law.residuals for law in laws])  # (laws, m)
    common_residuals = residuals.mean(axis=0)
    df = laws[0].sizes - 2
    weights = laws[0].alpha_weights
    noise = np.array([law.noise for law in laws])
    # The noise of a law's residuals minus the mean residuals, and that of the mean residuals.
    remaining_noise = noise * (1 - 2 / number) + noise.mean() / number
    squares = ((residuals - common_residuals) ** 2).sum(axis=1)  # (laws,)
    scatters = variance_of_models(squares, remaining_noise, df) * number / (number - 1)
    exponents = [
        replace(law, shared=Scatter(scatter, df)).alpha for law, scatter in zip(laws, scatters.tolist(), strict=True)
    ]
    # The mean residuals also have a share of the remaining scatter, which `random_effects` counts.
    of_means = float(variance_of_models((common_residuals**2).sum(), noise.mean() / number, df))
    common_scatter = max(of_means - float(scatters.mean()) / number, 0.0) * float(weights @ weights)
    return random_effects(exponents, Estimate(0.0, scatter=common_scatter, df=df))


def mean_over_families(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of families on one dataset.

    A document may influence all families alike. More families do not reduce this common error, so the interval of the
    mean includes it. The remaining error is treated as independent between families. If the numbers of documents
    differ, or single documents are unknown, all errors are treated as independent.

    Returns None if an exponent has no interval, or if there are fewer than `MIN_POOLED` laws.

    Args:
        laws: one law for each family. Row i of the influences (`documents.u`) must belong to the same document in all
            laws.

    """
    documents = [law.documents for law in laws if law.documents is not None]
    if len(documents) < len(laws) or len({len(law_documents.u) for law_documents in documents}) > 1:
        return random_effects([law.alpha for law in laws], Estimate(0.0))
    u = np.array(
        [
            combined_influences(law_documents.u, law.alpha_weights)
            for law, law_documents in zip(laws, documents, strict=True)
        ]
    )  # (families, documents)
    shares = np.mean([law_documents.shares for law_documents in documents], axis=0)  # tokenizers may differ
    common_u = u.mean(axis=0)
    exponents = []
    for law, remaining_u in zip(laws, u - common_u, strict=True):
        remaining = estimate_from_influences(np.array(law.alpha.value), remaining_u, shares)
        exponents.append(replace(law.alpha, sampling=remaining.sampling, sampling_df=remaining.sampling_df))
    return random_effects(exponents, estimate_from_influences(np.array(0.0), common_u, shares))


def random_effects(estimates: Sequence[Estimate], common: Estimate) -> Mean | None:
    """Return a random-effects mean with Hartung and Knapp's interval.

    The variance of the mean is not allowed to be smaller than that of a fixed-effects mean. Sources: Hartung and Knapp,
    Statistics in Medicine 20, 2001, for this variance; Paule and Mandel for tau.

    Returns None if there are fewer than `MIN_POOLED` estimates, if one of them has no interval, or if a variance is 0.

    Args:
        estimates: the values, each with the part of its error that it does not have in common with the others.
        common: an estimate whose error is the part that all estimates have in common. Its value is not used.

    """
    number = len(estimates)
    if number < MIN_POOLED or not (common.has_interval and all(estimate.has_interval for estimate in estimates)):
        return None
    values = np.array([estimate.value for estimate in estimates])
    variances = np.array([estimate.sampling + estimate.scatter for estimate in estimates])
    if not (variances > 0).all():
        return None
    tau2 = _paule_mandel(values, variances)
    weights = 1 / (variances + tau2)
    mean = float(weights @ values / weights.sum())
    spread = float(weights @ (values - mean) ** 2) / (number - 1)
    variance = max(spread, 1.0) / float(weights.sum())
    common_variance, common_df = sum_of_variances((common.sampling, common.sampling_df), (common.scatter, common.df))
    t = float(scipy.special.stdtrit(number - 2, (1 + LEVEL) / 2))
    prediction_half_width = t * sqrt(tau2 + variance + common_variance)
    return Mean(
        mean=Estimate(mean, common_variance, variance, number - 1, common_df),
        tau=sqrt(tau2),
        low=mean - prediction_half_width,
        high=mean + prediction_half_width,
        number=number,
    )


def _paule_mandel(values: FloatArray, variances: FloatArray) -> float:
    """Return Paule and Mandel's estimate of the variance tau^2 of the true values.

    At this variance, the weighted sum of squares around the weighted mean equals its expectation, n - 1. If the sum is
    at most n - 1 at a variance of 0, the estimate is 0.
    """

    def excess(tau2: float) -> float:
        weights = 1 / (variances + tau2)
        mean = weights @ values / weights.sum()
        return float(weights @ (values - mean) ** 2) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    upper = float(((values - values.mean()) ** 2).sum()) + float(variances.max())
    return float(scipy.optimize.brentq(excess, 0.0, upper, rtol=1e-10))
