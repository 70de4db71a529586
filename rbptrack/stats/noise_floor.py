"""What ends a law in size at large k: few misses, noise, or a real deviation from the line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray
from rbptrack.stats.power_law import PowerLawFit


def design_effect(share: float, draws: FloatArray, *, tokens: float) -> float:
    """Variance of a share over that of as many independent tokens; NaN where the share is 0 or 1.

    Source: Kish, Survey Sampling, 1965, section 8.2; the variance is that of a document bootstrap.

    Args:
        share: of the tokens.
        draws: bootstrap replicates of it, (replicates,).
        tokens: how many there are.

    """
    binomial = share * (1 - share) / tokens
    return float(draws.var(ddof=1) / binomial) if binomial > 0 else float("nan")


def expected_r2(
    law: PowerLawFit, noise: FloatArray, *, replicates: int, level: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Lower end, median and upper end of the R^2 that points on a law would give under a noise.

    Source: parametric bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6.5) of
    ln y ~ N(ln A - alpha ln S, noise).

    Args:
        law: the points lie on it.
        noise: covariance of ln y, (m, m).
        replicates: how often points are drawn.
        level: share of the replicates between the ends.
        rng: draws them.

    """
    values, vectors = np.linalg.eigh(noise)
    shock = rng.normal(size=(replicates, law.points)) * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    drawn = np.log(law.predict(law.s)) + shock  # (replicates, m)
    drawn -= drawn.mean(axis=1, keepdims=True)
    x = np.log(law.s)
    centred = x - x.mean()
    slope = drawn @ centred / (centred @ centred)
    residual = drawn - slope[:, None] * centred
    r2 = 1 - (residual**2).sum(axis=1) / np.maximum((drawn**2).sum(axis=1), 1e-300)
    tail = (1 - level) / 2
    low, middle, high = np.quantile(r2, [tail, 0.5, 1 - tail])
    return float(low), float(middle), float(high)


def largest_k_without_gap(ks: npt.ArrayLike, visible: npt.ArrayLike) -> int:
    """The largest k at which, and at every smaller k, a law is visible; 0 where it is not visible at the smallest.

    Source: arXiv 2510.20387, section 4.3, asks up to which k the law holds; this is the answer by a signal-to-noise
    threshold.

    Args:
        ks: ascending, (ks,).
        visible: whether the law is visible at each, (ks,).

    """
    seen = np.asarray(visible, dtype=bool)
    length = int(np.argmin(seen)) if not seen.all() else len(seen)
    return int(np.asarray(ks)[length - 1]) if length else 0


def alphas_without_documents(s: FloatArray, tokens: FloatArray, hits: FloatArray) -> FloatArray:
    """The exponent of -ln RBP_k, and the exponent without each document in turn, (1 + documents,).

    Source: the delete-one jackknife (Tukey, 1958) of the least-squares slope of ln(-ln RBP_k) on ln S.

    Args:
        s: sizes S, (m,).
        tokens: scored tokens of each size and document, (m, documents).
        hits: those with rank <= k, (m, documents).

    """
    whole = hits.sum(axis=1) / tokens.sum(axis=1)
    rest = (hits.sum(axis=1, keepdims=True) - hits) / (tokens.sum(axis=1, keepdims=True) - tokens)
    x = np.log(s) - np.log(s).mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(-np.log(np.column_stack([whole, rest])))  # (m, 1 + documents)
        return np.asarray(-(x @ logs) / (x @ x))
