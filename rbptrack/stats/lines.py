"""Least-squares lines of ln y on ln S, for several quantities y that are measured at the same sizes S.

Every number of a line is a weighted sum of ln y. The weights depend on the sizes alone. Each number is therefore
computed for all quantities at once, by products of arrays. The squared half width of the interval of a number is
t(d)^2 w' Sigma w + t(m-2)^2 s^2 w'w:

- w are the weights of ln y in the number, (m,) for m sizes.
- Sigma is the covariance of ln y between the sizes, over documents, (m, m).
- d is the degrees of freedom over documents (`documents.degrees_of_freedom`).
- s^2 is the variance of the models around the line. The residuals also contain the noise of the documents, which the
  first term counts (`variance_of_models`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats.documents import MIN_UNITS, combined_influences, covariance, deciding_documents, degrees_of_freedom
from rbptrack.stats.estimate import DocumentInfluences, Estimate
from rbptrack.stats.rounding import ROUNDING


@dataclass(frozen=True)
class Lines:
    """The lines ln y = ln A - alpha ln S of several quantities y through the same sizes, at least 2.

    With 2 sizes the scatter of the models is unknown, and no number has an interval.

    Attributes:
        s: the sizes S, ascending, (m,).
        y: the positive values, (quantities, m).
        sigma: covariance of ln y over documents, (quantities, m, m).
        documents: influences of documents on ln y, with `u` of the shape (documents, quantities, m); None if single
            documents are unknown, or if there are fewer than `documents.MIN_UNITS`.

    """

    s: FloatArray
    y: FloatArray
    sigma: FloatArray
    documents: DocumentInfluences | None = None

    @property
    def sizes(self) -> int:
        """The number of sizes m."""
        return len(self.s)

    @cached_property
    def alpha_weights(self) -> FloatArray:
        """Weights of ln y in alpha, (m,)."""
        centred = np.log(self.s) - np.log(self.s).mean()
        return np.asarray(-centred / (centred**2).sum())

    @cached_property
    def ln_a_weights(self) -> FloatArray:
        """Weights of ln y in ln A, (m,)."""
        return self.weights_at(1.0)

    def weights_at(self, s: float) -> FloatArray:
        """Return the weights of ln y in the value of the line at a size s, (m,)."""
        return np.asarray(1 / self.sizes - (np.log(s) - np.log(self.s).mean()) * self.alpha_weights)

    @cached_property
    def ln_y(self) -> FloatArray:
        """The logarithms of the values, (quantities, m)."""
        return np.log(self.y)

    @cached_property
    def residuals(self) -> FloatArray:
        """The deviations of ln y from the lines, (quantities, m)."""
        ln_a = self.ln_y @ self.ln_a_weights
        alpha = self.ln_y @ self.alpha_weights
        return self.drop_rounding_errors(self.ln_y - ln_a[:, None] + np.outer(alpha, np.log(self.s)))

    @cached_property
    def squares_around_mean(self) -> FloatArray:
        """The sums of squared deviations of ln y from its mean over the sizes, (quantities,)."""
        deviations = self.drop_rounding_errors(self.ln_y - self.ln_y.mean(axis=1, keepdims=True))
        return np.asarray((deviations**2).sum(axis=1))

    @cached_property
    def scatter(self) -> FloatArray:
        """The variances of the models around the lines, without the noise of documents, (quantities,).

        They are NaN with 2 sizes.
        """
        return variance_of_models((self.residuals**2).sum(axis=1), self.noise, self.sizes - 2)

    @cached_property
    def noise(self) -> FloatArray:
        """The part of the sums of squared residuals that the noise of documents is expected to cause, (quantities,)."""
        centred = np.log(self.s) - np.log(self.s).mean()
        fitted = 1 / self.sizes - np.outer(centred, self.alpha_weights)
        return self._noise(np.eye(self.sizes) - fitted)

    @cached_property
    def alpha(self) -> list[Estimate]:
        """The exponents alpha with their errors."""
        return self.line_estimates(self.alpha_weights)

    @cached_property
    def ln_a(self) -> list[Estimate]:
        """The logarithms of the factors A with their errors."""
        return self.line_estimates(self.ln_a_weights)

    @cached_property
    def held_out(self) -> list[Estimate]:
        """The values of ln(measured / predicted) at the largest size, with their errors.

        The predictions are the lines through all smaller sizes.
        """
        smaller = Lines(self.s[:-1], self.y[:, :-1], self.sigma[:, :-1, :-1])
        weights = np.append(-smaller.weights_at(self.s[-1]), 1.0)
        return self.estimates(weights, smaller.scatter * (weights @ weights), smaller.sizes - 2, smaller.residuals)

    @cached_property
    def bend(self) -> list[Estimate]:
        """The coefficients c of ln y = a + b ln S + c (ln S)^2, with their errors; NaN with fewer than 3 sizes."""
        x = np.log(self.s) - np.log(self.s).mean()
        square = x**2
        curved = square - square.mean() + (self.alpha_weights @ square) * x  # what remains of (ln S)^2 after a line
        if np.abs(curved).max() <= ROUNDING * square.max():
            return [Estimate(nan, df=nan)] * len(self.y)
        weights = curved / (curved @ curved)
        residuals = self.drop_rounding_errors(self.residuals - np.outer(self.ln_y @ weights, curved))
        noise = self.noise - self._noise(np.outer(weights, curved))
        df = self.sizes - 3
        variance = variance_of_models((residuals**2).sum(axis=1), noise, df)
        return self.estimates(weights, variance * (weights @ weights), df, residuals)

    def _noise(self, maker: FloatArray) -> FloatArray:
        """Return tr(M Sigma) of each quantity, (quantities,), for a symmetric matrix M, (m, m)."""
        products = maker * self.sigma
        noise = products.sum(axis=(1, 2))
        return np.where(np.abs(noise) <= ROUNDING * np.abs(products).sum(axis=(1, 2)), 0.0, noise)

    def drop_rounding_errors(self, deviations: FloatArray) -> FloatArray:
        """Set deviations of ln y, (quantities, m), to 0 if they may be rounding errors of y or of ln y."""
        largest = np.abs(self.ln_y).max(axis=1, keepdims=True)
        return np.where(np.abs(deviations) > 10 * ROUNDING * (1 + largest), deviations, 0.0)

    def line_estimates(self, weights: FloatArray, models: int = 0) -> list[Estimate]:
        """Return a weighted sum of ln y for each quantity, with the error of the line.

        Args:
            weights: the weights of ln y, (m,).
            models: how often the variance of one model around the line is added to the error.

        """
        return self.estimates(weights, self.scatter * (weights @ weights + models), self.sizes - 2, self.residuals)

    def estimates(self, weights: FloatArray, scatter: FloatArray, df: float, residuals: FloatArray) -> list[Estimate]:
        """Return a weighted sum of ln y for each quantity, with its error.

        Args:
            weights: the weights of ln y, (m,). They determine the error over documents.
            scatter: the variance of each sum that comes from the scatter of the models, (quantities,).
            df: the degrees of freedom of `scatter`.
            residuals: the residuals that `scatter` was estimated from, (quantities, m).

        """
        sampling = weights @ self.sigma @ weights
        rounding = ROUNDING * (np.abs(weights) @ np.abs(self.sigma) @ np.abs(weights))
        sampling = np.where(np.abs(sampling) <= rounding, 0.0, sampling)
        sums = self.ln_y @ weights
        rounding = ROUNDING * ((1 + np.abs(self.ln_y)) @ np.abs(weights))
        sums = np.where(np.abs(sums) > rounding, sums, 0.0)
        columns = [sums, sampling, scatter, np.full(len(self.y), df)]
        documents: list[DocumentInfluences | None] = [None] * len(self.y)
        if self.documents is not None:
            shares = self.documents.shares
            u = combined_influences(self.documents.u, weights)
            columns += [degrees_of_freedom(u, shares), deciding_documents(u)]
            documents = [DocumentInfluences(column, shares) for column in u.T]
        estimates = []
        for i, row in enumerate(np.array(columns).T.tolist()):
            estimates.append(replace(Estimate(*row), documents=documents[i], residuals=residuals[i]))
        return estimates


def variance_of_models(squares: FloatArray, noise: FloatArray, df: float) -> FloatArray:
    """Return the variance of models around a curve, without the noise of documents, (...). It is NaN if df is 0.

    The share 1 - 1 / df of the expected noise is subtracted. If all of it were subtracted, the variance would often be
    0 with few degrees of freedom, and 95% intervals would cover 86% (df = 1) or 91% (df = 2). With this share, they
    cover at least 93.8% at every df, if noise and scatter are normal (docs/explanation/validity.md).

    Args:
        squares: the sums of squared residuals, (...).
        noise: the parts of `squares` that the noise of documents is expected to cause, tr(M Sigma), (...).
        df: the degrees of freedom of the residuals.

    """
    if df <= 0:
        return np.full(np.shape(squares), nan)
    return np.maximum(squares - (1 - 1 / df) * noise, 0.0) / df


def lines_through(s: FloatArray, y: FloatArray, documents: Sequence[DocumentInfluences] | None = None) -> Lines:
    """Fit lines to points.

    Args:
        s: sizes S, in any order, (m,).
        y: positive values, (quantities, m).
        documents: the influences of documents on ln y at each size, m of them, with `u` of the shape (documents,
            quantities). If all have the same number of documents, row i of each must belong to the same document.
            Otherwise the sizes count as measured on different documents. None if single documents are unknown. With
            fewer than `documents.MIN_UNITS` documents, their error is not computed, as if they were unknown.

    """
    order = np.argsort(s, kind="stable")
    s = np.asarray(s, dtype=np.float64)[order]
    y = np.asarray(y, dtype=np.float64)[:, order]
    sigma = np.zeros((len(y), len(s), len(s)))
    if documents is None or min(len(size.u) for size in documents) < MIN_UNITS:
        return Lines(s, y, sigma)
    u = [documents[i].u for i in order]
    shares = [documents[i].shares for i in order]
    if len({len(size_u) for size_u in u}) == 1:
        paired = np.stack(u, axis=-1)
        return Lines(s, y, covariance(paired), DocumentInfluences(paired, np.mean(shares, axis=0)))
    unpaired = np.zeros((sum(map(len, u)), len(y), len(s)))
    row = 0
    for i, size_u in enumerate(u):
        unpaired[row : row + len(size_u), :, i] = size_u
        sigma[:, i, i] = covariance(size_u[:, :, None])[:, 0, 0]
        row += len(size_u)
    return Lines(s, y, sigma, DocumentInfluences(unpaired, np.concatenate(shares)))
