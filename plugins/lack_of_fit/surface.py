"""The joint surface of a family in size and k, with one covariance over both.

    ln y_ik = a_k - alpha_k x_i + q_k c(x_i) + e_ik,   y = -ln RBP_k, x = ln S

c is the part of x^2 that no line explains, scaled to a largest absolute value of 1 over the sizes measured: q_k is then
the curve's largest departure from a straight line within the range, in ln y (0.05 is 5%), positive where the law
flattens. A power law at every k is q = 0 for all k: one hypothesis, tested once.

The errors are those of the paired document bootstrap, over sizes and k together, and scatter between models whose
standard deviation is proportional to alpha_k (a model that behaves like a slightly larger or smaller one). That it is
common to all k gives the test power at small k: where each k had its own, a systematic bend would be taken for scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from rbptrack.analysis import RbptrackError
from rbptrack.ranks import FloatArray
from rbptrack.stats import linear

from .bends import curved, kept_without_ends, smallest_floor

_DRAWS = 8000  # of the largest deviation over k
_LENGTH = float(np.log(10))  # ln k over which scatter keeps a correlation of 1/e


@dataclass(frozen=True)
class Limit:
    """k*: where the departure from a power law reaches a margin, with certain values on either side.

    Attributes:
        margin: departure in ln y.
        k: largest k up to which the estimated departure stays within the margin.
        shown: largest k up to which the interval of the departure lies within the margin; 0 if at no k.
        exceeded: smallest k at which it lies beyond; 0 where at none.

    """

    margin: float
    k: int
    shown: int
    exceeded: int


@dataclass(frozen=True)
class Surface:
    """What `fit_surface` found; arrays are (K,) over `ks`.

    Attributes:
        ks: the k fitted, ascending.
        alpha: exponent at each k, least squares.
        alpha_se: its standard error.
        bend: q_k, departure from a line in ln y.
        bend_se: its standard error.
        sigma: scatter between models in ln S.
        tau: scatter between models in ln y at each k.
        fit: minus twice the restricted log-likelihood where scatter is proportional to alpha, and where it is equal at
            all k, over the k as if independent.
        alpha_correlation: of the errors of alpha, (K, K).
        bend_correlation: of the errors of bend, (K, K).
        freedom: degrees of freedom of the t distributions of alpha and of bend.
        offset: by how much each model is ahead of the line, as ln of a factor in S, (m,).
        kept: the least share of the clearest bend that is left without either end size (`kept_without_ends`).
        level: nominal coverage of band and k*.

    """

    ks: npt.NDArray[np.int_]
    alpha: FloatArray
    alpha_se: FloatArray
    bend: FloatArray
    bend_se: FloatArray
    sigma: float
    tau: FloatArray
    fit: dict[str, float]
    alpha_correlation: FloatArray
    bend_correlation: FloatArray
    freedom: tuple[float, float]
    offset: FloatArray
    kept: float
    level: float

    @cached_property
    def _largest(self) -> tuple[FloatArray, FloatArray]:
        """Draws of the largest |t| over k, of alpha and of bend, (draws,) each, sorted."""
        normal = _normal(len(self.ks))
        largest = []
        for correlation, freedom in zip((self.alpha_correlation, self.bend_correlation), self.freedom, strict=True):
            scale = np.sqrt(np.random.default_rng(20251020).chisquare(freedom, _DRAWS) / freedom)
            values, vectors = np.linalg.eigh(correlation)
            root = vectors * np.sqrt(np.clip(values, 0, None))
            largest.append(np.sort(np.abs(normal @ root.T).max(axis=1) / scale))
        return largest[0], largest[1]

    @property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """Ends of a band that holds alpha at every k together with probability `level`."""
        half = float(np.quantile(self._largest[0], self.level)) * self.alpha_se
        return self.alpha - half, self.alpha + half

    @property
    def p(self) -> float:
        """Of the one lack-of-fit test: no k departs from a power law."""
        largest = float((np.abs(self.bend) / np.maximum(self.bend_se, 1e-300)).max())
        above = _DRAWS - int(np.searchsorted(self._largest[1], largest, side="left"))
        return (above + 1) / (_DRAWS + 1)

    @property
    def bend_band(self) -> tuple[FloatArray, FloatArray]:
        """Ends of the simultaneous band of the departure."""
        half = float(np.quantile(self._largest[1], self.level)) * self.bend_se
        return self.bend - half, self.bend + half

    @property
    def better_scatter(self) -> str:
        """The rule of scatter that fits better."""
        return min(self.fit, key=lambda rule: self.fit[rule])

    def floor_seen(self, s: npt.ArrayLike, *, cases: int = 1, power: float = 0.8) -> float:
        """Return smallest floor, as a share of y at the largest size at every k, that the test would find; NaN: none
        would.
        """
        critical = float(np.quantile(self._largest[1], 1 - (1 - self.level) / cases))
        about = {"critical": critical, "freedom": self.freedom[1], "power": power}
        return smallest_floor(np.log(np.asarray(s, dtype=np.float64)), self.alpha, self.bend_se, **about)

    def limit(self, margin: float = 0.05) -> Limit:
        """Return k* for a margin; both certain ends hold together with probability `level`, because the band does."""
        low, high = self.bend_band
        within = np.abs(self.bend) <= margin
        shown = np.maximum(np.abs(low), np.abs(high)) <= margin
        beyond = (low > margin) | (high < -margin)

        k, certain = (largest_k_without_gap(self.ks, held) for held in (within, shown))
        return Limit(margin, k, certain, int(self.ks[np.argmax(beyond)]) if beyond.any() else 0)


def largest_k_without_gap(ks: npt.ArrayLike, visible: npt.ArrayLike) -> int:
    """Return the largest k at which, and at every smaller k, a law is visible; 0 where it is not visible at the
    smallest.

    Source: arXiv 2510.20387, section 4.3, asks up to which k the law holds.
    """
    seen = np.append(np.asarray(visible, dtype=bool), False)
    length = int(np.argmin(seen))
    return int(np.asarray(ks)[length - 1]) if length else 0


def fit_surface(
    s: npt.ArrayLike,
    ks: npt.ArrayLike,
    y: npt.ArrayLike,
    draws: FloatArray,
    *,
    documents: float = np.inf,
    level: float = 0.95,
) -> Surface:
    """Fit lines with a bend at every k, with one covariance over sizes and k.

    Estimates are least squares at each k (no covariance of many k is inverted: with few documents it has no inverse);
    their errors are the bootstrap's and the scatter's together. Scatter is read off the residuals of the sizes that
    decide (`linear.deciding`), and the bend has their degrees of freedom whatever part of its error is scatter's: the
    test holds also where the end sizes scatter 3.6 times as much as the others, and where half of the scatter is
    independent over k.

    Source: generalised least squares of the module's model, an extension of arXiv 2510.20387 to all k at once.

    Args:
        s: sizes S, (m,), m >= 5.
        ks: the k, (K,).
        y: -ln RBP_k, (m, K), positive.
        draws: document bootstraps of y, the same documents for all sizes and k, (m, replicates, K).
        documents: as how many equal ones the documents count (`worth` of the roots of their lengths): few vary by more
            than their bootstrap (n/(n - 1)), and the errors that they give are themselves uncertain (n - 1 degrees of
            freedom, joined with the scatter's as Satterthwaite, Biometrics Bulletin 2, 1946).
        level: nominal coverage.

    Raises:
        RbptrackError: fewer than 5 sizes, or values that are not positive.

    """
    x = np.log(np.asarray(s, dtype=np.float64))
    k = np.asarray(ks, dtype=np.int64)
    values = np.asarray(y, dtype=np.float64)
    replicates = np.asarray(draws, dtype=np.float64)
    m = len(x)
    if m < 5:
        raise RbptrackError(f"a surface needs at least 5 sizes; got {m}")
    if not ((values > 0).all() and np.isfinite(values).all() and (replicates > 0).all()):
        raise RbptrackError("a surface needs positive, finite values")
    logs = np.log(values)
    noise = np.log(replicates)
    n = max(documents, 2.0)
    few = 1.0 if np.isinf(n) else n / (n - 1)
    noise = (noise - noise.mean(axis=1, keepdims=True)) * np.sqrt(few / (replicates.shape[1] - 1))  # (m, replicates, K)
    line = linear.centred(x)
    _, slope, bend = linear.inverse(curved(x))
    free = linear.free_of(curved(x))
    alpha = -slope @ logs
    size = np.abs(alpha)
    rest, sampling = free @ logs, np.einsum("fm,mbk->fbk", free, noise)  # neither line nor bend
    shared = np.sum(sampling**2, axis=(0, 1)) / (m - 3)
    fit = {}
    for rule, of_rule in (("proportional", size), ("equal", np.ones(len(k)))):
        own, _, scattered = _scatter(rest, sampling, np.eye(m - 3) / (m - 3), of_rule)
        variance = shared + scattered**2 + 1e-16
        fit[rule] = float(np.sum((m - 3) * (np.log(variance) + own / variance)))
    tau = _scatter(rest, sampling, np.eye(m - 3) / (m - 3), size)[2]
    gap = np.abs(np.log(k)[:, None] - np.log(k)[None, :])
    covariances = []
    freedoms = []
    for weights in (slope, bend):
        share = float(weights @ weights)
        drawn = np.einsum("m,mbk->bk", weights, noise)
        form = linear.deciding(weights, free) / share
        _, freedom, scattered = _scatter(rest, sampling, form, size)
        scattering = share * np.outer(scattered, scattered) * np.exp(-gap / _LENGTH)
        covariances.append(drawn.T @ drawn + scattering)
        part = float(np.median(np.diag(scattering) / np.maximum(np.diag(covariances[-1]), 1e-30)))  # of the variance
        freedoms.append((1 / (max(part**2, 1e-2) / freedom + (1 - part) ** 2 / (n - 1)), min(freedom, n - 1)))
    errors = [np.sqrt(np.maximum(np.diag(c), 1e-30)) for c in covariances]
    weight = alpha**2 / (shared + tau**2 + 1e-16)
    residual = linear.least_squares(line, logs)[1]
    offset = -(residual / np.where(np.abs(alpha) > 1e-9, alpha, np.inf)) @ weight / max(float(weight.sum()), 1e-300)
    return Surface(
        ks=k,
        alpha=alpha,
        alpha_se=errors[0],
        bend=bend @ logs,
        bend_se=errors[1],
        sigma=float(tau[0] / size[0]),
        tau=tau,
        fit=fit,
        alpha_correlation=covariances[0] / np.outer(errors[0], errors[0]),
        bend_correlation=covariances[1] / np.outer(errors[1], errors[1]),
        freedom=(freedoms[0][0], freedoms[1][1]),  # end sizes that scatter more look like sampling error to the rest
        kept=kept_without_ends(x, logs[:, int(np.argmax(np.abs(bend @ logs) / errors[1]))]),
        offset=offset,
        level=level,
    )


@lru_cache(maxsize=2)  # every surface of a report has the same k
def _normal(count: int) -> FloatArray:
    """Return standard normal numbers, (draws, count)."""
    return np.random.default_rng(20251021).standard_normal((_DRAWS, count))


def _scatter(
    rest: FloatArray, sampling: FloatArray, form: FloatArray, size: FloatArray
) -> tuple[FloatArray, float, FloatArray]:
    """Return scatter between models at each k, in ln y, from what neither line nor bend explains.

    Of few residuals the mean square is too small in most draws; raised by f / (median of chi^2_f) it is so in half.

    Args:
        rest: (m - 3, K).
        sampling: of each replicate, (m - 3, replicates, K).
        form: the quadratic form of rest that estimates a variance, of trace 1.
        size: what scatter is in proportion to at each k, (K,).

    Returns:
        The mean square at each k, (K,), its degrees of freedom, and the scatter, (K,).

    """
    freedom = float(linear.freedom_of(form, np.eye(len(form))))
    own = np.einsum("fk,fg,gk->k", rest, form, rest)
    shared = np.einsum("fbk,fg,gbk->k", sampling, form, sampling, optimize=True)
    unbiased = own * freedom / special.chdtri(freedom, 0.5)
    return own, freedom, np.sqrt(_common(unbiased, shared, size)) * size


def _common(own: FloatArray, shared: FloatArray, size: FloatArray) -> float:
    """Return sigma^2 of own = shared + sigma^2 size^2: a mean over k, each weighted by how much it can say of it."""
    size2 = np.maximum(size**2, 1e-16)
    sigma2 = float(np.median(np.maximum(own - shared, 0) / size2))
    for _ in range(20):
        weight = 1 / (sigma2 + shared / size2 + 1e-16) ** 2
        sigma2 = max(0.0, float(weight @ ((own - shared) / size2)) / float(weight.sum()))
    return sigma2
