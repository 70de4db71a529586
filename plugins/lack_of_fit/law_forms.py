"""The forms that a law in size may take: plain, with a floor, or broken.

M0  y = A S^-alpha
M1  y = E + A S^-alpha, E >= 0 a floor (irreducible); needs m >= 6 sizes
M2  a broken law: exponent alpha below a size and alpha2 above it; needs m >= 12

Maximum likelihood, ln y = f(ln S) + e with Cov(e) = covariance + tau^2 I. Whether points bend at all is asked without a
form (`bends`): a likelihood ratio of M1 finds a floor in 7 to 16% of true power laws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.ranks import FloatArray, IntArray
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval
from rbptrack.stats.newton import minimise

GATES = {"M0": 3, "M1": 6, "M2": 12}
"""The least number of sizes that each form is fitted to."""

SHARES = np.concatenate([[0.0, 0.01, 0.025], np.linspace(0.05, 0.95, 19), [0.975, 0.99]])
"""Shares E / y at the largest size at which M1 is tried."""

_SLOPES, _REACH = 23, 7.0  # slopes in the middle of the range per share, and how many standard errors they span
_SCATTERS = 9
_FEW = 8  # shares inside an interval: below, a finer grid is laid over it
_BREAK_WIDTH = 0.3  # of M2's bend, in ln S: sharp against sizes that lie a factor 2 apart
_SAME_FIT = 0.02  # log-likelihoods this close are the same optimum
_NONE = Interval(float("nan"))
_DECISIVE = 2.0  # difference in AICc from which a broken law is preferred


@dataclass(frozen=True)
class FormFit:
    """One form at its maximum likelihood.

    Attributes:
        form: M0, M1 or M2.
        alpha: exponent; below the break for M2.
        e: E of M1, in y's unit, with its interval; NaN for the others.
        share: E / y at the largest size, with its 95% profile-likelihood interval.
        tau: scatter between models, in ln y.
        log_likelihood: at the optimum.
        aicc: Akaike's criterion for small samples, tau counted (Hurvich and Tsai, Biometrika 76, 1989).
        agreed: whether every start that came near the optimum found the same parameters.

    """

    form: str
    alpha: float
    tau: float
    log_likelihood: float
    aicc: float
    e: Interval = _NONE
    share: Interval = _NONE
    agreed: bool = True


@dataclass(frozen=True)
class Points:
    """m points of a law in the eigenbasis of their sampling covariance, for likelihoods.

    Attributes:
        x: ln S - ln of the largest S, (m,).
        values: ln y, (m,).
        variances: eigenvalues of the sampling covariance, (m,).
        vectors: its eigenvectors, (m, m).

    """

    x: FloatArray
    values: FloatArray
    variances: FloatArray
    vectors: FloatArray

    @classmethod
    def of(cls, s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> Points:
        """Make it from sizes, (m,), positive values, (m,), and the sampling covariance of ln y, (m, m)."""
        logs = np.log(np.asarray(s, dtype=np.float64))
        variances, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
        return cls(logs - logs.max(), np.log(np.asarray(y, dtype=np.float64)), np.clip(variances, 0, None), vectors)

    @cached_property
    def line(self) -> tuple[float, float]:
        """Slope of the line, negative where y falls, and the mean square of its residuals."""
        (_, slope), off = linear.least_squares(linear.centred(self.x), self.values)
        return float(slope), float(off @ off) / len(self.x)

    @property
    def breaks(self) -> list[list[float]]:
        """Where M2 begins: the line, broken at five places."""
        inside = np.sort(self.x)
        return [[-self.line[0], -self.line[0], at] for at in np.linspace(inside[2], inside[-3], 5)]

    def profile(self, shares: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return M1's least deviance at each share, ln y at the largest size there, and the exponent at the best of
        them.

        Over a grid of slopes in the middle of the range and of scatters, the level in closed form; a parabola goes
        through the best slope of each share and scatter.
        """
        m = len(self.x)
        middle = float(self.x.mean())
        slope = max(-self.line[0], 1e-6)
        variance = self.line[1] * m / (m - 2) + float(self.variances.mean())
        reach = _REACH * max(np.sqrt(variance / np.sum((self.x - middle) ** 2)), 1e-6, 0.002 * slope)
        slopes = np.linspace(max(slope - reach, 1e-6), slope + reach, _SLOPES)
        floor = max(1e-3 * self.line[1], 1e-14)
        tau2 = np.append(1e-3 * floor, np.geomspace(floor, 6 * self.line[1] + 1e-14, _SCATTERS - 1))
        share, level = shares[:, None], -middle * slopes  # the exponent of each share and slope, where
        # slope = alpha rest / (share + rest), rest = (1 - share) e^(-alpha middle):
        alphas = (level + special.lambertw(level * np.exp(-level) * share / (1 - share)).real) / -middle
        curves = np.exp(np.minimum(-alphas[..., None] * self.x, 500))
        turned = np.log(share[..., None] + (1 - share[..., None]) * curves) @ self.vectors  # (shares, slopes, m)
        ones = self.vectors.sum(axis=0)
        off = self.vectors.T @ self.values - turned
        about = off @ ones / (ones @ ones)
        off = off - about[..., None] * ones  # small, so that the difference of squares below keeps its digits
        weight = 1 / (self.variances + tau2[:, None])  # (scatters, m)
        moved = off @ (weight * ones).T / (weight @ ones**2)  # (shares, slopes, scatters)
        deviance = off**2 @ weight.T - moved**2 * (weight @ ones**2) - np.log(weight / (2 * np.pi)).sum(axis=1)
        level = about[..., None] + moved
        at = np.clip(deviance.argmin(axis=1), 1, _SLOPES - 2)[:, None]
        before, here, after = (np.take_along_axis(deviance, at + i, axis=1)[:, 0] for i in (-1, 0, 1))
        bend = np.maximum(before - 2 * here + after, 1e-12)
        over = (here - bend * np.clip((before - after) / (2 * bend), -1, 1) ** 2 / 2).min(axis=1)
        best = [np.unravel_index(int(d.argmin()), d.shape) for d in deviance]
        tops = np.array([float(level[i, *place]) for i, place in enumerate(best)])
        nearest = int(over.argmin())
        return over, tops, float(alphas[nearest, best[nearest][0]])

    def fit(self, form: str, deviance: float, parameters: FloatArray, *, agreed: bool = True) -> FormFit:
        """Return a form at its maximum likelihood, with its AICc; its parameters end in tau^2 and the level."""
        *_, tau2, level = parameters
        free, m = {"M0": 3, "M1": 4, "M2": 5}[form], len(self.x)  # tau and the level among them
        aicc = deviance + 2 * free + 2 * free * (free + 1) / (m - free - 1) if m > free + 1 else float("inf")
        share = float(parameters[0]) if form == "M1" else float("nan")
        alpha = float(parameters[int(form == "M1")])
        tau = float(np.sqrt(tau2))
        e = share * float(np.exp(level))
        return FormFit(form, alpha, tau, -deviance / 2, aicc, Interval(e), Interval(share), agreed)


@dataclass(frozen=True)
class Forms:
    """The forms that m sizes allow, M0 first."""

    fits: tuple[FormFit, ...]

    @property
    def broken(self) -> bool:
        """Whether a broken law is preferred: its starts agree, and AICc is lower by more than 2."""
        last = self.fits[-1]
        return last.form == "M2" and last.agreed and min(f.aicc for f in self.fits[:-1]) - last.aicc > _DECISIVE


def fit_forms(laws: Iterable[tuple[npt.ArrayLike, npt.ArrayLike, FloatArray]]) -> list[Forms]:
    """Fit every form that m sizes allow; M1 and its interval from the profile over E / y at the largest size.

    Source: profile likelihood (Venzon and Moolgavkar, Applied Statistics 37, 1988), with the ratio that is exact for a
    linear model of unknown variance.

    Args:
        laws: of each the sizes S, (m,), positive values, (m,), and the sampling covariance of ln y, (m, m).

    """
    every = [Points.of(*law) for law in laws]
    forms: dict[int, Forms] = {}
    for m in {len(points.x) for points in every}:
        same_size = [i for i, points in enumerate(every) if len(points.x) == m]
        forms |= dict(zip(same_size, _fit_alike([every[i] for i in same_size], m), strict=True))
    return [forms[i] for i in range(len(every))]


def _fit_alike(every: Sequence[Points], m: int) -> list[Forms]:
    """Return the forms of laws that have equally many sizes: all starts of all of them at once."""
    plain = [
        points.fit("M0", *ends[0])
        for points, ends in zip(every, _searched("M0", every, [[[-p.line[0]]] for p in every]), strict=True)
    ]
    forms = [Forms((fit,)) for fit in plain]
    falling = [i for i, points in enumerate(every) if points.line[0] < 0 and m >= GATES["M1"]]
    if not falling:
        return forms
    bent = [every[i] for i in falling]
    floors = [_floor(points) for points in bent]
    ends = _searched("M1", bent, [[[share, alpha]] for share, *_, alpha in floors])
    breaks = _searched("M2", bent, [points.breaks for points in bent]) if m >= GATES["M2"] else [[] for _ in bent]
    for i, points, (_, low, high, top, _), with_floor, broken in zip(falling, bent, floors, ends, breaks, strict=True):
        m1 = points.fit("M1", *with_floor[0])
        share = Interval(m1.share.value, low, high)
        e = Interval(m1.e.value, low * top, high * top)
        fits = [plain[i], replace(m1, share=share, e=e)]
        if broken:
            best = min(broken, key=lambda end: end[0])
            same = [p[2] for deviance, p in broken if deviance < best[0] + 2 * _SAME_FIT]
            fits.append(points.fit("M2", *best, agreed=len(same) >= 2 and bool(np.ptp(same) < 0.02 * np.ptp(points.x))))
        forms[i] = Forms(tuple(fits))
    return forms


def _floor(points: Points) -> tuple[float, float, float, float, float]:
    """Return the likeliest floor's share on a grid, its interval, and y at the largest size and the exponent there."""
    shares = SHARES
    m = len(points.x)
    over, tops, alpha = points.profile(shares)
    critical = m * float(np.log1p(special.stdtrit(m - 3, 0.975) ** 2 / (m - 3)))
    inside = np.flatnonzero(over <= over.min() + critical)
    if inside[-1] - inside[0] < _FEW:  # too coarse for so short an interval
        shares = np.linspace(shares[max(inside[0] - 1, 0)], shares[min(inside[-1] + 1, len(shares) - 1)], len(shares))
        over, tops, alpha = points.profile(shares)
    nearest = int(over.argmin())
    return float(shares[nearest]), *_ends(shares, over - over.min() - critical), float(np.exp(tops[nearest])), alpha


def _shape(form: str, p: FloatArray, x: FloatArray) -> FloatArray:
    """Return ln y of a form but for its level, (starts, several, m), of p, (starts, several, p), at x, (starts, 1,
    m).
    """
    first, *rest = np.moveaxis(p, -1, 0)[..., None]
    if form == "M0":
        return np.asarray(-first * x)
    if form == "M1":
        return np.asarray(np.log(first + (1 - first) * np.exp(np.minimum(-rest[0] * x, 500))))
    above = _BREAK_WIDTH * np.logaddexp(0, (x - rest[1]) / _BREAK_WIDTH)  # 0 below the break
    return np.asarray(-first * x - (rest[0] - first) * above)


def _searched(
    form: str, every: Sequence[Points], starts: Sequence[Sequence[Sequence[float]]]
) -> list[list[tuple[float, FloatArray]]]:
    """Return least deviance over a form's parameters and ln tau^2 from each start of each law, the level in closed
    form.

    Returns:
        Of each start the deviance, and the parameters with tau^2 and the level behind them.

    """
    law_of_start = np.repeat(np.arange(len(every)), [len(law_starts) for law_starts in starts])
    x, values, variances = (
        np.stack([getattr(points, name) for points in every])[law_of_start] for name in ("x", "values", "variances")
    )
    vectors = np.stack([points.vectors for points in every])[law_of_start]
    square = np.array([points.line[1] for points in every])[law_of_start]
    floor = np.maximum(1e-12, 1e-9 * values.var(axis=1))
    top = 6 * np.maximum.reduce([square, variances.mean(axis=1), 2 * floor])
    inside = np.sort(x, axis=1)
    limits: dict[str, list[tuple[Any, Any]]] = {
        "M0": [(-50.0, 50.0)],
        "M1": [(0.0, 0.999), (1e-6, 50.0)],
        "M2": [(-50.0, 50.0), (-50.0, 50.0), (inside[:, 1], inside[:, -2])],
    }
    ends_of = zip(*limits[form], (np.log(floor), np.log(top)), strict=True)
    low, high = (np.column_stack([end + np.zeros(len(law_of_start)) for end in bound]) for bound in ends_of)

    def deviance(p: FloatArray, which: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return minus twice the log-likelihood at the best level, and that level, (starts, several)."""
        off = (values[which, None] - _shape(form, p[..., :-1], x[which, None])) @ vectors[which]
        ones = vectors[which, None].sum(axis=2)
        variance = variances[which, None] + np.exp(p[..., -1:])
        level = (ones * off / variance).sum(axis=-1) / (ones**2 / variance).sum(axis=-1)
        return (np.log(2 * np.pi * variance) + (off - level[..., None] * ones) ** 2 / variance).sum(axis=-1), level

    begin = np.column_stack(
        [[start for law_starts in starts for start in law_starts], np.log(np.maximum(square, 2 * floor))]
    )
    ends, lowest = minimise(lambda p, which: deviance(p, which)[0], begin, low=low, high=high, tolerance=1e-6)
    levels = deviance(ends[:, None], np.arange(len(law_of_start)))[1]
    whole = np.column_stack([ends[:, :-1], np.exp(ends[:, -1:]), levels])
    return [[(float(lowest[j]), whole[j]) for j in np.flatnonzero(law_of_start == i)] for i in range(len(every))]


def _ends(grid: FloatArray, excess: FloatArray) -> tuple[float, float]:
    """Find where excess crosses 0 on either side of its minimum, by linear interpolation; the grid's ends if never."""
    inside = np.flatnonzero(excess <= 0)
    first = int(inside[0])
    last = int(inside[-1])
    low = float(grid[first])
    high = float(grid[last])
    if first > 0:
        low = float(np.interp(0.0, [excess[first], excess[first - 1]], [grid[first], grid[first - 1]]))
    if last < len(grid) - 1:
        high = float(np.interp(0.0, [excess[last], excess[last + 1]], [grid[last], grid[last + 1]]))
    return low, 1.0 if high >= SHARES[-1] else high
