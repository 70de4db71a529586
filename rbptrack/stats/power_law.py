"""Power laws over few sizes: fits with honest intervals, their diagnostics, and pooling across families."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rbptrack.base.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval
from rbptrack.stats.spread import Spread

_MOST_STEPS = 200  # towards Huber's estimate; five are the rule
_AT_ONCE = 500  # laws: some megabytes


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
        return float(_scatter(self.s, self.y[None], self.covariance[None])[0])

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
        """Return the law's y at sizes s."""
        return np.asarray(np.exp(self.log_a - self.alpha * np.log(np.asarray(s, dtype=np.float64))))

    def spread_at(self, s: float) -> Spread:
        """Return the error of the law's ln y at size s."""
        x = np.log(self.s)
        at = np.array([1.0, np.log(s) - x.mean()])
        return linear.estimate_error(at, linear.centred(x), np.log(self.y), self.covariance)


def fit_power_law(
    s: npt.ArrayLike, y: npt.ArrayLike, *, covariance: FloatArray | None = None, level: float = 0.95
) -> PowerLawFit:
    """Fit y = A * S**-alpha with an interval that covers scatter between models and sampling error.

    The point estimate is ordinary least squares on (ln S, ln y): what the paper (arXiv 2510.20387) reports, and equal
    to `scipy.stats.linregress`. What the covariance says of the slope is known; scatter between models is read off the
    residuals, weighted by how much each size decides (`linear.estimate_errors`). Token error alone is far too narrow
    (coverage 9-32% at a nominal 95%).

    Args:
        s: sizes S, (m,), m >= 3, at least two of them different.
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m), from a paired document bootstrap; None: not known.
        level: nominal coverage of the interval.

    Raises:
        RbptrackError: fewer than 3 points, one size only, or y outside (0, inf).

    """
    values = np.asarray(y, dtype=np.float64)[None]
    sampling = np.zeros((1, *values.shape[1:] * 2)) if covariance is None else np.asarray(covariance)[None]
    return fit_power_laws(s, values, covariance=sampling, level=level)[0]


def enough_sizes(s: npt.ArrayLike) -> bool:
    """Return whether a law can be fitted over sizes s, (m,): a line through 2 points would have no scatter.

    Source: m - 2 degrees of freedom of a line's residuals.
    """
    return np.size(s) >= 3 and bool(np.ptp(s) > 0)


def fit_power_laws(
    s: npt.ArrayLike, y: FloatArray, *, covariance: FloatArray, level: float = 0.95
) -> list[PowerLawFit]:
    """Return `fit_power_law` of laws over the same sizes: y, (laws, m), and the sampling covariances, (laws, m, m).

    Source: `fit_power_law`.
    """
    sizes = np.asarray(s, dtype=np.float64)
    x, m = np.log(sizes), len(sizes)
    if not enough_sizes(sizes):
        raise RbptrackError(f"a law needs at least 3 sizes that differ; got {m}")
    if not np.all(np.isfinite(y) & (y > 0)):
        raise RbptrackError("a power law needs positive, finite values")
    logs, design = np.log(y), linear.centred(x)
    (intercepts, slopes), residual = linear.least_squares(design, logs.T)
    total = ((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    r2 = 1 - np.divide((residual**2).sum(axis=0), total, out=np.full(len(y), np.nan), where=total > 0)
    lines = np.stack([-slopes, intercepts - slopes * x.mean(), r2], axis=1).tolist()
    spreads = linear.estimate_errors(np.array([0.0, 1.0]), design, logs, covariance)
    laws = []
    for (alpha, log_a, share), spread, *points in zip(lines, spreads, y, covariance, strict=True):
        half = spread.half(level)
        laws.append(PowerLawFit(alpha, log_a, alpha - half, alpha + half, level, share, spread, sizes, *points))
    return laws


def of_each(
    laws: Sequence[PowerLawFit], compute: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Return a number of each law, (laws,): computed of those over the same sizes at once, some hundreds at a time.

    Source: the laws', unchanged.

    Args:
        laws: of any sizes.
        compute: from sizes, (m,), values, (n, m), and sampling covariances, (n, m, m), to the numbers, (n,).

    """
    places: dict[bytes, list[int]] = {}
    for place, law in enumerate(laws):
        places.setdefault(law.s.tobytes(), []).append(place)
    numbers = np.full(len(laws), np.nan)
    for same_sizes in places.values():
        for first in range(0, len(same_sizes), _AT_ONCE):
            some = same_sizes[first : first + _AT_ONCE]
            y, covariance = (np.stack([getattr(laws[i], name) for i in some]) for name in ("y", "covariance"))
            numbers[some] = compute(laws[some[0]].s, y, covariance)
    return numbers


def scatters(laws: Sequence[PowerLawFit]) -> FloatArray:
    """Return `PowerLawFit.tau` of each law, (laws,).

    Source: `linear.scatter`.
    """
    recipes = [np.nan if law.recipe is None else law.recipe for law in laws]
    return np.where(np.isnan(recipes), of_each(laws, _scatter), recipes)


def _scatter(s: FloatArray, y: FloatArray, covariance: FloatArray) -> FloatArray:
    return np.sqrt(linear.scatter(covariance, linear.centred(np.log(s)), np.log(y)))


@dataclass(frozen=True)
class HeldOut:
    """The largest size, held out of the law that is fitted to all smaller ones.

    Attributes:
        error: measured / predicted - 1 there, with its interval; above 0 the model is worse than the law predicts.
        p: two-sided, of no error but scatter and sampling error.
        detectable: the smallest error above 0 that would have been told from 0 in 80% of repetitions.

    """

    error: Interval
    p: float = float("nan")
    detectable: float = float("nan")


def held_out_error(s: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Return measured / predicted - 1 at the largest size by the law fitted to all smaller ones.

    Above 0 the largest model is worse (its CE or -ln RBP_k higher) than the law predicts. Of sizes, (m,), and values,
    (..., m), that of each law, (...); NaN where fewer than 3 points remain.

    Source: extrapolation by one size, as a scaling law is used (arXiv 2510.20387).
    """
    sizes = np.asarray(s, dtype=np.float64)
    values = np.asarray(y, dtype=np.float64)
    kept = sizes < sizes.max()
    if kept.sum() < 3:
        return np.full(values.shape[:-1], np.nan)
    x = np.log(sizes[kept])
    at_largest = np.array([1.0, np.log(sizes.max()) - x.mean()])
    weights = at_largest @ linear.inverse(linear.centred(x))
    return np.asarray(values[..., ~kept].mean(axis=-1) / np.exp(np.log(values[..., kept]) @ weights) - 1)


def hold_largest_out(law: PowerLawFit) -> HeldOut:
    """Return `held_out_error` of a law with its interval.

    It counts scatter between the smaller models, of their line and of one more model, and sampling error. The
    prediction shares most of the latter with the values measured over the same documents. With few sizes it is wide:
    the scatter then rests on one residual or two.

    Source: `linear.held_out_error`.
    """
    error = float(held_out_error(law.s, law.y))
    if np.isnan(error):
        return HeldOut(Interval(error))
    kept = law.s < law.s.max()
    away, spread = linear.held_out_error(kept, linear.centred(np.log(law.s)), np.log(law.y), law.covariance)
    half = spread.half(law.level)
    with np.errstate(over="ignore"):
        detectable = float(np.expm1(spread.detectable(law.level)))
        ends = np.expm1(np.log1p(error) + np.array([-half, half])).tolist()
    return HeldOut(Interval(error, *ends), spread.p(away), detectable)


def point_diagnostics(law: PowerLawFit) -> dict[str, FloatArray]:
    """Return the diagnostics of each of the m points in its law, by name, arrays (m,).

    `se_ln_y`: sampling error of ln y, NaN where unknown; `residual`: ln y less the law's; `alpha_without`: the
    exponent when the point is left out, NaN where 3 do not remain; `influence`: what that changes, in standard errors.

    Source: deletion diagnostics (DFBETAS) of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    without = np.full(law.points, np.nan)
    if law.points > 3:
        without = -linear.without_each(linear.centred(np.log(law.s)), np.log(law.y))[:, 1]
    influence = (law.alpha - without) / law.se if law.se > 0 else np.full(law.points, np.nan)
    residual, sampling = np.log(law.y) - np.log(law.predict(law.s)), np.sqrt(np.diag(law.covariance))
    se_ln_y = np.where(sampling > 0, sampling, np.nan)
    return {"se_ln_y": se_ln_y, "residual": residual, "alpha_without": without, "influence": influence}


def huber_alpha(s: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """Return the exponent by Huber's loss, which outliers move less: a check beside least squares, not an estimate to
    report.

    The loss turns linear at 1.345 robust standard deviations (from the median absolute residual). Of sizes, (m,), and
    values, (..., m), that of each law, (...).

    Source: Huber, Annals of Mathematical Statistics 35, 1964.
    """
    design, every = linear.centred(np.log(np.asarray(s, dtype=np.float64))), np.log(np.asarray(y, dtype=np.float64))
    logs = every.reshape(-1, every.shape[-1])
    solution = (linear.inverse(design) @ logs.T).T
    residual = logs - solution @ design.T
    turn = 1.345 * 1.4826 * np.median(np.abs(residual - np.median(residual, axis=1, keepdims=True)), axis=1)[:, None]
    going = np.flatnonzero(turn > 1e-12)
    for _ in range(_MOST_STEPS):
        if not len(going):
            break
        values, before, bend = logs[going], solution[going], turn[going]
        residual = values - before @ design.T
        side = np.sign(residual) * (np.abs(residual) > bend)  # of the points where the loss is a straight line
        step = _weighted_line(design, (side == 0) * 1.0, (side == 0) * values + bend * side)
        worse = ~(_huber_loss(values - step @ design.T, bend) < _huber_loss(residual, bend))
        weights = np.minimum(1, bend / np.maximum(np.abs(residual), bend))
        step[worse] = _weighted_line(design, weights, weights * values)[worse]  # is never worse
        solution[going] = step
        going = going[np.abs(step - before).max(axis=1) > 1e-13 * np.abs(before).max(axis=1)]
    return -solution[:, 1].reshape(every.shape[:-1])


def _huber_loss(residual: FloatArray, turn: FloatArray) -> FloatArray:
    off = np.abs(residual)
    return np.asarray(np.where(off > turn, turn * (off - turn / 2), off**2 / 2).sum(axis=1))


def _weighted_line(design: FloatArray, weights: FloatArray, weighted: FloatArray) -> FloatArray:
    """Return coefficients of lines, (n, 2), of weighted least squares; 0 where fewer than two points have any weight.

    Weights, and weights times values, are (n, m).
    """
    x = design[:, 1]
    total, first, second = weights.sum(axis=1), weights @ x, weights @ x**2
    level, slope = weighted.sum(axis=1), weighted @ x
    lines = np.stack([second * level - first * slope, total * slope - first * level], axis=1)
    area = (total * second - first**2)[:, None]
    return np.asarray(np.divide(lines, area, out=np.zeros_like(lines), where=area > 1e-9 * (total * second)[:, None]))
