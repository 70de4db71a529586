"""Differences between two models on the same texts, with errors over documents that hold for many pairs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats.bootstrap import Weights, document_weights, drawn_sums
from rbptrack.stats.shares import ratio_and_error

LOG_NATS = "log_nats"
"""The name of ln(nats of the whole text), which does not depend on how a tokenizer cuts the text."""


def on_common_documents(left: DocumentCounts, right: DocumentCounts) -> tuple[DocumentCounts, DocumentCounts]:
    """Return both counts, for the documents in which both models score tokens."""
    common = np.intersect1d(left.document, right.document)
    return left.take(np.isin(left.document, common)), right.take(np.isin(right.document, common))


def metric_errors(counts: DocumentCounts) -> dict[str, tuple[float, float]]:
    """Return CE and RBP_k of every k with their standard errors over documents, by metric. Source:
    `ratio_and_error`.
    """
    return {metric: ratio_and_error(*ratio) for metric, ratio in _ratios(counts).items() if metric != LOG_NATS}


@dataclass(frozen=True)
class Difference:
    """One metric of model a minus that of model b.

    Attributes:
        a: the metric's value of a.
        b: of b.
        se: standard error of a - b; NaN where it is unknown.
        t: (replicate's difference - difference) / replicate's standard error in each document bootstrap, (replicates,);
            the same draws of documents in every difference on the same texts.

    """

    a: float
    b: float
    se: float
    t: FloatArray

    @property
    def value(self) -> float:
        """A - b."""
        return self.a - self.b


def paired_differences(
    left: DocumentCounts, right: DocumentCounts, *, replicates: int, seed: int
) -> dict[str, Difference]:
    """Return CE, RBP_k of every k that both have, and ln of the nats of the text, by metric, over the same documents.

    Each is a ratio of sums over documents, so its standard error is the infinitesimal jackknife's, documents paired; in
    a bootstrap replicate too.

    Source: the studentized bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5).
    """
    weights = document_weights(len(left.document), replicates=replicates, seed=seed)
    differences = {}
    for metric, ratio in _ratios(left).items():
        if metric in (other := _ratios(right)):
            differences[metric] = _difference(ratio, other[metric], weights, logs=metric == LOG_NATS)
    return differences


def logged_difference(a: float, b: float, se_a: float, se_b: float, *, replicates: int, seed: int) -> Difference:
    """Return a difference of logged metrics with logged standard errors (NaN: not known), taken as independent.

    Independence is cautious where both read the same texts: what they share would cancel.

    Source: the normal approximation; its draws stand beside the others' in `simultaneous_differences`.
    """
    return Difference(a, b, float(np.hypot(se_a, se_b)), np.random.default_rng(seed).standard_normal(replicates))


def simultaneous_differences(differences: Sequence[Difference], *, level: float) -> tuple[float, FloatArray]:
    """Return how far differences must lie from 0 so that none of many is called real by chance (with probability
    `level`).

    Returns:
        How many standard errors an interval reaches to each side so that all hold at once, and p of every difference,
        corrected for their number, (differences,); NaN without a standard error.

    Source: the step of Romano and Wolf, Econometrica 73, 2005, by the largest studentized bootstrap difference.

    """
    with_error = [d for d in differences if np.isfinite(d.se)]
    if not with_error:
        return float("nan"), np.full(len(differences), np.nan)
    largest = np.sort(np.max([np.abs(d.t) for d in with_error], axis=0))
    without_error = {True: np.inf, False: 0.0}
    size = np.array([abs(d.value) / d.se if d.se > 0 else without_error[bool(d.value)] for d in with_error])
    p = (1 + len(largest) - np.searchsorted(largest, size, side="left")) / (1 + len(largest))
    corrected = np.full(len(differences), np.nan)
    corrected[[np.isfinite(d.se) for d in differences]] = p
    return float(np.quantile(largest, level)), corrected


_Ratio = tuple[FloatArray, FloatArray]  # numerator and denominator of each document


def _ratios(counts: DocumentCounts) -> dict[str, _Ratio]:
    tokens = np.asarray(counts.tokens, dtype=np.float64)
    hits = {rbp_name(k): np.asarray(counts.hits[:, i], dtype=np.float64) for i, k in enumerate(counts.ks)}
    ratios = {metric: (values, tokens) for metric, values in ({CE: counts.nats} | hits).items()}
    return ratios | {LOG_NATS: (counts.nats, np.ones(len(tokens)))}


def _difference(first: _Ratio, second: _Ratio, weights: Weights, *, logs: bool) -> Difference:
    value, variance = (float(v[0]) for v in _values(first, second, np.ones((1, weights.shape[1])), logs=logs))
    draws, variances = _values(first, second, weights, logs=logs)
    a, b = (float(x.sum() / n.sum()) for x, n in (first, second))
    if logs:
        a = float(np.log(first[0].sum()))
        b = float(np.log(second[0].sum()))
    return Difference(a, b, float(np.sqrt(variance)), _studentized(draws, value, variances))


def _studentized(draws: FloatArray, value: float, variances: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num((draws - value) / np.sqrt(variances), nan=0.0, posinf=0.0, neginf=0.0)


def _values(first: _Ratio, second: _Ratio, weights: Weights, *, logs: bool) -> tuple[FloatArray, FloatArray]:
    """Return difference of two ratios (or of their logarithms) and its variance for each row of weights, (replicates,).

    The variance is sum_d w_d i_d^2 with i_d = (x_d - p n_d) / sum(w n) of the first minus that of the second: a
    quadratic form in the four sums' products, so that all replicates cost two matrix products.
    """
    columns = np.column_stack([*first, *second])  # (documents, 4): x, n, x', n'
    documents = len(columns)
    totals = drawn_sums(weights, columns)
    products = drawn_sums(weights, columns[:, :, None] * columns[:, None, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        p = totals[:, 0] / totals[:, 1]
        q = totals[:, 2] / totals[:, 3]
        a, b = (1 / totals[:, 0], 1 / totals[:, 2]) if logs else (1 / totals[:, 1], 1 / totals[:, 3])
        form = np.column_stack([a, -p * a, -b, q * b])
        value = np.log(p) - np.log(q) if logs else p - q
    variance = np.einsum("ri,rij,rj->r", form, products, form) * documents / max(documents - 1, 1)
    return value, np.maximum(variance, 0.0)
