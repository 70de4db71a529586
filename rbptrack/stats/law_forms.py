"""The forms that a law in size may take: plain, with a floor, or broken.

M0  y = A S^-alpha
M1  y = E + A S^-alpha, E >= 0 a floor (irreducible); needs m >= 6 sizes
M2  a broken law: exponent alpha below a size and alpha2 above it; needs m >= 12

Maximum likelihood, ln y = f(ln S) + e with Cov(e) = covariance + tau^2 I. Whether points bend at all is asked without a
form (`rbptrack.stats.bends`): a likelihood ratio of M1 finds a floor in 7 to 16% of true power laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from rbptrack.ranks import FloatArray
from rbptrack.stats import linear

GATES = {"M0": 3, "M1": 6, "M2": 12}
"""The least number of sizes that each form is fitted to."""

SHARES = np.concatenate([[0.0, 0.01, 0.025], np.linspace(0.05, 0.95, 19), [0.975, 0.99]])
"""Shares E / y at the largest size at which M1 is tried."""

_SLOPES, _REACH = 23, 7.0  # slopes in the middle of the range per share, and how many standard errors they span
_SCATTERS = 9
_FEW = 8  # shares inside an interval: below, a finer grid is laid over it
_BREAK_WIDTH = 0.3  # of M2's bend, in ln S: sharp against sizes that lie a factor 2 apart
_SAME_FIT = 0.02  # log-likelihoods this close are the same optimum
_DECISIVE = 2.0  # difference in AICc from which a broken law is preferred


@dataclass(frozen=True)
class FormFit:
    """One form at its maximum likelihood.

    Attributes:
        form: M0, M1 or M2.
        alpha: exponent; below the break for M2.
        e: E of M1, in y's unit; NaN for the others.
        share: E / y at the largest size; NaN for the others.
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
    e: float = float("nan")
    share: float = float("nan")
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
        """From sizes, (m,), positive values, (m,), and the sampling covariance of ln y, (m, m)."""
        logs = np.log(np.asarray(s, dtype=np.float64))
        variances, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
        return cls(logs - logs.max(), np.log(np.asarray(y, dtype=np.float64)), np.clip(variances, 0, None), vectors)

    @cached_property
    def line(self) -> tuple[float, float]:
        """Slope of the line, negative where y falls, and the mean square of its residuals."""
        (_, slope), off = linear.least_squares(linear.centred(self.x), self.values)
        return float(slope), float(off @ off) / len(self.x)

    def deviance(self, shape: FloatArray, tau2: float) -> tuple[float, float]:
        """Minus twice the log-likelihood of values = level + shape, and that level, which is the best."""
        variance = self.variances + tau2
        one, off = self.vectors.sum(axis=0), self.vectors.T @ (self.values - shape)
        level = float((one * off / variance).sum() / (one**2 / variance).sum())
        return float(np.sum(np.log(2 * np.pi * variance) + (off - level * one) ** 2 / variance)), level

    def best(
        self, shape: Callable[[FloatArray], FloatArray], start: Sequence[float], bounds: Sequence[tuple[float, float]]
    ) -> tuple[float, FloatArray, float]:
        """Least deviance over a form's parameters and ln tau^2; those parameters with tau^2 behind them; the level."""
        floor = max(1e-12, 1e-9 * float(np.var(self.values)))
        top = 6 * max(self.line[1], float(self.variances.mean()), 2 * floor)
        found = optimize.minimize(
            lambda p: self.deviance(shape(p[:-1]), float(np.exp(p[-1])))[0],
            [*start, np.log(max(self.line[1], 2 * floor))],
            bounds=[*bounds, (np.log(floor), np.log(top))],
            method="L-BFGS-B",
            options={"ftol": 1e-13, "gtol": 1e-7},
        )
        parameters = np.append(found.x[:-1], np.exp(found.x[-1]))
        return float(found.fun), parameters, self.deviance(shape(parameters[:-1]), parameters[-1])[1]

    def with_floor(self, start: tuple[float, float]) -> tuple[float, FloatArray, float]:
        """`best` of M1 from a share E / y at the largest size and an exponent; its parameters are both, and tau^2."""
        return self.best(
            lambda p: np.log(p[0] + (1 - p[0]) * np.exp(np.minimum(-p[1] * self.x, 500))),
            start,
            [(0.0, 0.999), (1e-6, 50.0)],
        )

    def profile(self, shares: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """M1's least deviance at each share, ln y at the largest size there, and the exponent at the best of them.

        Over a grid of slopes in the middle of the range and of scatters, the level in closed form; a parabola goes
        through the best slope of each share and scatter.
        """
        m, middle, slope = len(self.x), float(self.x.mean()), max(-self.line[0], 1e-6)
        variance = self.line[1] * m / (m - 2) + float(self.variances.mean())
        reach = _REACH * max(np.sqrt(variance / np.sum((self.x - middle) ** 2)), 1e-6, 0.002 * slope)
        slopes = np.linspace(max(slope - reach, 1e-6), slope + reach, _SLOPES)
        floor = max(1e-3 * self.line[1], 1e-14)
        tau2 = np.append(1e-3 * floor, np.geomspace(floor, 6 * self.line[1] + 1e-14, _SCATTERS - 1))
        share = shares[:, None]
        low, high = np.zeros((len(shares), _SLOPES)), np.full((len(shares), _SLOPES), 50.0)
        for _ in range(50):  # the exponent of each share and slope: the slope grows with it
            alphas = (low + high) / 2
            rest = (1 - share) * np.exp(np.minimum(-alphas * middle, 500))
            above = alphas * rest / (share + rest) > slopes
            low, high = np.where(above, low, alphas), np.where(above, alphas, high)
        curves = np.exp(np.minimum(-alphas[..., None] * self.x, 500))
        turned = np.log(share[..., None] + (1 - share[..., None]) * curves) @ self.vectors  # (shares, slopes, m)
        one, target = self.vectors.sum(axis=0), self.vectors.T @ self.values
        weight = 1 / (self.variances + tau2[:, None])  # (scatters, m)
        off = target - turned
        level = np.einsum("tm,ism->ist", weight * one, off) / (weight @ one**2)
        left = off[:, :, None] - level[..., None] * one  # (shares, slopes, scatters, m)
        deviance = np.einsum("tm,istm->ist", weight, left**2) - np.log(weight / (2 * np.pi)).sum(axis=1)
        at = np.clip(deviance.argmin(axis=1), 1, _SLOPES - 2)[:, None]
        before, here, after = (np.take_along_axis(deviance, at + i, axis=1)[:, 0] for i in (-1, 0, 1))
        bend = np.maximum(before - 2 * here + after, 1e-12)
        over = (here - bend * np.clip((before - after) / (2 * bend), -1, 1) ** 2 / 2).min(axis=1)
        best = [np.unravel_index(int(d.argmin()), d.shape) for d in deviance]
        tops = np.array([float(level[i, *place]) for i, place in enumerate(best)])
        nearest = int(over.argmin())
        return over, tops, float(alphas[nearest, best[nearest][0]])

    def broken(self) -> list[tuple[float, FloatArray, float]]:
        """`best` of M2 from several starts; its parameters are both exponents, ln of the break's S, and tau^2."""
        inside, alpha = np.sort(self.x), -self.line[0]

        def shape(p: FloatArray) -> FloatArray:
            above = _BREAK_WIDTH * np.logaddexp(0, (self.x - p[2]) / _BREAK_WIDTH)  # 0 below the break
            return np.asarray(-p[0] * self.x - (p[1] - p[0]) * above)

        bounds = [(-50.0, 50.0), (-50.0, 50.0), (float(inside[1]), float(inside[-2]))]
        return [self.best(shape, [alpha, alpha, at], bounds) for at in np.linspace(inside[2], inside[-3], 5)]

    def fit(self, form: str, found: tuple[float, FloatArray, float]) -> FormFit:
        """What `best` found as a fit with its AICc."""
        deviance, parameters, level = found
        free, m = {"M0": 3, "M1": 4, "M2": 5}[form], len(self.x)  # tau and the level among them
        aicc = deviance + 2 * free + 2 * free * (free + 1) / (m - free - 1) if m > free + 1 else float("inf")
        share = float(parameters[0]) if form == "M1" else float("nan")
        alpha, tau = float(parameters[int(form == "M1")]), float(np.sqrt(parameters[-1]))
        return FormFit(form, alpha, tau, -deviance / 2, aicc, share * float(np.exp(level)), share)


@dataclass(frozen=True)
class Forms:
    """The forms that m sizes allow, and what they say of a floor.

    Attributes:
        fits: M0 first.
        share_low: lower end of the 95% profile-likelihood interval of E / y at the largest size; NaN below the gate.
        share_high: upper end.
        e_low: lower end of E's interval, in y's unit.
        e_high: upper end.

    """

    fits: tuple[FormFit, ...]
    share_low: float = float("nan")
    share_high: float = float("nan")
    e_low: float = float("nan")
    e_high: float = float("nan")

    @property
    def broken(self) -> bool:
        """Whether a broken law is preferred: its starts agree, and AICc is lower by more than 2."""
        last = self.fits[-1]
        return last.form == "M2" and last.agreed and min(f.aicc for f in self.fits[:-1]) - last.aicc > _DECISIVE


def fit_forms(s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> Forms:
    """Fit every form that m sizes allow; M1 and its interval from the profile over E / y at the largest size.

    Source: profile likelihood (Venzon and Moolgavkar, Applied Statistics 37, 1988), with the ratio that is exact for a
    linear model whose variance is not known.

    Args:
        s: sizes S, (m,).
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m).

    """
    points = Points.of(s, y, covariance)
    m = len(points.x)
    plain = points.best(lambda p: -p[0] * points.x, [-points.line[0]], [(-50.0, 50.0)])
    fits = [points.fit("M0", plain)]
    if points.line[0] >= 0 or m < GATES["M1"]:
        return Forms(tuple(fits))
    shares = SHARES
    over, tops, alpha = points.profile(shares)
    critical = m * float(np.log1p(stats.t.ppf(0.975, m - 3) ** 2 / (m - 3)))
    inside = np.flatnonzero(over <= over.min() + critical)
    if inside[-1] - inside[0] < _FEW:  # too coarse for so short an interval
        shares = np.linspace(shares[max(inside[0] - 1, 0)], shares[min(inside[-1] + 1, len(shares) - 1)], len(shares))
        over, tops, alpha = points.profile(shares)
    nearest = int(over.argmin())
    low, high = _ends(shares, over - over.min() - critical)
    fits.append(points.fit("M1", points.with_floor((float(shares[nearest]), alpha))))
    top = float(np.exp(tops[nearest]))
    if m >= GATES["M2"]:
        starts = points.broken()
        best = min(starts, key=lambda one: one[0])
        same = [p for deviance, p, _ in starts if deviance < best[0] + 2 * _SAME_FIT]
        agreed = len(same) >= 2 and bool(np.ptp([p[2] for p in same]) < 0.02 * np.ptp(points.x))
        fits.append(FormFit(**{**vars(points.fit("M2", best)), "agreed": agreed}))
    return Forms(tuple(fits), low, high, low * top, high * top)


def _ends(grid: FloatArray, excess: FloatArray) -> tuple[float, float]:
    """Where excess crosses 0 on either side of where it is below, by linear interpolation; the grid's ends if never."""
    inside = np.flatnonzero(excess <= 0)
    first, last = int(inside[0]), int(inside[-1])
    low, high = float(grid[first]), float(grid[last])
    if first > 0:
        low = float(np.interp(0.0, [excess[first], excess[first - 1]], [grid[first], grid[first - 1]]))
    if last < len(grid) - 1:
        high = float(np.interp(0.0, [excess[last], excess[last + 1]], [grid[last], grid[last + 1]]))
    return low, 1.0 if high >= SHARES[-1] else high
