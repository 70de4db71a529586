"""Tests, bands and averages of several estimates that share documents or models.

Two estimates are correlated if they were computed from the same documents or from the same models. For example, the
exponents of RBP_1 and RBP_10 of one family on one dataset share both. The covariance of two estimates comes from the
influences of their common documents and from the residuals of their common models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan, sqrt

import numpy as np
import scipy

from rbptrack.ranks import FloatArray
from rbptrack.stats.documents import combined_influences, deciding_documents, degrees_of_freedom
from rbptrack.stats.estimate import LEVEL, DocumentInfluences, Estimate, sum_of_variances
from rbptrack.stats.rounding import ROUNDING

_DRAWS = 20_000
_FEWEST_DRAWS = 10  # with fewer draws above a threshold, Bonferroni's bound is used
_LARGEST_BLOCK = 500  # rows whose maximum is simulated together


@dataclass(frozen=True)
class Row:
    """An estimate, and the names of what it was computed from.

    Attributes:
        estimate: the estimate.
        documents: the name of its documents, such as the dataset. Two rows with the same name and the same number of
            documents share them: element i of their influences belongs to the same document.
        models: the name of its models, such as the family. Two rows with the same name and the same number of models
            share them.

    """

    estimate: Estimate
    documents: str
    models: str


def covariances(rows: Sequence[Row]) -> FloatArray:
    """Return the covariance matrix of estimates, (rows, rows). It is 0 for rows that are not known to share anything.

    The residuals of few models span few dimensions, so the correlation between them is too strong. Off the diagonal,
    the covariance of the scatter is therefore multiplied by 1 - 1 / df. Without this, at least one of several true null
    hypotheses is rejected in 11% of simulations with 4 models, at a level of 5%.
    """
    matrix = np.zeros((len(rows), len(rows)))
    for members in _by_length(rows, "documents").values():
        scaled = np.array([_scaled_influences(rows[i].estimate) for i in members])
        matrix[np.ix_(members, members)] += scaled @ scaled.T
    for members in _by_length(rows, "models").values():
        scaled = np.array([_scaled(rows[i].estimate.residuals, rows[i].estimate.scatter) for i in members])
        # Residuals span at most `df` of their law's dimensions. The variance may come from other laws, too.
        df = min(min(rows[i].estimate.df, scaled.shape[1] - 2) for i in members)
        matrix[np.ix_(members, members)] += scaled @ scaled.T * (1 - 1 / df)
    np.fill_diagonal(matrix, [row.estimate.sampling + row.estimate.scatter for row in rows])
    return matrix


def correlations(rows: Sequence[Row]) -> FloatArray:
    """Return the correlation matrix of estimates, (rows, rows). It is 0 for rows not known to share anything."""
    return _correlations(covariances(rows))


def _correlations(matrix: FloatArray) -> FloatArray:
    """Convert a covariance matrix to a correlation matrix. A row without variance is not correlated with others."""
    sd = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    inverse = np.divide(1.0, sd, out=np.zeros_like(sd), where=sd > 0)
    correlation = np.asarray(matrix * np.outer(inverse, inverse))
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _by_length(rows: Sequence[Row], part: str) -> dict[tuple[str, int], list[int]]:
    """Return the rows that share documents (or models), by the name and the number of documents (or models).

    Rows without influences of documents (or residuals of models), or without variance of this part, are left out.
    """
    members: dict[tuple[str, int], list[int]] = {}
    for i, row in enumerate(rows):
        estimate = row.estimate
        if not estimate.has_interval:
            continue
        if part == "documents" and estimate.documents is not None and estimate.sampling > 0:
            members.setdefault((row.documents, len(estimate.documents.u)), []).append(i)
        if part == "models" and estimate.residuals is not None and estimate.scatter > 0:
            members.setdefault((row.models, len(estimate.residuals)), []).append(i)
    return members


def _scaled(vector: FloatArray | None, variance: float) -> FloatArray:
    """Scale influences or residuals so that their sum of squares is a variance. Unknown ones are an empty array."""
    if vector is None:
        return np.zeros(0)
    length = float(np.linalg.norm(vector))
    return (vector / length if length > 0 else vector) * sqrt(variance)


def _scaled_influences(estimate: Estimate) -> FloatArray:
    return _scaled(None if estimate.documents is None else estimate.documents.u, estimate.sampling)


def adjust(p: FloatArray, correlation: FloatArray) -> FloatArray:
    """Adjust the p of correlated tests by the distribution of their maximum, step-down. Returns (rows,).

    If all null hypotheses of some rows are true, the probability that one of these rows has an adjusted p below 5% is
    at most 5%. Each p is transformed to a normal score, so rows may have different degrees of freedom. The maximum of
    scores is simulated with a fixed seed. Rows that are connected by correlations form a block. Between blocks,
    Bonferroni's bound is used. Without any correlation, the result is Holm's. It is never above Holm's. Sources:
    Hothorn, Bretz and Westfall, Biometrical Journal 50, 2008; Westfall and Young, Resampling-based multiple testing,
    1993; Holm, Scandinavian Journal of Statistics 6, 1979.

    Args:
        p: two-sided p-values, (rows,).
        correlation: the correlation matrix, (rows, rows). 0 stands for an unknown correlation.

    """
    order = np.argsort(p, kind="stable")
    ascending = np.asarray(p, dtype=np.float64)[order]
    scores = -scipy.special.ndtri(ascending / 2)
    exceeded = np.zeros(len(p))  # the probability that a row that remains at this step has a larger score
    for block in _blocks(correlation[np.ix_(order, order)]):
        steps = np.arange(block[-1] + 1)
        first = np.searchsorted(block, steps)  # the first row of the block that remains at each step
        bound = (len(block) - first) * ascending[steps]
        if len(block) > 1:
            maxima = _maxima(correlation[np.ix_(order[block], order[block])])
            for step in steps.tolist():
                count = int((maxima[:, first[step]] >= scores[step]).sum())
                if count >= _FEWEST_DRAWS:
                    simulated = max(count / len(maxima), ascending[step])
                    bound[step] = min(bound[step], simulated)
        exceeded[steps] += bound
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(exceeded), 1.0)
    return adjusted


def _blocks(correlation: FloatArray) -> list[FloatArray]:
    """Return the rows of each block, ascending. Correlations connect the rows of a block."""
    _, labels = scipy.sparse.csgraph.connected_components(correlation != 0, directed=False)
    blocks = []
    for label in range(labels.max(initial=-1) + 1):
        members = np.flatnonzero(labels == label)
        blocks += np.array_split(members, -(-len(members) // _LARGEST_BLOCK))
    return blocks


def _maxima(correlation: FloatArray) -> FloatArray:
    """Draw the largest absolute score of the rows from i on, for each i, (draws, rows)."""
    # The Cholesky factor is the same on every processor up to rounding. Eigenvectors are not.
    root = np.linalg.cholesky(correlation + 1e-9 * np.eye(len(correlation)))
    scores = np.abs(np.random.default_rng(0).standard_normal((_DRAWS, len(root))) @ root.T)
    return np.asarray(np.maximum.accumulate(scores[:, ::-1], axis=1)[:, ::-1])


def simultaneous_level(rows: Sequence[Row]) -> float:
    """Return the level of single intervals at which all rows together contain their true values at 95%."""
    if not rows:
        return LEVEL
    blocks = _blocks(correlations(rows))
    level_of_block = 1 - (1 - LEVEL) / len(blocks)
    widest = level_of_block
    for block in blocks:
        if len(block) > 1:
            maxima = _maxima(correlations([rows[i] for i in block]))[:, 0]
            widest = max(widest, 1 - 2 * float(scipy.special.ndtr(-np.quantile(maxima, level_of_block))))
    return widest


def combination(rows: Sequence[Row], weights: Sequence[float] | FloatArray) -> Estimate:
    """Return a weighted sum of estimates, with its error. The sum of two estimates with weights 1 and -1 is a contrast.

    Influences of common documents and residuals of common models are added before they are squared. If two rows name
    the same documents (or models), but their numbers differ or the influences are unknown, their standard errors are
    added, which is an upper bound. Errors of rows that name other documents (or models) are independent. The influences
    and residuals of the sum are those of all names, one after the other; unknown if those of a row are unknown.

    Args:
        rows: the rows.
        weights: the weight of each row, (rows,).

    """
    weights = np.asarray(weights, dtype=np.float64)
    terms = [float(weight) * row.estimate.value for weight, row in zip(weights, rows, strict=True)]
    value = float(sum(terms))
    if abs(value) <= ROUNDING * sum(map(abs, terms)):
        value = 0.0
    if not all(row.estimate.has_interval for row in rows):
        return Estimate(value, df=nan)
    sampling, sampling_df, deciding = 0.0, inf, inf
    documents = _parts_by_name(rows, weights, "documents")
    for part in documents:
        _, deciding = sum_of_variances((sampling, deciding), (part.variance, part.deciding))
        sampling, sampling_df = sum_of_variances((sampling, sampling_df), (part.variance, part.df))
    scatter, df = 0.0, inf
    models = _parts_by_name(rows, weights, "models")
    for part in models:
        scatter, df = sum_of_variances((scatter, df), (part.variance, part.df))
    u, residuals = _joined(documents), _joined(models)
    influences = None
    if u is not None:
        influences = DocumentInfluences(u, np.concatenate([part.shares for part in documents]))
    return Estimate(value, sampling, scatter, df, sampling_df, deciding, influences, residuals)


@dataclass(frozen=True)
class _Part:
    """The variance of a weighted sum that comes from the documents (or models) of one name.

    Attributes:
        variance: the variance.
        df: its degrees of freedom.
        deciding: the effective number of documents that decide it.
        vector: the influences of documents, (documents,), or the residuals of models, (models,), with the variance as
            their sum of squares; empty if they are unknown.
        shares: the share of the tokens that each document holds, (documents,).

    """

    variance: float
    df: float
    deciding: float = inf
    vector: FloatArray = field(default_factory=lambda: np.zeros(0))
    shares: FloatArray = field(default_factory=lambda: np.zeros(0))


def _joined(parts: Sequence[_Part]) -> FloatArray | None:
    """Return the vectors of all parts, one after the other; None if one is unknown, or without parts."""
    if not parts or not all(len(part.vector) for part in parts):
        return None
    return np.concatenate([part.vector for part in parts])


def _parts_by_name(rows: Sequence[Row], weights: FloatArray, part: str) -> list[_Part]:
    """Return the variance of a weighted sum that comes from the documents (or models) of each name."""
    parts: dict[str, list[_Part]] = {}
    known = set()
    for (name, _), members in _by_length(rows, part).items():
        known |= set(members)
        estimates = [rows[i].estimate for i in members]
        if part == "documents":
            u = combined_influences(np.stack(list(map(_scaled_influences, estimates)), axis=1), weights[members])
            # Tokenizers may differ, and with them the shares.
            shares = np.mean([each.documents.shares for each in estimates if each.documents], axis=0)
            df, deciding = float(degrees_of_freedom(u, shares)), float(deciding_documents(u))
            parts.setdefault(name, []).append(_Part(float(u @ u), df, deciding, u, shares))
        else:
            residuals = [_scaled(estimate.residuals, estimate.scatter) for estimate in estimates]
            total = combined_influences(np.stack(residuals, axis=1), weights[members])
            df = min(estimate.df for estimate in estimates)
            parts.setdefault(name, []).append(_Part(float(total @ total), df, vector=total))
    for i in set(range(len(rows))) - known:
        estimate, squared = rows[i].estimate, float(weights[i]) ** 2
        if part == "documents":
            unknown = _Part(squared * estimate.sampling, estimate.sampling_df, estimate.deciding_documents)
            parts.setdefault(rows[i].documents, []).append(unknown)
        else:
            parts.setdefault(rows[i].models, []).append(_Part(squared * estimate.scatter, estimate.df))
    totals = []
    for of_name in parts.values():
        with_variance = [each for each in of_name if each.variance > 0]
        if len(with_variance) == 1:
            totals += with_variance
        elif with_variance:
            variance = sum(sqrt(each.variance) for each in with_variance) ** 2
            smallest_df = min(each.df for each in with_variance)
            totals.append(_Part(variance, smallest_df, min(each.deciding for each in with_variance)))
    return totals


def paired_difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two estimates of different models on the same documents."""
    return combination([Row(first, "documents", "first"), Row(second, "documents", "second")], [1, -1])


def independent_difference(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two estimates of different models on different documents.

    The variances are added. The degrees of freedom are computed by the rule of Welch and Satterthwaite.
    """
    return combination([Row(first, "first", "first"), Row(second, "second", "second")], [1, -1])


def homogeneity(rows: Sequence[Row]) -> float:
    """Return the p-value of the hypothesis that all true values are equal; NaN without two rows with intervals.

    The largest deviation of an estimate from the mean is tested with `adjust`. Each estimate keeps its own variance, so
    one that is far less precise than the others does no harm.
    """
    number = len(rows)
    if number < 2 or not all(row.estimate.has_interval for row in rows):
        return nan
    from_mean = np.eye(number) - 1 / number  # row i: the weights of the deviation of estimate i
    p = np.array([combination(rows, weights).p() for weights in from_mean])
    correlation = _correlations(from_mean @ covariances(rows) @ from_mean.T)
    return float(adjust(p, correlation).min())
