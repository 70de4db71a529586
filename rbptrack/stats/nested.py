"""Scatter taken apart: between seeds of one size, between sizes (recipe) beyond what seeds explain; between families.

    ln y_ij = ln A - alpha ln S_i + r_i + s_ij + e_ij,   r ~ N(0, recipe^2), s ~ N(0, seed^2), e ~ N(0, sampling)

for run j of size i. With several runs of some sizes the law can be tested against an error that does not come from its
own residuals: the pure-error lack-of-fit test.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval


@dataclass(frozen=True)
class NestedFit:
    """A law in size over runs that may share a size.

    Attributes:
        exponent: alpha by generalised least squares; its interval is t with sizes - 2 degrees of freedom.
        log_a: ln A, with its error.
        se: standard error of alpha.
        recipe: standard deviation between sizes beyond seeds, in ln y (REML).
        seed: standard deviation between runs of one size, in ln y (REML).
        sizes: number of sizes m.
        runs: number of runs n.
        lack: F of the pure-error lack-of-fit test; NaN without two runs of some size or without a third size.
        p: its p-value, F with (m - 2, n - m) degrees of freedom.

    """

    exponent: Interval
    log_a: float
    se: float
    recipe: float
    seed: float
    sizes: int
    runs: int
    lack: float
    p: float


def fit_nested(
    s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray | None = None, *, level: float = 0.95
) -> NestedFit:
    """Fit y = A S^-alpha to runs, with scatter between sizes and between runs of one size by REML.

    Sizes with more runs weigh more, by recipe^2 + seed^2 / n_i. Without repeated sizes the two scatters cannot be split
    apart: all of it is then called recipe.

    Source: nested random effects fitted by REML (Patterson and Thompson, Biometrika 58, 1971).

    Args:
        s: size S of each run, (n,), at least 3 different.
        y: positive value of each run, (n,).
        covariance: sampling covariance of ln y between runs, (n, n), from a paired document bootstrap.
        level: nominal coverage of the interval.

    Raises:
        RbptrackError: fewer than 3 sizes, or y outside (0, inf).

    """
    x = np.log(np.asarray(s, dtype=np.float64))
    values = np.asarray(y, dtype=np.float64)
    sizes, member = np.unique(x, return_inverse=True)
    n = len(x)
    m = len(sizes)
    if m < 3:
        raise RbptrackError(f"a law needs at least 3 sizes that differ; got {m}")
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise RbptrackError("a power law needs positive, finite values")
    logs = np.log(values)
    sampling = np.zeros((n, n)) if covariance is None else np.asarray(covariance, dtype=np.float64)
    design = linear.centred(x)
    same = (member[:, None] == member[None, :]).astype(np.float64)
    if n > m:
        recipe2, seed2 = linear.reml(sampling, design, logs, same, np.eye(n))
    else:
        recipe2 = float(linear.scatter(sampling[None], design, logs[None])[0])
        seed2 = 0.0
    total = sampling + recipe2 * same + seed2 * np.eye(n) + 1e-16 * np.eye(n)
    inverse = np.linalg.inv(total)
    variance = np.linalg.inv(design.T @ inverse @ design)
    beta = variance @ design.T @ inverse @ logs
    residual = logs - design @ beta
    scale = max(1.0, float(residual @ inverse @ residual) / (n - 2))
    se = float(np.sqrt(scale * variance[1, 1]))
    half = float(special.stdtrit(m - 2, 0.5 + level / 2)) * se
    lack, p = pure_error(s, y, covariance)
    alpha = -float(beta[1])
    return NestedFit(
        exponent=Interval.around(alpha, half),
        log_a=float(beta[0]) + alpha * float(x.mean()),
        se=se,
        recipe=float(np.sqrt(recipe2)),
        seed=float(np.sqrt(seed2)),
        sizes=m,
        runs=n,
        lack=lack,
        p=p,
    )


def pure_error(s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray | None = None) -> tuple[float, float]:
    """Test a power law's lack of fit: F of the size means around a line over the scatter of runs within sizes, and its
    p.

    Sizes and values of runs, (n,), and the sampling covariance of ln y between them, (n, n).

    Sampling error is smaller within a size (the runs read the same documents, so most of it cancels) than between sizes
    (it tilts and bends the line); the expected excess between sizes is added to the denominator.

    Source: the lack-of-fit F test against pure error (Draper and Smith, Applied Regression Analysis, 1998, section
    2.1).

    Returns:
        F and p, with (m - 2, n - m) degrees of freedom for m sizes; NaN where no size has two runs.

    """
    logs = np.log(np.asarray(y, dtype=np.float64))
    sizes, member = np.unique(np.log(np.asarray(s, dtype=np.float64)), return_inverse=True)
    sampling = np.zeros((len(logs), len(logs))) if covariance is None else np.asarray(covariance, dtype=np.float64)
    n = len(logs)
    m = len(sizes)
    if m < 3 or n == m:
        return float("nan"), float("nan")
    times = np.bincount(member).astype(np.float64)
    average = np.zeros((m, n))
    average[member, np.arange(n)] = 1 / times[member]
    within = np.eye(n) - average[member]
    design = linear.centred(sizes) * np.sqrt(times)[:, None]
    off_line = (np.eye(m) - design @ linear.inverse(design)) * np.sqrt(times)[None, :] @ average
    between = float(np.sum((off_line @ logs) ** 2)) / (m - 2)
    inside = float(np.sum((within @ logs) ** 2)) / (n - m)
    noise_between = float(np.trace(off_line @ sampling @ off_line.T)) / (m - 2)
    noise_inside = float(np.trace(within @ sampling @ within.T)) / (n - m)
    if inside <= 0:
        return (float("inf"), 0.0) if between > 0 else (float("nan"), float("nan"))
    lack = between / (inside + max(0.0, noise_between - noise_inside))
    return lack, float(special.fdtrc(m - 2, n - m, lack))


@dataclass(frozen=True)
class Pooled:
    """Several families' exponents taken together, each of them a draw around a common mean.

    Attributes:
        mean: of the exponents.
        between: standard deviation between families, by REML.
        shrunk: each exponent, drawn towards the mean by as much as it is uncertain, (families,).

    """

    mean: Interval
    between: float
    shrunk: FloatArray


def pool(
    estimates: npt.ArrayLike, se: npt.ArrayLike, *, shared: FloatArray | None = None, level: float = 0.95
) -> Pooled:
    """Return partial pooling (random effects, REML, Knapp-Hartung interval) of at least 3 estimates, each (families,).

    Families that read the same documents err together: the mean of their exponents is less certain than independent
    errors would have it, and their differences are more certain.

    Source: random effects by REML (Viechtbauer, Journal of Educational and Behavioral Statistics 30, 2005), the
    interval of Hartung and Knapp, Statistics in Medicine 20, 2001; with correlated errors as in Jackson, White and
    Riley, Statistics in Medicine 31, 2012.

    Args:
        estimates: exponents.
        se: their standard errors, scatter between models included.
        shared: sampling covariance between them, (families, families), its diagonal unused; None: independent.
        level: nominal coverage of the mean's interval.

    """
    values = np.asarray(estimates, dtype=np.float64)
    errors = np.asarray(se, dtype=np.float64)
    n = len(values)
    if n < 3:
        raise RbptrackError(f"pooling needs at least 3 families; got {n}")
    covariance = np.diag(errors**2) if shared is None else np.where(np.eye(n, dtype=bool), errors**2, shared)
    between2 = float(linear.scatter(covariance[None], np.ones((n, 1)), values[None])[0])
    whole = covariance + max(between2, 1e-300) * np.eye(n)
    weight = 1 / np.diag(whole)  # not the inverse of the whole: strongly correlated errors make its weights negative
    weight = weight / weight.sum()
    mean = float(weight @ values)
    deviation = np.eye(n) - weight  # values - mean = deviation @ values
    expected = float(np.sum(weight * np.diag(deviation @ whole @ deviation.T)))
    scale = max(1.0, float(weight @ (values - mean) ** 2) / expected) if expected > 0 else 1.0
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * float(np.sqrt(scale * (weight @ whole @ weight)))
    shrunk = mean + between2 * np.linalg.pinv(whole) @ (values - mean)  # best linear unbiased prediction
    return Pooled(Interval.around(mean, half), float(np.sqrt(between2)), shrunk)
