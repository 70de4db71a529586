"""The law in k, -ln RBP_k = B k^-beta at a fixed model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats import linear


@dataclass(frozen=True)
class KLawFit:
    """-ln RBP_k = B k^-beta of each of m sizes, and the parabola through the same points.

    Attributes:
        ks: the k, (ks,).
        y: -ln RBP_k, (m, ks).
        beta: minus the slope of ln y against ln k, by ordinary least squares, (m,).
        log_b: ln B, (m,).
        r2: of that line, (m,).
        parabola: coefficients of 1, t and t^2 with t = ln k, of ln y, (m, 3).

    """

    ks: FloatArray
    y: FloatArray
    beta: FloatArray
    log_b: FloatArray
    r2: FloatArray
    parabola: FloatArray

    @property
    def fitted(self) -> FloatArray:
        """B k^-beta at the k of the fit, (m, ks)."""
        return np.asarray(np.exp(self.log_b)[:, None] * self.ks ** -self.beta[:, None])

    @property
    def largest_deviation(self) -> FloatArray:
        """The largest |y / (B k^-beta) - 1| over k, (m,)."""
        return np.asarray(np.abs(self.y / self.fitted - 1).max(axis=1))

    def local_beta(self, k: float) -> FloatArray:
        """Return -d ln y / d ln k of each parabola at k, (m,)."""
        return np.asarray(-(self.parabola[:, 1] + 2 * self.parabola[:, 2] * np.log(k)))


def fit_k_law(ks: FloatArray, y: FloatArray) -> KLawFit:
    """Return ordinary least squares of ln y on ln k, for each row of y (arXiv 2510.20387, figure 9 and table 1).

    Args:
        ks: the k, (ks,), at least 3.
        y: -ln RBP_k, (m, ks), positive and finite.

    """
    t = np.log(ks)
    logs = np.log(y)
    coefficients = logs @ line_through(t).T  # (m, 2)
    residual = logs - coefficients @ np.stack([np.ones(len(t)), t])
    total = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return KLawFit(
        ks=ks,
        y=y,
        beta=-coefficients[:, 1],
        log_b=coefficients[:, 0],
        r2=1 - (residual**2).sum(axis=1) / total,
        parabola=logs @ np.linalg.pinv(np.vander(t, 3, increasing=True)).T,
    )


def k_slopes(ks: FloatArray, y: FloatArray) -> FloatArray:
    """Return Beta alone, minus the slope of ln y against ln k, for y of (..., ks): bootstrap replicates.

    Source: arXiv 2510.20387, figure 9 and table 1.
    """
    return np.asarray(-(np.log(y) @ line_through(np.log(ks))[1]))


def line_through(t: FloatArray) -> FloatArray:
    """Return the matrix from values at t to the intercept and slope of their least-squares line, (2, points)."""
    return linear.inverse(np.column_stack([np.ones(len(t)), t]))
