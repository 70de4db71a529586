"""Compare and pool exponents. An error that two laws have in common cancels in their difference.

- `difference_of_exponents` compares two families on one dataset. Both are measured on the same documents. It subtracts
  the influences of each document on both exponents before it squares them.
- `Law.over` compares two laws of one family on two datasets. Both are laws of the same models.
- `mean_over_datasets` and `mean_over_families` compute random-effects means of exponents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nan, sqrt

import numpy as np
import scipy

from rbptrack.ranks import FloatArray
from rbptrack.stats.documents import combined, from_influences
from rbptrack.stats.estimate import Estimate, sum_of_variances
from rbptrack.stats.laws import Law

MIN_POOLED = 3
"""The smallest number of exponents that a random-effects mean is computed from."""


def difference_of_exponents(one: Law, other: Law) -> Estimate:
    """Return alpha of one family minus alpha of another family that was measured on the same documents.

    If the numbers of documents differ, or single documents are unknown, the two laws count as independent.

    Args:
        one: the law of the first family.
        other: the law of the second family. It may have other sizes. Row i of its influences `u` must belong to the
            same document as row i of `one.u`.

    """
    independent = one.alpha - other.alpha
    if one.documents is None or other.documents is None or len(one.documents.u) != len(other.documents.u):
        return independent
    weights = np.concatenate([one.alpha_weights, -other.alpha_weights])
    u = combined(np.hstack([one.documents.u, other.documents.u]), weights)
    shares = (one.documents.shares + other.documents.shares) / 2  # tokenizers may differ
    paired = from_influences(np.array(independent.value), u, shares)
    return replace(independent, sampling=paired.sampling, sampling_df=paired.sampling_df, deciding=paired.deciding)


def pooled_scatter(laws: Sequence[Law]) -> tuple[float, float]:
    """Return the variance of ln y around the laws, pooled over several laws, and its degrees of freedom.

    The variance is NaN if no law has more than 2 sizes.
    """
    df = float(sum(law.sizes - 2 for law in laws))
    squares = sum(float(law.residuals @ law.residuals) for law in laws)
    return (squares / df if df > 0 else nan), df


@dataclass(frozen=True)
class Mean:
    """A random-effects mean of exponents.

    Attributes:
        mean: the mean with its error.
        tau: standard deviation of the true exponents, by Paule and Mandel's estimator.
        low: lower end of the 95% prediction interval for the true exponent of one more dataset or family.
        high: upper end of that prediction interval.
        homogeneity: p-value of Welch's test of the hypothesis that all true exponents are equal.
        number: the number of exponents.

    """

    mean: Estimate
    tau: float
    low: float
    high: float
    homogeneity: float
    number: int


def mean_over_datasets(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of one family over datasets.

    A model may lie above or below the law on all datasets alike. More datasets do not reduce this common scatter, and
    the mean's interval includes it. It is the scatter around the law of the geometric mean over the datasets. The
    remaining scatter is treated as independent between datasets.

    Returns None if an exponent has no error, or if there are fewer than `MIN_POOLED` laws.

    Args:
        laws: one law for each dataset, at least 2. All have the same sizes.

    """
    number = len(laws)
    residuals = np.array([law.residuals for law in laws])  # (laws, m)
    common = residuals.mean(axis=0)
    df = laws[0].sizes - 2
    weights = laws[0].alpha_weights
    own = []
    for law, residual in zip(laws, residuals, strict=True):
        squares = float(((residual - common) ** 2).sum()) * number / (number - 1)
        own.append(law.alpha_with_scatter(squares / df if df > 0 else nan, df))
    shared = Estimate(0.0, scatter=float(common @ common) / df * float(weights @ weights) if df > 0 else nan, df=df)
    return random_effects(own, shared)


def mean_over_families(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of families on one dataset.

    A document may influence all families alike. More families do not reduce this common error, and the mean's interval
    includes it. The remaining error is treated as independent between families. If the numbers of documents differ, or
    single documents are unknown, all errors are treated as independent.

    Returns None if an exponent has no error, or if there are fewer than `MIN_POOLED` laws.

    Args:
        laws: one law for each family. Row i of every law's influences `u` must belong to the same document.

    """
    documents = [law.documents for law in laws if law.documents is not None]
    if len(documents) < len(laws) or len({len(law_documents.u) for law_documents in documents}) > 1:
        return random_effects([law.alpha for law in laws], Estimate(0.0))
    u = np.array(
        [combined(law_documents.u, law.alpha_weights) for law, law_documents in zip(laws, documents, strict=True)]
    )
    shares = np.mean([law_documents.shares for law_documents in documents], axis=0)  # tokenizers may differ
    own = []
    for law, own_u in zip(laws, u - u.mean(axis=0), strict=True):
        part = from_influences(np.array(law.alpha.value), own_u, shares)
        own.append(replace(law.alpha, sampling=part.sampling, sampling_df=part.sampling_df))
    return random_effects(own, from_influences(np.array(0.0), u.mean(axis=0), shares))


def random_effects(own: Sequence[Estimate], shared: Estimate) -> Mean | None:
    """Return a random-effects mean with Hartung and Knapp's interval.

    Sources: Hartung and Knapp, Statistics in Medicine 20, 2001, for the variance of the mean, which is not allowed to
    be smaller than that of a fixed-effects mean; Paule and Mandel for tau; Welch, Biometrika 38, 1951, for the test of
    homogeneity.

    Returns None if there are fewer than `MIN_POOLED` estimates, if an error is unknown, or if a variance is 0.

    Args:
        own: the estimates. The error of each is the part that it does not have in common with the others.
        shared: an estimate. Its error is the part that all estimates have in common. Its value is not used.

    """
    number = len(own)
    if number < MIN_POOLED or not (shared.known and all(one.known for one in own)):
        return None
    values = np.array([one.value for one in own])
    parts = [sum_of_variances((one.sampling, one.sampling_df), (one.scatter, one.df)) for one in own]
    variances = np.array([variance for variance, _ in parts])
    if not (variances > 0).all():
        return None
    tau2 = _paule_mandel(values, variances)
    weights = 1 / (variances + tau2)
    mean = float(weights @ values / weights.sum())
    spread = float(weights @ (values - mean) ** 2) / (number - 1)
    variance = max(spread, 1.0) / float(weights.sum())
    common, common_df = sum_of_variances((shared.sampling, shared.sampling_df), (shared.scatter, shared.df))
    estimate = Estimate(mean, common, variance, number - 1, common_df)
    half = float(scipy.special.stdtrit(number - 2, 0.975)) * sqrt(tau2 + variance + common)
    return Mean(
        mean=estimate,
        tau=sqrt(tau2),
        low=mean - half,
        high=mean + half,
        homogeneity=_welch(values, variances, np.array([df for _, df in parts])),
        number=number,
    )


def _paule_mandel(values: FloatArray, variances: FloatArray) -> float:
    """Return Paule and Mandel's variance of the true values.

    It is the variance at which the weighted sum of squares around the weighted mean equals its expectation, n - 1. If
    the sum is smaller than that already at variance 0, the result is 0.
    """

    def excess(tau2: float) -> float:
        weights = 1 / (variances + tau2)
        mean = weights @ values / weights.sum()
        return float(weights @ (values - mean) ** 2) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    most = float(((values - values.mean()) ** 2).sum()) + float(variances.max())
    return float(scipy.optimize.brentq(excess, 0.0, most, rtol=1e-10))


def _welch(values: FloatArray, variances: FloatArray, df: FloatArray) -> float:
    """Return the p-value of Welch's test that all true values are equal.

    Args:
        values: the estimates, (n,).
        variances: the variances of the estimates, (n,).
        df: the degrees of freedom of the variances, (n,).

    """
    number = len(values)
    weights = 1 / variances
    total = weights.sum()
    mean = weights @ values / total
    between = float(weights @ (values - mean) ** 2) / (number - 1)
    unknown = float(((1 - weights / total) ** 2 / df).sum())
    statistic = between / (1 + 2 * (number - 2) / (number**2 - 1) * unknown)
    denominator_df = (number**2 - 1) / (3 * unknown) if unknown > 0 else inf
    if denominator_df == inf:
        return float(scipy.special.chdtrc(number - 1, statistic * (number - 1)))
    return float(scipy.special.fdtrc(number - 1, denominator_df, statistic))
