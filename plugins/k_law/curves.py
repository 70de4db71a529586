"""Curves of RBP_k against k with their uncertainty, and what a larger k is worth in model size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from rbptrack.ranks import DocumentCounts, FloatArray
from rbptrack.stats.bootstrap import Weights, document_weights, drawn_sums, paired_covariance
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval, fieller, studentized, worth
from rbptrack.stats.k_law import KLawFit, fit_k_law, k_slopes, line_through
from rbptrack.stats.power_law import fit_power_law
from rbptrack.stats.size_laws import law_values, positive

_AT_ONCE, _ELEMENTS = 100, 4_000_000  # at most: replicates, and elements of a matrix of documents x replicates


def size_factor_read_off(s: FloatArray, at_k: FloatArray, at_larger_k: FloatArray) -> tuple[float, int]:
    """Return the factor from S to the size that has at k what S has at a larger k, by interpolation between measured
    sizes.

    Sizes ascending, (m,), and -ln RBP at both k, (m,).

    Source: arXiv 2510.20387, eq. 10, without its derivative.

    Returns:
        The geometric mean of the factor, and over how many sizes it is; NaN and 0 where a larger model is not better
        throughout, or no measured size is large enough.

    """
    x = np.log(s)
    at = np.log(at_k)
    beyond = np.log(at_larger_k)
    if (np.diff(at) >= 0).any():
        return float("nan"), 0  # no unique size to read off
    inside = (beyond <= at[0]) & (beyond >= at[-1])
    factors = np.interp(-beyond[inside], -at, x) - x[inside]
    return (float(np.exp(factors.mean())), int(inside.sum())) if inside.any() else (float("nan"), 0)


@dataclass(frozen=True)
class KCurves:
    """-ln RBP_k of the sizes of a family, at the k where RBP_k is neither 0 nor 1 for any of them.

    Attributes:
        ks: the k, ascending, (ks,).
        y: -ln RBP_k, (m, ks).
        draws: the same in each paired document bootstrap, (m, replicates, ks).
        fit: the line and parabola through each size's curve, at the k of the fit.
        beta: of each size, with its interval over documents; none below 10 documents.

    """

    ks: FloatArray
    y: FloatArray
    draws: FloatArray
    fit: KLawFit
    beta: list[Interval]

    def at(self, k: int) -> int | None:
        """Return the column of k; None if no column has it."""
        place = np.flatnonzero(self.ks == k)
        return int(place[0]) if len(place) else None


def k_curves(
    counts: Sequence[DocumentCounts], fitted: Sequence[int], *, replicates: int, level: float
) -> KCurves | None:
    """Return the curves of a family, with intervals over documents; None where fewer than 4 k of the line are usable.

    Source: arXiv 2510.20387, figure 9.

    Args:
        counts: of each size, over the same documents and k, (m,).
        fitted: the k, among those of the counts, that the line goes through.
        replicates: document bootstraps, drawn jointly for all sizes.
        level: nominal coverage of beta's interval.

    """
    if not counts[0].ks:
        return None
    law = law_values(counts, replicates=replicates)
    y, draws = law.values[:, 1:], law.draws[:, :, 1:]  # without CE
    usable = positive(y, axis=0) & positive(draws, axis=(0, 1))
    ks = np.asarray(counts[0].ks)[usable]
    y = y[:, usable]
    draws = draws[:, :, usable]
    inside = np.isin(ks, fitted)
    if inside.sum() < 4:
        return None
    fit = fit_k_law(ks[inside], y[:, inside])
    if len(counts[0].document) < LEAST_DOCUMENTS:
        return KCurves(ks, y, draws, fit, [Interval(float(beta)) for beta in fit.beta])
    chosen = [document_counts.select(fit.ks.tolist()) for document_counts in counts]
    ends = [beta_interval(document_counts, replicates=replicates, level=level) for document_counts in chosen]
    beta = [replace(end, value=float(value)) for end, value in zip(ends, fit.beta, strict=True)]
    return KCurves(ks, y, draws, fit, beta)


def beta_interval(counts: DocumentCounts, *, replicates: int, level: float) -> Interval:
    """Return Beta of one size over the k of the counts, with a studentized interval over at least 2 documents.

    The standard error is the infinitesimal jackknife's (Efron 1982, chapter 6): with c_k the slope's weight of ln y_k,
    document d moves beta by I_d = sum_k c_k (h_dk - p_k n_d) / (y_k p_k n), h hits, n tokens, p_k = RBP_k; se^2 =
    sum_d I_d^2 D/(D - 1). The interval is as wide as the documents that decide allow (`worth` of the I_d): of 20 with a
    skewed difficulty some 3 do.
    """
    ks = np.asarray(counts.ks)
    tokens = counts.tokens.astype(np.float64)
    hits = counts.hits.astype(np.float64)
    slope = line_through(np.log(ks))[1]

    def estimate(weights: Weights) -> tuple[FloatArray, FloatArray, FloatArray]:
        n = drawn_sums(weights, tokens)
        p = drawn_sums(weights, hits) / n[:, None]
        y = -np.log(p)
        per_hit = slope / (y * p * n[:, None])  # (replicates, ks)
        influence = hits @ per_hit.T - tokens[:, None] * (per_hit * p).sum(axis=1)  # (documents, replicates)
        variance = np.einsum("bd,db->b", weights, influence**2) * len(tokens) / (len(tokens) - 1)
        return k_slopes(ks, y), np.sqrt(variance), influence

    weights = document_weights(len(tokens), replicates=replicates)
    at_once = max(1, min(_AT_ONCE, _ELEMENTS // len(tokens)))
    # [:2]: the influences of all replicates would take 8 kB a document
    pieces = [estimate(weights[i : i + at_once])[:2] for i in range(0, replicates, at_once)]
    draws, draw_se = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    value, se, influence = estimate(np.ones((1, len(tokens))))
    return studentized(float(value[0]), float(se[0]), draws, draw_se, documents=worth(influence), level=level)


def worth_of_doubling(s: FloatArray, curves: KCurves, k: int, *, level: float) -> dict[str, Any] | None:
    """Return eq. 10 of arXiv 2510.20387, dS/S = -(alpha_k/alpha_S) dk/k, as the factor in S that a doubling of k is
    worth.

    Args:
        s: sizes S, ascending, (m,), at least 3.
        curves: of these sizes.
        k: from which k doubles.
        level: nominal coverage of the intervals.

    Returns:
        The cells of a table: the exponent `alpha` at k, `beta` = ln(y_k / y_2k) / ln 2 (mean over sizes), their
        `ratio`, `factor_in_s` = 2^ratio with the ends of Fieller's interval (infinite where alpha may be 0), and
        `factor_measured` over `sizes_measured` (`size_factor_read_off`). None where the curves lack k or 2k.

    """
    here = curves.at(k)
    there = curves.at(2 * k)
    if here is None or there is None:
        return None
    y = curves.y[:, here]
    doubled = curves.y[:, there]
    law = fit_power_law(s, y, covariance=paired_covariance(list(np.log(curves.draws[:, :, here]))), level=level)
    betas = np.log(y / doubled) / np.log(2)
    beta = float(betas.mean())
    beta_se = float(betas.std(ddof=1) / np.sqrt(len(betas)))
    quantile = law.spread.half(level) / law.se if law.se > 0 else float(special.ndtri(0.5 + level / 2))
    low, high = fieller(beta, law.alpha, beta_se, law.se, quantile=quantile)
    measured, sizes = size_factor_read_off(s, y, doubled)
    ratio = beta / law.alpha if law.alpha else np.inf
    names = ("factor_in_s", "factor_low", "factor_high")
    with np.errstate(over="ignore"):  # 2 to the power of a large ratio
        factors = dict(zip(names, np.exp2([ratio, low, high]).tolist(), strict=True))
    cells: dict[str, Any] = {"alpha": law.exponent, "beta": beta, "ratio": ratio, "factor_measured": measured}
    return cells | factors | {"sizes_measured": sizes}
