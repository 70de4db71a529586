"""Differences of a metric between two models, with intervals over documents."""

from __future__ import annotations

import numpy as np

from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats.bootstrap import bootstrap_metrics, document_weights
from rbptrack.stats.intervals import Interval

LOG_NATS = "log_nats"
"""The name of ln(nats of the whole text), which does not depend on how a tokenizer cuts the text."""


def on_common_documents(left: DocumentCounts, right: DocumentCounts) -> tuple[DocumentCounts, DocumentCounts]:
    """Both counts, for the documents in which both models score tokens.

    Source: a paired comparison needs the same sampling units on both sides.
    """
    common = np.intersect1d(left.document, right.document)

    def part(counts: DocumentCounts) -> DocumentCounts:
        kept = np.isin(counts.document, common)
        return DocumentCounts(counts.ks, common, counts.tokens[kept], counts.nats[kept], counts.hits[kept])

    return part(left), part(right)


def metric_values(counts: DocumentCounts) -> dict[str, float]:
    """CE in nats, RBP_k of each k, and ln of the nats of the whole text, by metric.

    Source: RBP_k and CE of arXiv 2510.20387 (R by its eq. 3); sums over documents, then divided.
    """
    values = bootstrap_metrics(counts, np.ones((1, len(counts.document))))[0]
    return dict(zip(_metrics(counts), map(float, values), strict=True)) | {LOG_NATS: float(np.log(counts.nats.sum()))}


def metric_draws(counts: DocumentCounts, *, replicates: int, seed: int) -> dict[str, FloatArray]:
    """The same in bootstrap replicates, each (replicates,).

    Source: `document_weights`.

    Args:
        counts: of one model.
        replicates: document bootstraps.
        seed: equal for two models over the same documents, which then draw the same ones.

    """
    weights = document_weights(len(counts.document), replicates=replicates, seed=seed)
    draws = bootstrap_metrics(counts, weights)
    return dict(zip(_metrics(counts), draws.T, strict=True)) | {LOG_NATS: np.log(weights @ counts.nats)}


def difference_interval(a: float, b: float, draws_a: FloatArray, draws_b: FloatArray, *, level: float) -> Interval:
    """A - b with its percentile interval.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.

    Args:
        a: value of the one model.
        b: value of the other.
        draws_a: bootstrap replicates of a, (replicates,).
        draws_b: of b: of the same documents where both models read the same, else independent of draws_a.
        level: nominal coverage.

    """
    tail = (1 - level) / 2
    low, high = np.quantile(draws_a - draws_b, [tail, 1 - tail])
    return Interval(a - b, float(low), float(high))


def _metrics(counts: DocumentCounts) -> list[str]:
    return [CE, *map(rbp_name, counts.ks)]
