"""Candidate distributions of ranks on {1..V}, and exact sums over them at a cost that V hardly moves.

A candidate is a formula for ln P(k). Its normaliser is a sum over 1..V, never an integral. `Support.exact` sums term
by term; `Support.nodes` evaluates the formula at some 250 points only: every k up to 64, then 16 Chebyshev points in
ln k per block [k, 2k), from which the values at all integers between follow by interpolation. For the candidates here,
smooth in ln k, that sum equals the term-by-term one to 1e-9 relative (a test holds it), so fits run on nodes, and every
number that is reported comes from `Support.exact`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from rbptrack.ranks import FloatArray

_EXACT_UP_TO = 64
_NODES_PER_BLOCK = 16


@dataclass(frozen=True)
class Support:
    """Points of {1..V} and weights that stand for the sum over all of it.

    Attributes:
        vocab_size: V.
        x: points k, ascending, not all of them integers, (points,).
        log: ln x, (points,).
        weight: sum over {1..V} of f = weight @ f(x), (points,).
        spread: for k > 64, how much of each node a token of rank k counts for, (V - 64, 16); empty where exact.
        first: for k > 64, the first node of its block, (V - 64,).

    """

    vocab_size: int
    x: FloatArray
    log: FloatArray
    weight: FloatArray
    spread: FloatArray
    first: npt.NDArray[np.int64]

    @classmethod
    def exact(cls, vocab_size: int) -> Support:
        """Return every k of 1..V."""
        return _exact(vocab_size)

    @classmethod
    def nodes(cls, vocab_size: int) -> Support:
        """Return every k up to 64, then Chebyshev points in ln k."""
        return _nodes(vocab_size)

    def log_total(self, log_values: FloatArray) -> FloatArray:
        """Return ln of the sum over {1..V} of exp(log_values), kept as a last axis of 1; log_values is (..., points).

        Not `scipy.special.logsumexp`: it takes 110 us instead of 19 for 50 rows of nodes (V = 50,304), and every step
        of every search comes here, so that the nine candidates' fits would take 58 ms a size instead of 31.
        """
        top = log_values.max(axis=-1, keepdims=True)
        return np.asarray(top + np.log(np.exp(log_values - top) @ self.weight[:, None]))

    def project(self, rank: FloatArray, count: FloatArray) -> FloatArray:
        """Return counts by rank as weights of the points: sum of count * f(rank) = result @ f(x), (points,)."""
        rows = np.zeros(len(rank), dtype=np.int64)
        return np.asarray(self.project_groups(rows, rank, count, groups=1)[0])

    def project_groups(
        self, group: FloatArray, rank: FloatArray, count: FloatArray | None = None, *, groups: int
    ) -> FloatArray:
        """Return the same for each of several groups of tokens (documents): (groups, points); without counts each is
        one.
        """
        points = len(self.x)
        far = rank > points - self.spread_nodes
        near = ~far
        weights = None if count is None else count[near]
        small = np.bincount(group[near] * points + rank[near] - 1, weights=weights, minlength=groups * points)
        cells = small.astype(np.float64).reshape(groups, points)
        if far.any():
            row = rank[far] - _EXACT_UP_TO - 1
            blocks = self.spread_nodes // _NODES_PER_BLOCK
            block = group[far] * blocks + (self.first[row] - _EXACT_UP_TO) // _NODES_PER_BLOCK
            ones = np.ones(len(row)) if count is None else count[far]
            counts = sparse.coo_array((ones, (block, row)), shape=(groups * blocks, len(self.spread)))
            cells[:, _EXACT_UP_TO:] += (counts.tocsr() @ self.spread).reshape(groups, -1)
        return cells

    @property
    def spread_nodes(self) -> int:
        """How many of the points are nodes rather than ranks."""
        return len(self.x) - min(_EXACT_UP_TO, self.vocab_size) if len(self.spread) else 0


@lru_cache(maxsize=4)
def _exact(vocab_size: int) -> Support:
    x = np.arange(1, vocab_size + 1, dtype=np.float64)
    return Support(vocab_size, x, np.log(x), np.ones(vocab_size), np.empty((0, 0)), np.empty(0, dtype=np.int64))


@lru_cache(maxsize=8)
def _nodes(vocab_size: int) -> Support:
    if vocab_size <= _EXACT_UP_TO + 2 * _NODES_PER_BLOCK:
        return _exact(vocab_size)
    points = [np.log(np.arange(1, _EXACT_UP_TO + 1.0))]
    weights = [np.ones(_EXACT_UP_TO)]
    spread = []
    first = []
    angle = (2 * np.arange(_NODES_PER_BLOCK) + 1) * np.pi / (2 * _NODES_PER_BLOCK)
    chebyshev = np.cos(angle)
    barycentric = np.sin(angle) * (-1.0) ** np.arange(_NODES_PER_BLOCK)
    blocks = max(1, int(np.ceil(np.log2(vocab_size / _EXACT_UP_TO) - 0.1)))
    edges = np.unique(np.rint(np.geomspace(_EXACT_UP_TO, vocab_size, blocks + 1)).astype(np.int64))
    for block, (low, high) in enumerate(pairwise(edges)):
        t = np.log(np.arange(low + 1, high + 1.0))
        middle = (t[-1] + t[0]) / 2
        half = (t[-1] - t[0]) / 2
        distance = (t[:, None] - middle) / half - chebyshev
        at_node = np.abs(distance) < 1e-15
        share = barycentric / np.where(at_node, 1.0, distance)
        share /= share.sum(axis=1, keepdims=True)
        share[at_node.any(axis=1)] = at_node[at_node.any(axis=1)]
        points.append(middle + half * chebyshev)
        weights.append(share.sum(axis=0))
        spread.append(share)
        first.append(np.full(len(t), _EXACT_UP_TO + block * _NODES_PER_BLOCK))
    log = np.concatenate(points)
    return Support(vocab_size, np.exp(log), log, np.concatenate(weights), np.concatenate(spread), np.concatenate(first))


def zipf(theta: FloatArray, s: Support) -> FloatArray:
    """Return truncated Zipf law, P(k) ~ k^-beta; theta = (beta)."""
    return _normalised(-theta[..., :1] * s.log, s)


def lognormal(theta: FloatArray, s: Support) -> FloatArray:
    """Return pmf-lognormal `density`, ln P(k) = const - beta ln k - gamma ln^2 k; theta = (beta, gamma).

    The same as psi(k)/Z with ln psi(k) = -ln k - (ln k - mu)^2 / (2 sigma^2) (arXiv 2510.20387, eq. 9), beta = 1 -
    mu/sigma^2 and gamma = 1/(2 sigma^2). gamma = 0 is Zipf's law; gamma < 0 is normalisable on {1..V} but no lognormal.
    """
    return _normalised(-theta[..., :1] * s.log - theta[..., 1:2] * s.log**2, s)


def lognormal_cdfdiff(theta: FloatArray, s: Support) -> FloatArray:
    """Return lognormal by differences of its cdf: P(k) ~ F(k + 1/2) - F(k - 1/2); theta = (beta, ln gamma).

    The cell's integral of exp(-beta t - gamma t^2 + t) over t = ln k is taken by Gauss's rule in natural parameters,
    which stay finite in the power-law limit, where differences of the normal cdf at mu -> -infinity would cancel.
    """
    slope = 1 - theta[..., :1, None]
    gamma = np.exp(theta[..., 1:2, None])
    parts = [
        np.log(np.exp(slope * t - gamma * square) @ weight) + log_width
        for t, square, weight, log_width in _cells(s.vocab_size, len(s.x))
    ]
    centre = slope[..., 0] * s.log - gamma[..., 0] * s.log**2
    return _normalised(centre + np.concatenate(parts, axis=-1), s)


@lru_cache(maxsize=12)
def _cells(vocab_size: int, points: int) -> list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]:
    """Return, for the cells up to 64 and the narrow ones beyond: t - ln k, t^2 - ln^2 k, weights and ln half the
    width.
    """
    s = Support.exact(vocab_size) if points == vocab_size else Support.nodes(vocab_size)
    result = []
    for some, order in ((slice(0, _EXACT_UP_TO), 8), (slice(_EXACT_UP_TO, None), 3)):
        node, weight = np.polynomial.legendre.leggauss(order)
        low = np.log(s.x[some] - 0.5)
        high = np.log(s.x[some] + 0.5)
        t = (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * node  # (points, order)
        log = s.log[some, None]
        result.append((t - log, t**2 - log**2, weight, np.log((high - low) / 2)))
    return result


def zipf_mandelbrot(theta: FloatArray, s: Support) -> FloatArray:
    """Return Zipf-Mandelbrot, P(k) ~ (k - 1 + q)^-a; theta = (a, ln q)."""
    return _normalised(-theta[..., :1] * np.log(s.x - 1 + np.exp(theta[..., 1:2])), s)


def weibull(theta: FloatArray, s: Support) -> FloatArray:
    """Return Weibull (stretched exponential) density, P(k) ~ k^(c-1) exp(-(d/c) k^c); theta = (ln c, ln d).

    d = c / scale^c is used for the scale, because it stays finite as c -> 0, where this is Zipf's law with beta = 1 - c
    + d.
    """
    c = np.exp(theta[..., :1])
    d = np.exp(theta[..., 1:2])
    return _normalised((c - 1) * s.log - d * np.expm1(c * s.log) / c, s)


def negative_binomial(theta: FloatArray, s: Support) -> FloatArray:
    """Return negative binomial of k - 1, P(k) ~ Gamma(k - 1 + r)/Gamma(k) (1 - p)^(k-1); theta = (ln r, logit p)."""
    r = np.exp(theta[..., :1])
    return _normalised(special.gammaln(s.x - 1 + r) - special.gammaln(s.x) - (s.x - 1) * _softplus(theta[..., 1:2]), s)


def point_mass_lognormal(theta: FloatArray, s: Support) -> FloatArray:
    """Return point mass pi at 1 and 1 - pi of a pmf-lognormal; theta = (pi, beta, gamma)."""
    body = lognormal(theta[..., 1:], s)
    with np.errstate(divide="ignore"):
        result = np.log1p(-theta[..., :1]) + body
        result[..., 0] = np.logaddexp(result[..., 0], np.log(theta[..., 0]))
    return result


def two_lognormals(theta: FloatArray, s: Support) -> FloatArray:
    """Share w of one pmf-lognormal, 1 - w of another; theta = (logit w, beta_1, ln gamma_1, beta_2, ln gamma_2)."""
    parts = []
    for first in (1, 3):
        beta = theta[..., first : first + 1]
        gamma = np.exp(theta[..., first + 1 : first + 2])
        parts.append(_normalised(-beta * s.log - gamma * s.log**2, s))
    logit = theta[..., :1]
    return np.asarray(np.logaddexp(parts[0] - _softplus(-logit), parts[1] - _softplus(logit)))


def shifted_cutoff(theta: FloatArray, s: Support) -> FloatArray:
    """Return shifted power law with an exponential cut-off, P(k) ~ (k - 1 + q)^-a e^-bk; theta = (a, ln q, ln b)."""
    shifted = np.log(s.x - 1 + np.exp(theta[..., 1:2]))
    return _normalised(-theta[..., :1] * shifted - np.exp(theta[..., 2:3]) * s.x, s)


def _normalised(log_values: FloatArray, s: Support) -> FloatArray:
    return log_values - s.log_total(log_values)


def _softplus(z: FloatArray) -> FloatArray:
    return np.logaddexp(0.0, z)


@dataclass(frozen=True)
class Candidate:
    """A candidate distribution.

    Attributes:
        name: as tables have it.
        label: as figures and sentences have it.
        log_pmf: theta (..., parameters) and a support give ln P at its points, (..., points).
        parameters: names of the parameters as reported, in the order of `report`.
        report: theta to these parameters.

    """

    name: str
    label: str
    log_pmf: Callable[[FloatArray, Support], FloatArray]
    parameters: tuple[str, ...]
    report: Callable[[FloatArray], tuple[float, ...]]


def _mixture(theta: FloatArray) -> tuple[float, ...]:
    """Return the steeper part (larger beta, nearer to rank 1) first."""
    logit, beta_1, log_gamma_1, beta_2, log_gamma_2 = map(float, theta)
    if beta_1 < beta_2:
        logit, beta_1, log_gamma_1, beta_2, log_gamma_2 = -logit, beta_2, log_gamma_2, beta_1, log_gamma_1
    return float(special.expit(logit)), beta_1, float(np.exp(log_gamma_1)), beta_2, float(np.exp(log_gamma_2))


def _each(*turned: Callable[[float], float]) -> Callable[[FloatArray], tuple[float, ...]]:
    """Return parameters as reported, each from its own entry of theta."""
    return lambda theta: tuple(float(turn(value)) for turn, value in zip(turned, theta, strict=True))


_EVERY = (
    Candidate("zipf", "Zipf", zipf, ("beta",), _each(float)),
    Candidate("lognormal", "lognormal", lognormal, ("beta", "gamma"), _each(float, float)),
    Candidate(
        "lognormal_cdfdiff", "lognormal (cdf differences)", lognormal_cdfdiff, ("beta", "gamma"), _each(float, np.exp)
    ),
    Candidate("zipf_mandelbrot", "Zipf-Mandelbrot", zipf_mandelbrot, ("a", "q"), _each(float, np.exp)),
    Candidate("weibull", "Weibull", weibull, ("c", "d"), _each(np.exp, np.exp)),
    Candidate("negative_binomial", "negative binomial", negative_binomial, ("r", "p"), _each(np.exp, special.expit)),
    Candidate(
        "point_mass_lognormal",
        "point mass + lognormal",
        point_mass_lognormal,
        ("pi", "beta", "gamma"),
        _each(float, float, float),
    ),
    Candidate(
        "two_lognormals", "two lognormals", two_lognormals, ("w", "beta_1", "gamma_1", "beta_2", "gamma_2"), _mixture
    ),
    Candidate(
        "shifted_cutoff", "shifted power law with cutoff", shifted_cutoff, ("a", "q", "b"), _each(float, np.exp, np.exp)
    ),
)
CANDIDATES: Mapping[str, Candidate] = {candidate.name: candidate for candidate in _EVERY}
"""Every candidate by name, in the order of their count of parameters and then of STATISTICS."""
