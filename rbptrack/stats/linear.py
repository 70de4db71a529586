"""The linear model behind every law: values = design b + e, Cov(e) = known sampling noise + scatter between models.

Estimates are least squares (what arXiv 2510.20387 reports); their errors come from here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize

from rbptrack.ranks import FloatArray
from rbptrack.stats.newton import crossing
from rbptrack.stats.spread import Spread

_SAME_LIKELIHOOD = 1e-5  # a scatter that raises minus twice the log-likelihood by less when it is taken for 0, is 0
_NO_SPREAD = 1e-28  # mean square of residuals that are rounding
_GRID = 45  # variances among which the most likely is sought, a factor 1.6 apart


def centred(x: FloatArray) -> FloatArray:
    """Return columns 1 and ln S, (m, 2), centred, so that they are orthogonal.

    Source: the design matrix of ln y = ln A - alpha ln S (arXiv 2510.20387).
    """
    return np.column_stack([np.ones(len(x)), x - x.mean()])


def least_squares(design: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return coefficients, (p, ...), of values, (m, ...), and the residuals, (m, ...).

    Source: Gauss, Theoria combinationis, 1823.
    """
    coefficients = inverse(design) @ values
    return coefficients, values - design @ coefficients


def inverse(design: FloatArray) -> FloatArray:
    """Return the matrix from values, (m, ...), to the coefficients of least squares, (p, m).

    Source: the pseudoinverse of Moore and Penrose.
    """
    return _taken_apart(design.shape, design.tobytes())[0]


def free_of(design: FloatArray) -> FloatArray:
    """Return orthonormal contrasts that no column of the design moves, (m - p, m): what residuals are made of.

    Source: the error contrasts of Patterson and Thompson, Biometrika 58, 1971.
    """
    return _taken_apart(design.shape, design.tobytes())[1]


@lru_cache(maxsize=256)  # every metric of a family has the same design
def _taken_apart(shape: tuple[int, int], numbers: bytes) -> tuple[FloatArray, FloatArray]:
    design = np.frombuffer(numbers).reshape(shape)
    parts = np.linalg.pinv(design), np.ascontiguousarray(np.linalg.svd(design)[0][:, shape[1] :].T)
    for array in parts:
        array.flags.writeable = False  # shared
    return parts


def deciding(weights: FloatArray, contrasts: FloatArray) -> FloatArray:
    """Return the quadratic form z' G z of residual contrasts z that estimates the variance of weights @ e, (m - p, m -
    p).

    Every squared residual counts as its size counts in the estimate, so that the scatter of the sizes that decide is
    what makes its error, and few such sizes leave few degrees of freedom. Unbiased where all scatter alike.

    Source: HC2 of MacKinnon and White, Journal of Econometrics 29, 1985: sum of w_i^2 e_i^2 / (1 - h_i).
    """
    left = np.maximum((contrasts**2).sum(axis=0), 1e-12)  # 1 - h_i, the leverage
    form = (contrasts * (weights**2 / left)) @ contrasts.T
    trace = float(np.trace(form))
    return np.asarray(form * (float(weights @ weights) / trace)) if trace > 0 else form


def freedom_of(form: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return degrees of freedom of z' form z for z of each covariance, (..., f, f): (mean)^2 / (half its variance),
    (...).

    Source: Satterthwaite, Biometrics Bulletin 2, 1946.
    """
    freedom = np.full(covariance.shape[:-2], float(len(form)))
    for whole in (np.broadcast_to(form, covariance.shape), form @ covariance):
        square = (whole * whole.swapaxes(-1, -2)).sum(axis=(-2, -1))
        np.divide(_trace(whole) ** 2, square, out=freedom, where=square > 0)
    return freedom


def _trace(matrices: FloatArray) -> FloatArray:
    return np.asarray(np.trace(matrices, axis1=-2, axis2=-1))


def estimate_errors(at: FloatArray, design: FloatArray, values: FloatArray, sampling: FloatArray) -> list[Spread]:
    """Return the errors of at @ coefficients, (p,), of least squares of values, (n, m), of sampling covariances (n, m,
    m).

    What a sampling covariance says of it is known. Scatter between models is read off the residuals; each
    counts as its size counts in the estimate (`deciding`): intervals of 4 to 16 sizes hold also where the smallest and
    largest models scatter 3.6 times as much as the others (docs/validity.md).

    Source: bias-reduced linearisation with degrees of freedom by Satterthwaite: Bell and McCaffrey, Survey Methodology
    28, 2002.
    """
    contrasts = free_of(design)
    weights = at @ inverse(design)
    return _spreads(weights, deciding(weights, contrasts), contrasts, values, sampling)


def _spreads(
    weights: FloatArray, form: FloatArray, contrasts: FloatArray, values: FloatArray, sampling: FloatArray
) -> list[Spread]:
    """Return the errors of weights @ values whose scatter the quadratic form of the residuals estimates."""
    free = len(contrasts)
    noise = contrasts @ sampling @ contrasts.T
    z = values @ contrasts.T
    tau2 = np.maximum(0.0, ((z * z).sum(axis=-1) - _trace(noise)) / free)
    sampled = weights @ sampling @ weights
    beyond = sampled - (form * noise).sum(axis=(-2, -1))
    residual = (z @ form * z).sum(axis=-1)
    freedom = freedom_of(form, noise + tau2[:, None, None] * np.eye(free))
    return [Spread(*parts) for parts in np.stack([sampled, beyond, residual, freedom], axis=1).tolist()]


def held_out_error(
    kept: npt.NDArray[np.bool_], design: FloatArray, values: FloatArray, sampling: FloatArray
) -> tuple[float, Spread]:
    """Return measured less predicted of the points held out, their mean, by a fit to the others, and its error.

    The points held out say nothing of their own scatter: each is taken to scatter as the others do on average.

    Source: the mean-shift outlier model (Cook and Weisberg, Residuals and Influence in Regression, 1982, 2.2.2);
    errors as in `estimate_errors`. Rates of errors beyond their 95% interval in docs/validity.md.

    Args:
        kept: which points the line is fitted to, (m,), booleans.
        design: (m, p).
        values: (m,).
        sampling: their sampling covariance, (m, m).

    """
    shifted = np.column_stack([design, ~kept])
    contrasts = free_of(shifted)
    weights = inverse(shifted)[-1]
    held_out = float(weights[~kept] @ weights[~kept])
    form = deciding(np.where(kept, weights, 0.0), contrasts) + np.eye(len(contrasts)) * held_out / len(contrasts)
    return float(weights @ values), _spreads(weights, form, contrasts, values[None], sampling[None])[0]


def estimate_error(at: FloatArray, design: FloatArray, values: FloatArray, sampling: FloatArray) -> Spread:
    """Return `estimate_errors` of values, (m,), of one sampling covariance, (m, m).

    Source: `estimate_errors`.
    """
    return estimate_errors(at, design, values[None], sampling[None])[0]


def reml(sampling: FloatArray, design: FloatArray, values: FloatArray, *patterns: FloatArray) -> FloatArray:
    """Return variances of scatter that maximise the restricted likelihood of values ~ N(design b, sampling + sum of v
    P).

    Where each value scatters by itself, `scatter` says how much.

    Source: Patterson and Thompson, Biometrika 58, 1971.

    Args:
        sampling: known covariance, (n, n).
        design: (n, p).
        values: (n,).
        patterns: the covariance P of each kind of scatter at variance 1, (n, n) each.

    Returns:
        One variance for each pattern.

    """
    contrasts = free_of(design)
    z = contrasts @ values
    spread = float(z @ z) / len(z)
    if spread <= _NO_SPREAD:
        return np.zeros(len(patterns))
    sampled = contrasts @ sampling @ contrasts.T + 1e-9 * spread * np.eye(len(z))
    low = np.log(spread) - 18
    high = np.log(spread) + 4
    parts = [contrasts @ part @ contrasts.T for part in patterns]

    def minus_twice(log_variances: FloatArray) -> tuple[float, FloatArray]:
        """Return minus twice the restricted log-likelihood, ln|V| + z' V^-1 z, and its gradient."""
        scatter = [np.exp(v) * part for v, part in zip(log_variances, parts, strict=True)]
        whole = sampled + sum(scatter)
        precision = np.linalg.inv(whole)
        w = precision @ z
        gradient = np.array([float(np.sum(precision * part)) - float(w @ part @ w) for part in scatter])
        return float(np.linalg.slogdet(whole)[1]) + float(z @ w), gradient

    part_of = np.eye(len(parts), dtype=bool)
    # Also from where one kind is most of it.
    starts = np.log(spread) - np.vstack([np.full(len(parts), 0.7), np.where(part_of, 0.7, 6.0)])
    ends = (
        optimize.minimize(minus_twice, start, jac=True, method="L-BFGS-B", bounds=[(low, high)] * len(parts))
        for start in starts
    )
    best = min(ends, key=lambda end: float(end.fun))
    without = np.array([minus_twice(np.where(chosen, low, best.x))[0] for chosen in part_of])
    return np.where(without - best.fun < _SAME_LIKELIHOOD, 0.0, np.exp(best.x))


def scatter(sampling: FloatArray, design: FloatArray, values: FloatArray) -> FloatArray:
    """Return the variance v that maximises the restricted likelihood of values ~ N(design b, sampling + v I), (n,).

    Each in the eigenbasis of its sampling covariance, where it is the zero of a slope along one line.

    Source: Patterson and Thompson, Biometrika 58, 1971.

    Args:
        sampling: known covariances, (n, m, m).
        design: (m, p).
        values: (n, m).

    """
    contrasts = free_of(design)
    z = values @ contrasts.T
    mean = (z * z).mean(axis=1)
    spread = np.where(mean > _NO_SPREAD, mean, 1.0)
    least = 1e-9 * spread[:, None]
    variances, vectors = np.linalg.eigh(contrasts @ sampling @ contrasts.T + least[..., None] * np.eye(len(contrasts)))
    variances = np.maximum(variances, least)  # below only by rounding
    square = (z[:, None] @ vectors)[:, 0] ** 2

    def slope(log_variance: FloatArray) -> FloatArray:
        whole = variances + np.exp(log_variance)[:, None]
        return np.asarray((1 / whole - square / whole**2).sum(axis=1))

    every = np.arange(len(z))
    grid = np.log(spread)[:, None] + np.linspace(-18, 4, _GRID)
    whole = variances[:, None] + np.exp(grid)[..., None]
    minus_twice = (np.log(whole) + square[:, None] / whole).sum(axis=2)
    best = minus_twice.argmin(axis=1)
    before = grid[every, np.maximum(best - 1, 0)]
    after = grid[every, np.minimum(best + 1, _GRID - 1)]
    inside = (slope(before) < 0) & (slope(after) > 0)
    most_likely = np.exp(np.where(inside, crossing(lambda at: slope(at) > 0, before, after), grid[every, best]))
    none = (minus_twice[:, 0] - minus_twice[every, best] < _SAME_LIKELIHOOD) | (mean <= _NO_SPREAD)
    return np.where(none, 0.0, np.where(sampling.any(axis=(1, 2)), most_likely, mean))


def without_each(design: FloatArray, values: FloatArray) -> FloatArray:
    """Return the coefficients without each point in turn, (m, p), from one fit: b - (X'X)^-1 x_i e_i / (1 - h_i).

    Source: deletion diagnostics of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    coefficients, residual = least_squares(design, values)
    solved = inverse(design)
    leverage = np.einsum("mp,pm->m", design, solved)
    return np.asarray(coefficients - (solved * (residual / (1 - leverage))).T)


class Straight(NamedTuple):
    """A line through points: its slope and level at x = 0, R^2, and the standard error of the slope."""

    slope: float
    intercept: float
    r2: float
    error: float


def straight_line(x: npt.ArrayLike, y: npt.ArrayLike) -> Straight:
    """Return the line through points, (m,) each, m >= 2 and not all x the same; `scipy.stats.linregress` without its
    import.

    Source: least squares, with the textbook error of m - 2 residuals.
    """
    at = np.asarray(x, dtype=np.float64)
    values = np.asarray(y, dtype=np.float64)
    (xx, xy), (_, yy) = np.cov(at, values, bias=True)
    r2 = float(np.clip(xy**2 / (xx * yy), 0, 1)) if yy > 0 else 0.0
    slope = float(xy / xx)
    m = len(at)
    error = float(np.sqrt((1 - r2) * yy / xx / (m - 2))) if m > 2 else 0.0
    return Straight(slope, float(values.mean() - slope * at.mean()), r2, error)


def lines(x: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return level at x = 0 and slope of the lines through values, (m, ...), over x, (m,): each (...).

    Source: least squares, as of every law here.
    """
    level, slope = inverse(np.column_stack([np.ones(len(x)), x])) @ values
    return level, slope
