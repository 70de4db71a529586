"""Forecasts beyond the largest size that allow for every form of law which the points do not exclude.

    M0   y = A S^-alpha
    M1   y = E + A S^-alpha, E >= 0
    M2   a broken law: one exponent below a size, another above it; at least two sizes lie above

Inside the range these differ little, at ten times the largest size much. None of them can know of a break beyond the
largest size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from rbptrack.ranks import FloatArray
from rbptrack.stats.irreducible import Profile
from rbptrack.stats.power_law import fit_power_law

LEAST_SIZES = 6
"""Fewer cannot tell a law that flattens or breaks from a plain one."""

_BREAKS = 9  # places of M2's break that are tried


@dataclass(frozen=True)
class Forecast:
    """y of one more model at a size that was not measured.

    Attributes:
        y: predicted, forms averaged by their error at the largest size when it is left out; NaN where refused.
        low: lower end of the interval: every M1 and M2 (M0 among them) that the points do not exclude, and scatter.
        high: upper end.
        weight: of M1 in the average.
        refused: why no number is given; empty where one is.

    """

    y: float
    low: float
    high: float
    weight: float
    refused: str = ""


def forecast(
    s: npt.ArrayLike,
    y: npt.ArrayLike,
    covariance: FloatArray,
    at: float,
    *,
    widest: float = 2.0,
    level: float = 0.95,
) -> Forecast:
    """Predict y of one more model of size `at`, allowing for every form of law that the points do not exclude.

    M0 and M1 are averaged with weights 1 / (squared error at the largest size when it is left out + residual
    variance). The interval is the hull of the predictions of M0, M1 and M2 over every parameter within their
    profile-likelihood regions, widened by the scatter between models. It holds if the law has no break beyond the
    second largest size.

    Source: the profile-likelihood region of Venzon and Moolgavkar, Applied Statistics 37, 1988.

    Args:
        s: sizes S, (m,).
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m).
        at: the size to predict.
        widest: no number is given where high / low exceeds it.
        level: nominal coverage.

    """
    sizes, values = np.asarray(s, dtype=np.float64), np.asarray(y, dtype=np.float64)
    m = len(sizes)
    if m < LEAST_SIZES:
        return _refused(f"{m} sizes cannot tell whether the law flattens or breaks; it needs {LEAST_SIZES}")
    profile = Profile.of(sizes, values, covariance)
    if _steepens(profile, 1 - level):
        return _refused("the points steepen: neither form holds")
    deviance, top = profile.own
    x = float(np.log(at / sizes.max()))
    predicted = top + profile.shape(np.array([x]))[..., 0][..., None]  # (shares, slopes, scatters)
    inside = _with_neighbours(deviance <= profile.over_shares(deviance).min() + profile.critical)
    law = fit_power_law(sizes, values, covariance=covariance, level=level)
    plain, *of_plain = np.log(law.forecast(at))
    flat = float(predicted[np.unravel_index(int(deviance.argmin()), deviance.shape)])
    errors = _held_out(sizes, values, np.asarray(covariance))
    weights = 1 / (errors**2 + law.tau**2 + float(np.trace(covariance)) / m + 1e-12)
    weight = float(weights[1] / weights.sum())
    centre = float((1 - weight) * plain + weight * flat)
    ends = np.array([*predicted[inside], centre, *of_plain, *_broken_ends(profile, x)])
    scatter = float(stats.t.ppf(0.5 + level / 2, m - 2)) * law.tau
    low, high = centre - np.hypot(centre - ends.min(), scatter), centre + np.hypot(ends.max() - centre, scatter)
    if high - low > np.log(widest):
        return _refused(f"the forms that fit lie up to a factor {np.exp(high - low):.3g} apart there", weight)
    return Forecast(float(np.exp(centre)), float(np.exp(low)), float(np.exp(high)), weight)


def _refused(why: str, weight: float = float("nan")) -> Forecast:
    return Forecast(float("nan"), float("nan"), float("nan"), weight, why)


def _broken_ends(profile: Profile, x: float) -> tuple[float, float]:
    """Lowest and highest ln y at x = ln S - ln S_largest of every broken law that the points do not exclude.

    At each break and scatter the law is linear in level and both slopes: minus twice the log-likelihood is its minimum
    there, plus (prediction - best prediction)^2 / variance.
    """
    points, m = profile.x, len(profile.x)
    inner = np.sort(points)[1:-1]
    breaks = np.linspace(inner[0], inner[-1], _BREAKS)[:, None]
    eigenvalues, vectors = profile.spectrum
    design = np.stack([np.ones((_BREAKS, m)), np.tile(points, (_BREAKS, 1)), np.maximum(points - breaks, 0)], axis=2)
    turned, target = vectors.T @ design, vectors.T @ profile.values  # (breaks, m, 3), (m,)
    weight = 1 / (eigenvalues + profile.tau2[:, None])  # (scatters, m)
    normal = np.linalg.inv(np.einsum("tm,bmi,bmj->tbij", weight, turned, turned))
    best = np.einsum("tbij,tm,bmj,m->tbi", normal, weight, turned, target)
    residual = target - np.einsum("bmi,tbi->tbm", turned, best)
    deviance = np.einsum("tm,tbm->tb", weight, residual**2) - np.log(weight).sum(axis=1)[:, None]
    there = np.concatenate([np.ones_like(breaks), np.full_like(breaks, x), x - breaks], axis=1)  # (breaks, 3)
    variance = np.einsum("bi,tbij,bj->tb", there, normal, there)
    critical = m * float(np.log1p(stats.t.ppf(0.975, m - 4) ** 2 / (m - 4)))
    left = np.maximum(deviance.min() + critical - deviance, 0)
    middle, half = np.einsum("bi,tbi->tb", there, best), np.sqrt(variance * left)
    inside = left > 0
    return float((middle - half)[inside].min()), float((middle + half)[inside].max())


def _with_neighbours(inside: FloatArray) -> FloatArray:
    """Grid cells inside the region or next to it in share or slope: the region's edge lies between cells."""
    wide = inside.copy()
    wide[:, 1:] |= inside[:, :-1]
    wide[:, :-1] |= inside[:, 1:]
    wide[1:] |= inside[:-1]
    wide[:-1] |= inside[1:]
    return wide


def _held_out(s: FloatArray, y: FloatArray, covariance: FloatArray) -> FloatArray:
    """Error in ln y of M0 and M1 at the largest size, fitted without it, (2,)."""
    kept = s < s.max()
    target = float(np.log(y[~kept]).mean())
    law = fit_power_law(s[kept], y[kept])
    plain = float(np.log(law.predict(s.max()))) - target
    if kept.sum() < 4:
        return np.array([plain, plain])
    profile = Profile.of(s[kept], y[kept], covariance[np.ix_(kept, kept)])
    deviance, top = profile.own
    best = np.unravel_index(int(deviance.argmin()), deviance.shape)
    x = np.array([np.log(s.max() / s[kept].max())])
    return np.array([plain, float(top[best] + profile.shape(x)[best[0], best[1], 0]) - target])


def _steepens(profile: Profile, size: float) -> bool:
    """Whether ln y bends downwards in ln S: a one-sided t test of the quadratic term."""
    x = profile.x - profile.x.mean()
    design = np.column_stack([np.ones(len(x)), x, x**2])
    pinv = np.linalg.pinv(design)
    bend = pinv @ profile.values
    residual = profile.values - design @ bend
    freedom = len(x) - 3
    eigenvalues, vectors = profile.spectrum
    sampling = (vectors * eigenvalues) @ vectors.T
    scatter = max(0.0, (float(residual @ residual) - float(np.trace(sampling - design @ pinv @ sampling))) / freedom)
    variance = float((pinv @ (sampling + scatter * np.eye(len(x))) @ pinv.T)[2, 2])
    return bool(bend[2] < 0 and bend[2] / np.sqrt(max(variance, 1e-300)) < stats.t.ppf(size, freedom))
