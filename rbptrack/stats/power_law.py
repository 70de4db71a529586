"""Power laws over few sizes: fits with honest intervals, their diagnostics, and pooling across families."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from rbptrack.errors import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats.spread import Spread, centred, line_spread


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
        tau: standard deviation between models (seed, recipe) beyond sampling error, in ln y; by REML.
        spread: the error of alpha: sampling error, and scatter between models.
        s: the sizes fitted, (m,).
        y: the values fitted, (m,).
        covariance: sampling covariance of ln y that was given, (m, m); zeros where it was not known.

    """

    alpha: float
    log_a: float
    low: float
    high: float
    level: float
    r2: float
    tau: float
    spread: Spread
    s: FloatArray
    y: FloatArray
    covariance: FloatArray

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

    def spread_at(self, s: float, *, models: int = 0) -> Spread:
        """The error of the law's ln y at size s, and with it the scatter of so many more models' mean (0: none)."""
        x = np.log(self.s)
        return line_spread(np.array([1.0, np.log(s) - x.mean()]), x, np.log(self.y), self.covariance, models=models)

    def forecast(self, s: float) -> tuple[float, float, float]:
        """Predict y of one more model of size s, with the ends of its interval: the law's uncertainty and scatter.

        It holds if the law holds there: nothing in the data vouches for sizes beyond the largest.
        """
        half = self.spread_at(s, models=1).half(self.level)
        y = float(self.predict(s))
        return y, y * float(np.exp(-half)), y * float(np.exp(half))


def fit_power_law(
    s: npt.ArrayLike, y: npt.ArrayLike, *, covariance: FloatArray | None = None, level: float = 0.95
) -> PowerLawFit:
    """Fit y = A * S**-alpha with an interval that covers scatter between models and sampling error.

    The point estimate is ordinary least squares on (ln S, ln y): what the paper (arXiv 2510.20387) reports, and equal
    to `scipy.stats.linregress`. Its error is taken under Cov(e) = covariance + tau^2 I: what the covariance says of the
    slope is known, scatter is estimated from m - 2 residuals (`Spread`; without a covariance it is the textbook's t
    interval). Token error alone is far too narrow (coverage 9-32% at a nominal 95%).

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
    design = centred(x)
    logs = np.log(target)
    intercept, slope = np.linalg.pinv(design) @ logs
    residual = logs - design @ (intercept, slope)
    total = float(((logs - logs.mean()) ** 2).sum())
    sampling = np.zeros((m, m)) if covariance is None else np.asarray(covariance)
    spread = line_spread(np.array([0.0, 1.0]), x, logs, sampling)
    alpha, half = -float(slope), spread.half(level)
    return PowerLawFit(
        alpha=alpha,
        log_a=float(intercept + alpha * x.mean()),
        low=alpha - half,
        high=alpha + half,
        level=level,
        r2=1 - float(residual @ residual) / total if total > 0 else float("nan"),
        tau=float(np.sqrt(_reml(sampling, design, logs))),
        spread=spread,
        s=sizes,
        y=target,
        covariance=sampling,
    )


def _reml(sampling: FloatArray, design: FloatArray, logs: FloatArray) -> float:
    """tau^2 that maximises the restricted likelihood of logs ~ N(design b, sampling + tau^2 I)."""
    m, parameters = design.shape
    ols = logs - design @ (np.linalg.pinv(design) @ logs)
    spread: float = float(ols @ ols) / (m - int(parameters))
    if spread <= 1e-28:
        return 0.0
    if not sampling.any():
        return spread  # the restricted maximum in closed form: the unbiased residual variance

    # Contrasts free of the design: the restricted likelihood is the likelihood of these m - 2 numbers.
    contrasts = np.linalg.svd(design)[0][:, parameters:].T  # (m - 2, m)
    z, noise = contrasts @ logs, contrasts @ sampling @ contrasts.T
    values, vectors = np.linalg.eigh(noise)
    values, z2 = np.clip(values, 0, None), (vectors.T @ z) ** 2

    # One minimum between the ends: a grid over ln tau^2, then three finer ones around the best point.
    low, high = np.log(spread) - 16, np.log(spread) + 4
    for points in (81, 21, 21, 21):
        grid = np.linspace(low, high, points)
        variance = values + np.exp(grid)[:, None]  # (points, m - 2)
        best = int(np.argmin((np.log(variance) + z2 / variance).sum(axis=1)))
        if best == 0 and points == 81:
            return 0.0
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, points - 1)]
    return float(np.exp(grid[best]))


def lack_of_fit(s: npt.ArrayLike, y: npt.ArrayLike, covariance: FloatArray) -> tuple[float, float]:
    """Chi^2 (m - 2 degrees of freedom) of a power law under a noise of known covariance (m, m) of ln y, and its p.

    Source: the generalised least-squares test of residual heterogeneity (Cochran, Biometrics 10, 1954).
    """
    x, logs = np.log(np.asarray(s, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    contrasts = np.linalg.svd(np.column_stack([np.ones(len(x)), x - x.mean()]))[0][:, 2:].T  # free of any line
    z = contrasts @ logs
    chi2 = float(z @ np.linalg.pinv(contrasts @ covariance @ contrasts.T) @ z)
    return chi2, float(stats.chi2.sf(chi2, len(z)))


def leave_largest_out(s: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Relative error (predicted / measured - 1) at the largest size of the law fitted to all smaller ones.

    NaN where fewer than 3 points remain.

    Source: extrapolation by one size, as a scaling law is used (arXiv 2510.20387).
    """
    sizes, values = np.asarray(s, dtype=np.float64), np.asarray(y, dtype=np.float64)
    largest = sizes == sizes.max()
    if (~largest).sum() < 3:
        return float("nan")
    fit = fit_power_law(sizes[~largest], values[~largest])
    return float(fit.predict(sizes.max()) / values[largest].mean() - 1)


def without_each(s: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
    """The exponent without each point in turn, (m,): how much one model decides. NaN where 3 do not remain.

    Source: deletion diagnostics of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    sizes, values = np.asarray(s, dtype=np.float64), np.asarray(y, dtype=np.float64)
    m = len(sizes)
    if m < 4:
        return np.full(m, np.nan)
    kept = [np.arange(m) != i for i in range(m)]
    return np.array([-np.polyfit(np.log(sizes[k]), np.log(values[k]), 1)[0] for k in kept])


@dataclass(frozen=True)
class PointDiagnostics:
    """What each of the m points is to its law, arrays (m,).

    Attributes:
        se_ln_y: sampling error of ln y.
        residual: ln y minus the law's.
        alpha_without: the exponent when the point is left out; NaN where 3 points do not remain.
        influence: alpha - alpha_without, in standard errors of alpha.

    """

    se_ln_y: FloatArray
    residual: FloatArray
    alpha_without: FloatArray
    influence: FloatArray


def point_diagnostics(law: PowerLawFit) -> PointDiagnostics:
    """Residual, and influence on the exponent, of every point of a law.

    Source: deletion diagnostics (DFBETAS) of Belsley, Kuh and Welsch, Regression Diagnostics, 1980, chapter 2.
    """
    without = without_each(law.s, law.y)
    influence = (law.alpha - without) / law.se if law.se > 0 else np.full(law.points, np.nan)
    residual = np.log(law.y) - np.log(law.predict(law.s))
    return PointDiagnostics(np.sqrt(np.diag(law.covariance)), residual, without, influence)


def huber_alpha(s: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The exponent by Huber's loss, which outliers move less: a check beside least squares, not an estimate to report.

    The loss turns linear at 1.345 robust standard deviations (from the median absolute residual).

    Source: Huber, Annals of Mathematical Statistics 35, 1964.
    """
    x, logs = np.log(np.asarray(s, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    x = x - x.mean()
    start = np.polyfit(x, logs, 1)
    residual = logs - np.polyval(start, x)
    scale = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    if scale <= 1e-12:
        return -float(start[0])
    found = optimize.least_squares(  # the sum of losses: a mean would stop it early
        lambda p: (logs - np.polyval(p, x)) / scale, start, loss="huber", f_scale=1.345, xtol=1e-12, ftol=1e-12
    )
    return -float(found.x[0])


@dataclass(frozen=True)
class Pooled:
    """Several families' exponents taken together, each of them a draw around a common mean.

    Attributes:
        mean: of the exponents.
        low: lower end of the mean's interval.
        high: upper end.
        between: standard deviation between families, by REML.
        shrunk: each exponent, drawn towards the mean by as much as it is uncertain, (families,).

    """

    mean: float
    low: float
    high: float
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
    found, errors = np.asarray(estimates, dtype=np.float64), np.asarray(se, dtype=np.float64)
    n = len(found)
    if n < 3:
        raise RbptrackError(f"pooling needs at least 3 families; got {n}")
    covariance = np.diag(errors**2) if shared is None else np.where(np.eye(n, dtype=bool), errors**2, shared)
    between2 = _reml(covariance, np.ones((n, 1)), found)
    whole = covariance + max(between2, 1e-300) * np.eye(n)
    weight = 1 / np.diag(whole)  # not the inverse of the whole: strongly correlated errors make its weights negative
    weight = weight / weight.sum()
    mean = float(weight @ found)
    deviation = np.eye(n) - weight  # found - mean = deviation @ found
    expected = float(np.sum(weight * np.diag(deviation @ whole @ deviation.T)))
    scale = max(1.0, float(weight @ (found - mean) ** 2) / expected) if expected > 0 else 1.0
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * float(np.sqrt(scale * (weight @ whole @ weight)))
    shrunk = mean + between2 * np.linalg.pinv(whole) @ (found - mean)  # best linear unbiased prediction
    return Pooled(mean, mean - half, mean + half, float(np.sqrt(between2)), shrunk)
