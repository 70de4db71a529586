"""Compare and pool exponents. What two laws share does not count as an error of their difference.

Two families on one dataset share its documents: the influences of a document on both exponents are subtracted before
they are squared. One family on two datasets shares its models: `Law.over` compares two such laws. The mean exponent
over several datasets, or over several families, is a random-effects mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nan, sqrt

import numpy as np
import scipy

from rbptrack.ranks import FloatArray
from rbptrack.stats.documents import combined, from_influences
from rbptrack.stats.estimate import Estimate, added
from rbptrack.stats.laws import Law

MIN_POOLED = 3
"""The smallest number of exponents that a random-effects mean is computed from."""


def difference_of_exponents(one: Law, other: Law) -> Estimate:
    """Return alpha of one family minus alpha of another family, measured on the same documents.

    Args:
        one: the law of the first family. Row i of its influences must be the same document as row i of the other law's.
            If the numbers of documents differ, or single documents are unknown, the laws count as independent.
        other: the law of the second family. It may have other sizes.

    """
    apart = one.alpha - other.alpha
    if one.u is None or other.u is None or len(one.u) != len(other.u):
        return apart
    weights = np.concatenate([one.alpha_weights, -other.alpha_weights])
    paired = from_influences(np.array(apart.value), combined(np.hstack([one.u, other.u]), weights))
    return replace(apart, sampling=paired.sampling, sampling_df=paired.sampling_df, deciding=paired.deciding)


def pooled_scatter(laws: Sequence[Law]) -> tuple[float, float]:
    """Return the variance of models around their laws, pooled over several laws, and its degrees of freedom."""
    df = float(sum(law.sizes - 2 for law in laws))
    squares = sum(float(law.residuals @ law.residuals) for law in laws)
    return (squares / df if df > 0 else nan), df


@dataclass(frozen=True)
class Mean:
    """A random-effects mean of exponents.

    Attributes:
        mean: the mean and its interval.
        tau: standard deviation of the true exponents (Paule and Mandel).
        low: lower end of the 95% prediction interval of one more exponent.
        high: upper end of that prediction interval.
        homogeneity: p-value of Welch's test that all true exponents are equal.
        number: number of exponents.

    """

    mean: Estimate
    tau: float
    low: float
    high: float
    homogeneity: float
    number: int


def mean_over_datasets(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of one family over datasets.

    Return None if an exponent has no error, or fewer than 3 exponents are given.

    All datasets share some scatter of the models: the scatter of the law of the geometric mean over the datasets. More
    datasets do not reduce it, so the mean's interval includes it. Only the remaining scatter differs between datasets.

    Args:
        laws: one law for each dataset, all through the same sizes.

    """
    number = len(laws)
    residuals = np.array([law.residuals for law in laws])  # (laws, m)
    common = residuals.mean(axis=0)
    df = laws[0].sizes - 2
    weights = laws[0].alpha_weights
    own = []
    for law, residual in zip(laws, residuals, strict=True):
        squares = float(((residual - common) ** 2).sum()) * number / (number - 1)
        own.append(law.alpha_given(squares / df if df > 0 else nan, df))
    shared = Estimate(0.0, scatter=float(common @ common) / df * float(weights @ weights) if df > 0 else nan, df=df)
    return random_effects(own, shared)


def mean_over_families(laws: Sequence[Law]) -> Mean | None:
    """Return the mean exponent of families on one dataset.

    Return None if an exponent has no error, or fewer than 3 exponents are given.

    A document may influence all families alike. More families do not reduce this error, so the mean's interval includes
    it. Only the remaining error differs between families.

    Args:
        laws: one law for each family. Row i of all influences must be the same document; if the numbers of documents
            differ, the laws count as independent.

    """
    rows = {0 if law.u is None else len(law.u) for law in laws}
    if rows == {0} or len(rows) > 1:
        return random_effects([law.alpha for law in laws], Estimate(0.0))
    u = np.array([combined(law.u, law.alpha_weights) for law in laws if law.u is not None])  # (laws, documents)
    own = []
    for law, of_law in zip(laws, u - u.mean(axis=0), strict=True):
        alone = from_influences(np.array(law.alpha.value), of_law)
        own.append(replace(law.alpha, sampling=alone.sampling, sampling_df=alone.sampling_df))
    return random_effects(own, from_influences(np.array(0.0), u.mean(axis=0)))


def random_effects(own: Sequence[Estimate], shared: Estimate) -> Mean | None:
    """Return a random-effects mean with Hartung and Knapp's interval.

    Sources: Hartung and Knapp, Statistics in Medicine 20, 2001 (never narrower than the fixed-effects interval);
    Paule and Mandel for tau; Welch, Biometrika 38, 1951, for the test of homogeneity.

    Args:
        own: the estimates, each with the part of its error that it does not share with the others.
        shared: an estimate with the part of the error that all of them share.

    """
    number = len(own)
    if number < MIN_POOLED or not (shared.known and all(one.known for one in own)):
        return None
    values = np.array([one.value for one in own])
    parts = [added((one.sampling, one.sampling_df), (one.scatter, one.df)) for one in own]
    variances = np.array([variance for variance, _ in parts])
    if not (variances > 0).all():
        return None
    tau2 = _paule_mandel(values, variances)
    weights = 1 / (variances + tau2)
    mean = float(weights @ values / weights.sum())
    spread = float(weights @ (values - mean) ** 2) / (number - 1)
    variance = max(spread, 1.0) / float(weights.sum())
    common, common_df = added((shared.sampling, shared.sampling_df), (shared.scatter, shared.df))
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
    """Return the variance of true values at which the weighted sum of squares has its expected value."""

    def excess(tau2: float) -> float:
        weights = 1 / (variances + tau2)
        mean = weights @ values / weights.sum()
        return float(weights @ (values - mean) ** 2) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    most = float(((values - values.mean()) ** 2).sum()) + float(variances.max())
    return float(scipy.optimize.brentq(excess, 0.0, most, rtol=1e-10))


def _welch(values: FloatArray, variances: FloatArray, df: FloatArray) -> float:
    """Return the p-value of equal true values, given the variances of the values and their degrees of freedom."""
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
