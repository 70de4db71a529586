"""Power laws over few sizes: fits with honest intervals, their diagnostics, and pooling across families."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval
from rbptrack.stats.spread import Spread

_MOST_STEPS = 200  # towards Huber's estimate; five are the rule


@dataclass(frozen=True)
class PowerLawFit:
    """y = A * S**-alpha, fitted as ln y = ln A - alpha ln S + e.

    Attributes:
        alpha: the exponent, by ordinary least squares on the logarithms.
        log_a: ln A, for S in parameters.
        low: lower end of alpha's interval.
        high: upper end.
        level: the interval's nominal coverage.
        r2: coefficient of determination of ln y.
        spread: the error of alpha: sampling error, and scatter between models.
        s: the sizes fitted, (m,).
        y: the values fitted, (m,).
        covariance: sampling covariance of ln y that was given, (m, m); zeros where it was not known.
        recipe: scatter between sizes where several runs of a size tell it from that of seeds; None: they do not.

    """

    alpha: float
    log_a: float
    low: float
    high: float
    level: float
    r2: float
    spread: Spread
    s: FloatArray
    y: FloatArray
    covariance: FloatArray
    recipe: float | None = None

    @cached_property
    def tau(self) -> float:
        """Standard deviation between models (seed, recipe) beyond sampling error, in ln y; by REML."""
        if self.recipe is not None:
            return self.recipe
        return float(np.sqrt(linear.reml(self.covariance, linear.centred(np.log(self.s)), np.log(self.y))[0]))

    @property
    def exponent(self) -> Interval:
        """Alpha and its interval."""
        return Interval(self.alpha, self.low, self.high)

    @property
    def points(self) -> int:
        """The number of sizes m."""
        return len(self.s)

    @property
    def se(self) -> float:
        """Standard error of alpha."""
        return self.spread.se

    def predict(self, s: npt.ArrayLike) -> FloatArray:
        """The law's y at sizes s."""
        return np.asarray(np.exp(self.log_a - self.alpha * np.log(np.asarray(s, dtype=np.float64))))

    def spread_at(self, s: float) -> Spread:
        """The error of the law's ln y at size s."""
        x = np.log(self.s)
        at = np.array([1.0, np.log(s) - x.mean()])
        return linear.line_error(at, x, np.log(self.y), self.covariance)


def fit_power_law(
    s: npt.ArrayLike, y: npt.ArrayLike, *, covariance: FloatArray | None = None, level: float = 0.95
) -> PowerLawFit:
    """Fit y = A * S**-alpha with an interval that covers scatter between models and sampling error.

    The point estimate is ordinary least squares on (ln S, ln y): what the paper (arXiv 2510.20387) reports, and equal
    to `scipy.stats.linregress`. What the covariance says of the slope is known; scatter between models is read off the
    residuals, weighted by how much each size decides (`linear.estimate_error`). Token error alone is far too narrow
    (coverage 9-32% at a nominal 95%).

    Args:
        s: sizes S, (m,), m >= 3, at least two of them different.
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m), from a paired document bootstrap; None: not known.
        level: nominal coverage of the interval.

    Raises:
        RbptrackError: fewer than 3 points, one size only, or y outside (0, inf).

    """
    sizes, target = np.asarray(s, dtype=np.float64), np.asarray(y, dtype=np.float64)
    x = np.log(sizes)
    m = len(x)
    if m < 3 or np.ptp(x) == 0:
        raise RbptrackError(f"a law needs at least 3 sizes that differ; got {m}")
    if not np.all(np.isfinite(target) & (target > 0)):
        raise RbptrackError("a power law needs positive, finite values")
    logs = np.log(target)
    (intercept, slope), residual = linear.least_squares(linear.centred(x), logs)
    total = float(((logs - logs.mean()) ** 2).sum())
    sampling = np.zeros((m, m)) if covariance is None else np.asarray(covariance)
    spread = linear.line_error(np.array([0.0, 1.0]), x, logs, sampling)
    alpha, half = -float(slope), spread.half(level)
    return PowerLawFit(
        alpha=alpha,
        log_a=float(intercept + alpha * x.mean()),
        low=alpha - half,
        high=alpha + half,
        level=level,
        r2=1 - float(residual @ residual) / total if total > 0 else float("nan"),
        spread=spread,
        s=sizes,
        y=target,
        covariance=sampling,
    )


def leave_largest_out(s: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Relative error (predicted / measured - 1) at the largest size of the law fitted to all smaller ones.

    NaN where fewer than 3 points remain.

    Source: extrapolation by one size, as a scaling law is used (arXiv 2510.20387).
    """
    sizes, values = np.asarray(s, dtype=np.float64), np.asarray(y, dtype=np.float64)
    largest = sizes == sizes.max()
    if (~largest).sum() < 3:
        return float("nan")
    x = np.log(sizes[~largest])
    (level, slope), _ = linear.least_squares(linear.centred(x), np.log(values[~largest]))
    predicted = np.exp(float(level - slope * x.mean()) + float(slope) * np.log(sizes.max()))
    return float(predicted / values[largest].mean() - 1)


def left_out_noise(law: PowerLawFit) -> float:
    """Standard deviation of the error of `leave_largest_out` where the law holds, (relative); NaN where there is none.

    Scatter between the smaller models, of their line and of one more model, and sampling error, most of which the
    prediction shares with what was measured over the same documents.

    Source: the variance of w @ ln y for w = (weights of the prediction, -1): w Cov w' + tau^2 w w'.
    """
    kept = law.s < law.s.max()
    if kept.sum() < 3:
        return float("nan")
    smaller = fit_power_law(law.s[kept], law.y[kept], covariance=law.covariance[np.ix_(kept, kept)])
    x = np.log(law.s[kept])
    weights = np.full(len(kept), -1.0)
    weights[kept] = np.array([1.0, np.log(law.s.max()) - x.mean()]) @ linear.inverse(linear.centred(x))
    variance = float(weights @ law.covariance @ weights) + smaller.tau**2 * float(weights @ weights)
    return float(np.sqrt(max(variance, 0.0)))


def point_diagnostics(law: PowerLawFit) -> dict[str, FloatArray]:
    """What each of the m points is to its law, by name, arrays (m,).

    `se_ln_y`: sampling error of ln y, NaN where it is not known; `residual`: ln y less the law's; `alpha_without`: the
    exponent when the point is left out, NaN where 3 do not remain; `influence`: what that changes, in standard errors.

    Source: deletion diagnostics (DFBETAS) of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    without = np.full(law.points, np.nan)
    if law.points > 3:
        without = -linear.without_each(linear.centred(np.log(law.s)), np.log(law.y))[:, 1]
    influence = (law.alpha - without) / law.se if law.se > 0 else np.full(law.points, np.nan)
    residual, sampling = np.log(law.y) - np.log(law.predict(law.s)), np.sqrt(np.diag(law.covariance))
    known = np.where(sampling > 0, sampling, np.nan)
    return {"se_ln_y": known, "residual": residual, "alpha_without": without, "influence": influence}


def huber_alpha(s: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The exponent by Huber's loss, which outliers move less: a check beside least squares, not an estimate to report.

    The loss turns linear at 1.345 robust standard deviations (from the median absolute residual).

    Source: Huber, Annals of Mathematical Statistics 35, 1964.
    """
    logs, design = np.log(np.asarray(y, dtype=np.float64)), linear.centred(np.log(np.asarray(s, dtype=np.float64)))
    solution, residual = linear.least_squares(design, logs)
    turn = 1.345 * 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    if turn <= 1e-12:
        return -float(solution[1])

    def loss(coefficients: FloatArray) -> float:
        off = np.abs(logs - design @ coefficients)
        return float(np.where(off > turn, turn * (off - turn / 2), off**2 / 2).sum())

    for _ in range(_MOST_STEPS):
        residual = logs - design @ solution
        side = np.sign(residual) * (np.abs(residual) > turn)  # of the points where the loss is a straight line
        near = design[side == 0]
        step = np.linalg.lstsq(near.T @ near, turn * design.T @ side + near.T @ logs[side == 0])[0]
        if loss(step) >= loss(solution):
            weighted = design * np.minimum(1, turn / np.maximum(np.abs(residual), turn))[:, None]
            step = np.linalg.solve(weighted.T @ design, weighted.T @ logs)  # is never worse
        if np.abs(step - solution).max() <= 1e-13 * np.abs(solution).max():
            break
        solution = step
    return -float(solution[1])


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
    """Partial pooling (random effects, REML, Knapp-Hartung interval) of at least 3 estimates, each (families,).

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
    values, errors = np.asarray(estimates, dtype=np.float64), np.asarray(se, dtype=np.float64)
    n = len(values)
    if n < 3:
        raise RbptrackError(f"pooling needs at least 3 families; got {n}")
    covariance = np.diag(errors**2) if shared is None else np.where(np.eye(n, dtype=bool), errors**2, shared)
    between2 = float(linear.reml(covariance, np.ones((n, 1)), values)[0])
    whole = covariance + max(between2, 1e-300) * np.eye(n)
    weight = 1 / np.diag(whole)  # not the inverse of the whole: strongly correlated errors make its weights negative
    weight = weight / weight.sum()
    mean = float(weight @ values)
    deviation = np.eye(n) - weight  # found - mean = deviation @ found
    expected = float(np.sum(weight * np.diag(deviation @ whole @ deviation.T)))
    scale = max(1.0, float(weight @ (values - mean) ** 2) / expected) if expected > 0 else 1.0
    half = float(special.stdtrit(n - 1, 0.5 + level / 2)) * float(np.sqrt(scale * (weight @ whole @ weight)))
    shrunk = mean + between2 * np.linalg.pinv(whole) @ (values - mean)  # best linear unbiased prediction
    return Pooled(Interval.around(mean, half), float(np.sqrt(between2)), shrunk)
