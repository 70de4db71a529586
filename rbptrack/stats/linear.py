"""The linear model behind every law: values = design b + e, Cov(e) = known sampling noise + scatter between models.

Estimates are least squares (what arXiv 2510.20387 reports); their errors come from here.
"""

from __future__ import annotations

import numpy as np
from scipy import optimize

from rbptrack.ranks import FloatArray
from rbptrack.stats.spread import Spread

_SAME_LIKELIHOOD = 1e-5  # a scatter that raises minus twice the log-likelihood by less when it is taken for 0, is 0


def centred(x: FloatArray) -> FloatArray:
    """Columns 1 and ln S, (m, 2), centred, so that they are orthogonal.

    Source: the design matrix of ln y = ln A - alpha ln S (arXiv 2510.20387).
    """
    return np.column_stack([np.ones(len(x)), x - x.mean()])


def least_squares(design: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coefficients, (p, ...), of values, (m, ...), and the residuals, (m, ...).

    Source: Gauss, Theoria combinationis, 1823.
    """
    found = np.linalg.pinv(design) @ values
    return found, values - design @ found


def free_of(design: FloatArray) -> FloatArray:
    """Orthonormal contrasts that no column of the design moves, (m - p, m): what residuals are made of.

    Source: the error contrasts of Patterson and Thompson, Biometrika 58, 1971.
    """
    return np.asarray(np.linalg.svd(design)[0][:, design.shape[1] :].T)


def deciding(weights: FloatArray, contrasts: FloatArray) -> FloatArray:
    """The quadratic form z' G z of residual contrasts z that estimates the variance of weights @ e, (m - p, m - p).

    Every squared residual counts as its size counts in the estimate, so that the scatter of the sizes that decide is
    what makes its error, and few such sizes leave few degrees of freedom. Unbiased where all scatter alike.

    Source: HC2 of MacKinnon and White, Journal of Econometrics 29, 1985: sum of w_i^2 e_i^2 / (1 - h_i).
    """
    left = np.maximum((contrasts**2).sum(axis=0), 1e-12)  # 1 - h_i, the leverage
    form = (contrasts * (weights**2 / left)) @ contrasts.T
    trace = float(np.trace(form))
    return np.asarray(form * (float(weights @ weights) / trace)) if trace > 0 else form


def freedom_of(form: FloatArray, covariance: FloatArray) -> float:
    """Degrees of freedom of z' form z for z of that covariance: (mean)^2 / (half its variance).

    Source: Satterthwaite, Biometrics Bulletin 2, 1946.
    """
    for whole in (form @ covariance, form):
        square = float(np.sum(whole * whole.T))
        if square > 0:
            return float(np.trace(whole)) ** 2 / square
    return float(len(form))


def estimate_error(
    at: FloatArray, design: FloatArray, values: FloatArray, sampling: FloatArray, *, models: int = 0
) -> Spread:
    """The error of at @ coefficients of least squares, and of the mean of further models at that place.

    What the sampling covariance says of it is known. Scatter between models is read off the residuals, each of which
    counts as its size counts in the estimate (`deciding`): intervals of 4 to 16 sizes hold also where the smallest and
    largest models scatter 3.6 times as much as the others (studies/laws.py).

    Source: bias-reduced linearisation with degrees of freedom by Satterthwaite: Bell and McCaffrey, Survey Methodology
    28, 2002.

    Args:
        at: of the coefficients, (p,).
        design: (m, p), p < m.
        values: (m,).
        sampling: their covariance, (m, m).
        models: of how many further models the mean is taken; 0: of the line alone.

    """
    contrasts = free_of(design)
    weights, free = at @ np.linalg.pinv(design), len(contrasts)
    noise, z = contrasts @ sampling @ contrasts.T, contrasts @ values
    form = deciding(weights, contrasts)
    if models:
        form = form + np.eye(free) / (free * models)
    tau2 = max(0.0, float(z @ z - np.trace(noise)) / free)
    known = float(weights @ sampling @ weights)
    freedom = freedom_of(form, noise + tau2 * np.eye(free))
    return Spread(known, known - float(np.sum(form * noise)), float(z @ form @ z), freedom)


def line_error(at: FloatArray, x: FloatArray, values: FloatArray, sampling: FloatArray, *, models: int = 0) -> Spread:
    """`estimate_error` of at @ (intercept, slope) of the line through values, (m,), over x.

    Source: `estimate_error`.
    """
    return estimate_error(at, centred(x), values, sampling, models=models)


def reml(sampling: FloatArray, design: FloatArray, values: FloatArray, *patterns: FloatArray) -> FloatArray:
    """Variances of scatter that maximise the restricted likelihood of values ~ N(design b, sampling + sum of v P).

    Source: Patterson and Thompson, Biometrika 58, 1971.

    Args:
        sampling: known covariance, (n, n).
        design: (n, p).
        values: (n,).
        patterns: the covariance P of each kind of scatter at variance 1, (n, n) each; the last one is the identity,
            scatter of each value by itself, which need not be given where it is the only one.

    Returns:
        One variance for each pattern.

    """
    contrasts = free_of(design)
    z = contrasts @ values
    spread = float(z @ z) / len(z)
    kinds = patterns or (np.eye(len(values)),)
    if spread <= 1e-28:
        return np.zeros(len(kinds))
    if len(kinds) == 1 and not sampling.any() and not patterns:
        return np.array([spread])  # the restricted maximum in closed form: the unbiased residual variance
    known, *parts = [contrasts @ part @ contrasts.T for part in (sampling, *kinds)]
    known = known + 1e-9 * spread * np.eye(len(z))

    def minus_twice(log_variances: FloatArray) -> tuple[float, FloatArray]:
        """Minus twice the restricted log-likelihood, ln|V| + z' V^-1 z, and its gradient."""
        scatter = [np.exp(v) * part for v, part in zip(log_variances, parts, strict=True)]
        whole = known + sum(scatter)
        inverse = np.linalg.inv(whole)
        w = inverse @ z
        gradient = np.array([float(np.sum(inverse * part)) - float(w @ part @ w) for part in scatter])
        return float(np.linalg.slogdet(whole)[1]) + float(z @ w), gradient

    low, high = np.log(spread) - 18, np.log(spread) + 4
    starts = [np.full(len(kinds), np.log(spread) - 0.7)]
    if len(kinds) > 1:  # also where one kind is most of it
        starts += [np.log(spread) - np.where(np.arange(len(kinds)) == i, 0.7, 6.0) for i in range(len(kinds))]
    ends = (
        optimize.minimize(minus_twice, start, jac=True, method="L-BFGS-B", bounds=[(low, high)] * len(kinds))
        for start in starts
    )
    best = min(ends, key=lambda found: float(found.fun))
    without = [minus_twice(np.where(np.arange(len(kinds)) == i, low, best.x))[0] for i in range(len(kinds))]
    return np.where(np.array(without) - best.fun < _SAME_LIKELIHOOD, 0.0, np.exp(best.x))


def without_each(design: FloatArray, values: FloatArray) -> FloatArray:
    """The coefficients without each point in turn, (m, p), from one fit: b - (X'X)^-1 x_i e_i / (1 - h_i).

    Source: deletion diagnostics of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    found, residual = least_squares(design, values)
    inverse = np.linalg.pinv(design)  # (p, m)
    leverage = np.einsum("mp,pm->m", design, inverse)
    return np.asarray(found - (inverse * (residual / (1 - leverage))).T)


def lines(x: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Level at x = 0 and slope of the lines through values, (m, ...), over x, (m,): each (...).

    Source: least squares, as of every law here.
    """
    level, slope = np.linalg.pinv(np.column_stack([np.ones(len(x)), x])) @ values
    return level, slope
