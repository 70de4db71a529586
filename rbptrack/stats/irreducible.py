"""Does a law flatten? Tests and intervals for an irreducible term.

    M0   y = A S^-alpha
    M1   y = E + A S^-alpha, E >= 0

With few sizes the two differ little inside the range and much beyond it. Everything here is read from one likelihood of
M1, profiled over a grid: phi = E / y at the largest size (the irreducible share there), the law's slope in the middle,
the scatter tau between models, and the level in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import stats

from rbptrack.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats.power_law import fit_power_law

SHARES = np.concatenate([[0.0, 0.01, 0.025], np.linspace(0.05, 0.95, 19), [0.975, 0.99]])
"""Irreducible shares phi of the grid."""

_SLOPES = 23  # per share
_REACH = 7.0  # standard errors of the slope that the grid spans, each way
_SCATTERS = 9
_ENOUGH = 30  # exceedances after which a p-value needs no more draws (Besag and Clifford 1991)
_FEW = 8  # shares inside an interval: below, a finer grid is laid over it
REPLICATES = 399


@dataclass(frozen=True)
class Irreducible:
    """What the points say of an irreducible term.

    Attributes:
        p: of E = 0, from a parametric bootstrap under M0.
        share: most likely E / y at the largest size.
        share_low: lower end of its profile-likelihood interval.
        share_high: upper end.
        e: most likely E, in y's unit.
        e_low: lower end of its interval.
        e_high: upper end.
        alpha: exponent of A S^-alpha at the most likely E.
        margin: the share that counts as none.
        size: level of the test.

    """

    p: float
    share: float
    share_low: float
    share_high: float
    e: float
    e_low: float
    e_high: float
    alpha: float
    margin: float
    size: float

    @property
    def verdict(self) -> str:
        """`supported` (E > 0 at `size`), `rejected` (any share above `margin` is), or `undecided`."""
        if self.p < self.size:
            return "supported"
        return "rejected" if self.share_high <= self.margin else "undecided"


@dataclass(frozen=True)
class Profile:
    """Minus twice the log-likelihood of M1 over a grid, for one family and metric.

    Attributes:
        x: ln S - ln of the largest S, (m,), the largest 0.
        values: ln y, (m,).
        spectrum: eigenvalues of the sampling covariance of ln y, (m,), and its eigenvectors, (m, m).
        slopes: slopes in the middle of the range, (slopes,), positive.
        tau2: scatter variances, (scatters,).
        shares: irreducible shares phi, (shares,), ascending.

    """

    x: FloatArray
    values: FloatArray
    spectrum: tuple[FloatArray, FloatArray]
    slopes: FloatArray
    tau2: FloatArray
    shares: FloatArray

    @classmethod
    def of(cls, s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> Profile:
        """The grid around the points.

        Args:
            s: sizes S, (m,), m >= 4.
            y: positive values, (m,).
            covariance: sampling covariance of ln y, (m, m).

        Raises:
            RbptrackError: fewer than 4 points.

        """
        logs, values = np.log(np.asarray(s, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
        if len(logs) < 4:
            raise RbptrackError(f"an irreducible term needs at least 4 sizes; got {len(logs)}")
        law = fit_power_law(s, y, covariance=covariance)
        spread = max(law.se, 1e-6, 0.002 * abs(law.alpha))
        slopes = np.linspace(max(law.alpha - _REACH * spread, 1e-6), max(law.alpha, 1e-6) + _REACH * spread, _SLOPES)
        residual = float(np.var(values - np.polyval(np.polyfit(logs, values, 1), logs))) + 1e-14
        floor = max(1e-3 * residual, 1e-14)
        tau2 = np.concatenate([[1e-3 * floor], np.geomspace(floor, 6 * residual, _SCATTERS - 1)])
        eigenvalues, vectors = np.linalg.eigh(np.asarray(covariance, dtype=np.float64))
        return cls(logs - logs.max(), values, (np.clip(eigenvalues, 0, None), vectors), slopes, tau2, SHARES)

    @cached_property
    def alphas(self) -> FloatArray:
        """The exponent alpha of each share and slope, (shares, slopes).

        slope = alpha (1 - phi) r / (phi + (1 - phi) r) with r = exp(-alpha x) at the middle of the range, solved for
        alpha by bisection: the right side grows with alpha.
        """
        middle = float(self.x.mean())
        low, high = np.zeros((len(self.shares), len(self.slopes))), np.full((len(self.shares), len(self.slopes)), 50.0)
        phi = self.shares[:, None]
        for _ in range(50):
            alpha = (low + high) / 2
            rest = (1 - phi) * np.exp(np.minimum(-alpha * middle, 500))
            above = alpha * rest / (phi + rest) > self.slopes
            low, high = np.where(above, low, alpha), np.where(above, alpha, high)
        return np.asarray((low + high) / 2)

    def shape(self, x: FloatArray) -> FloatArray:
        """Value of ln y less that at the largest size, (shares, slopes, len(x)), at x = ln S - ln S_largest."""
        phi = self.shares[:, None, None]
        return np.asarray(np.log(phi + (1 - phi) * np.exp(np.minimum(-self.alphas[..., None] * x, 500))))

    def levels(self, draws: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The profile for each draw of ln y.

        Args:
            draws: (draws, m).

        Returns:
            Minus twice the log-likelihood, (draws, shares, slopes, scatters), and ln y at the largest size there.

        """
        eigenvalues, vectors = self.spectrum
        shape = self.shape(self.x) @ vectors  # (shares, slopes, m)
        flat, turned, one = shape.reshape(-1, shape.shape[-1]), draws @ vectors, vectors.sum(axis=0)
        deviance = np.empty((len(draws), len(flat), len(self.tau2)))
        level = np.empty_like(deviance)
        for t, tau2 in enumerate(self.tau2):
            weight = 1 / (eigenvalues + tau2)
            mass = float(weight @ one**2)
            a, b = turned @ (weight * one) / mass, flat @ (weight * one) / mass  # weighted means
            centred, target = flat - b[:, None] * one, turned - a[:, None] * one
            square = ((target**2) @ weight)[:, None] + ((centred**2) @ weight)[None, :]
            deviance[:, :, t] = square - 2 * (target * weight) @ centred.T - np.log(weight).sum()
            level[:, :, t] = a[:, None] - b[None, :]
        grid = (len(draws), *shape.shape[:2], len(self.tau2))
        return deviance.reshape(grid), level.reshape(grid)

    @cached_property
    def own(self) -> tuple[FloatArray, FloatArray]:
        """`levels` of the points themselves, (shares, slopes, scatters) each."""
        deviance, level = self.levels(self.values[None])
        return deviance[0], level[0]

    def over_shares(self, deviance: FloatArray) -> FloatArray:
        """The profile over phi, (..., shares), with a parabola through the best slope of each share and scatter."""
        best = np.clip(deviance.argmin(axis=-2), 1, deviance.shape[-2] - 2)[..., None, :]
        left, middle, right = (np.take_along_axis(deviance, best + i, axis=-2)[..., 0, :] for i in (-1, 0, 1))
        bend = np.maximum(left - 2 * middle + right, 1e-12)
        shift = np.clip((left - right) / (2 * bend), -1, 1)
        lowest = middle - bend * shift**2 / 2
        return np.asarray(lowest.min(axis=-1))

    @property
    def critical(self) -> float:
        """The likelihood ratio of a 95% profile interval: exact for a linear model whose variance is not known."""
        m = len(self.x)
        return m * float(np.log1p(stats.t.ppf(0.975, m - 3) ** 2 / (m - 3)))


def irreducible_term(
    s: npt.ArrayLike,
    y: npt.ArrayLike,
    covariance: FloatArray,
    *,
    margin: float = 0.1,
    size: float = 0.05,
    replicates: int = REPLICATES,
    seed: int = 20251020,
) -> Irreducible:
    """Test E = 0 against E > 0 and give E's interval.

    The p-value is the share of families drawn under M0 (its fitted exponent, scatter by REML, the sampling covariance)
    whose likelihood ratio is at least as large: the ratio's distribution at the boundary E = 0 is far from
    half chi2_0, half chi2_1 at 6 to 10 sizes with a scatter that is itself estimated.

    Source: a likelihood ratio at a boundary (Self and Liang, JASA 82, 1987), its distribution simulated; draws stop
    by Besag and Clifford, Biometrika 78, 1991.

    Args:
        s: sizes S, (m,), m >= 4.
        y: positive values, (m,).
        covariance: sampling covariance of ln y, (m, m).
        margin: share of y at the largest size that counts as no irreducible term.
        size: level of the test.
        replicates: families drawn under M0.
        seed: of the draws.

    """
    profile = Profile.of(s, y, covariance)
    deviance, level = profile.own
    over = profile.over_shares(deviance)
    ratio = max(0.0, float(over[0] - over.min()))
    p = 1.0
    if ratio > 1e-6:
        law = fit_power_law(s, y, covariance=covariance)
        logs = np.log(np.asarray(s, dtype=np.float64))
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal((replicates, len(logs)))
        eigenvalues, vectors = profile.spectrum
        drawn = np.log(law.predict(s)) + (noise * np.sqrt(eigenvalues + law.tau**2)) @ vectors.T
        above = seen = 0
        for part in np.array_split(drawn, max(1, replicates // 40)):  # a few megabytes at a time
            found = profile.over_shares(profile.levels(part)[0])
            above += int(np.count_nonzero(found[:, 0] - found.min(axis=1) >= ratio))
            seen += len(part)
            if above >= _ENOUGH:
                break
        p = above / seen if above >= _ENOUGH else (1 + above) / (seen + 1)
    profile = _refined(profile, over <= over.min() + profile.critical)
    deviance, level = profile.own
    over = profile.over_shares(deviance)
    best = int(over.argmin())
    inside = over <= over.min() + profile.critical
    low, high = _ends(profile.shares, over - over.min() - profile.critical, inside)
    slope, scatter = np.unravel_index(int(deviance[best].argmin()), deviance[best].shape)
    top = float(np.exp(level[best, slope, scatter]))
    alpha = float(profile.alphas[best, slope])
    share = float(profile.shares[best])
    return Irreducible(p, share, low, high, share * top, low * top, high * top, alpha, margin, size)


def _refined(profile: Profile, inside: FloatArray) -> Profile:
    """The profile on shares that lie closer together, where few of the grid's are inside the interval."""
    first, last = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1])
    if last - first >= _FEW:
        return profile
    low, high = profile.shares[max(first - 1, 0)], profile.shares[min(last + 1, len(profile.shares) - 1)]
    return replace(profile, shares=np.linspace(low, high, len(profile.shares)))


def _ends(grid: FloatArray, excess: FloatArray, inside: FloatArray) -> tuple[float, float]:
    """Where excess crosses 0 on either side of the region inside, by linear interpolation; the grid's ends if never."""
    first, last = int(np.flatnonzero(inside)[0]), int(np.flatnonzero(inside)[-1])
    low, high = float(grid[first]), float(grid[last])
    if first > 0:
        low = float(np.interp(0.0, [excess[first], excess[first - 1]], [grid[first], grid[first - 1]]))
    if last < len(grid) - 1:
        high = float(np.interp(0.0, [excess[last], excess[last + 1]], [grid[last], grid[last + 1]]))
    return low, 1.0 if high >= SHARES[-1] else high
