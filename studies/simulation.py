"""Simulate measurements with a known truth, which `studies.validity` analyses with the library's functions.

A document has a length and a difficulty r with mean 1. The difficulty has three parts. All models of a family share the
first part. The second part is a slope: some documents become easier with size faster than others. The third part is
drawn separately for each model. The CE of a document is ce * r, and its RBP_k is exp(-y * r). y is chosen so that RBP_k
over the population of documents is exactly what the law says. Tokens are then drawn, which adds noise to each document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from rbptrack.ranks import DocumentCounts, FloatArray, IntArray

TOKENS = 300
"""The mean length of a document."""

ALPHA = 0.1
"""The exponent of CE and RBP_k in most simulated laws."""

EXPONENT_GAP = 0.03
"""The exponent of RBP_100 minus that of CE in laws with different exponents."""

CE_OF_SMALLEST = 3.5
"""CE of a family's smallest model, in nats per token."""

_SEPARATE_SD = 0.1  # standard deviation of the part of ln r that each model draws separately for each document
_SLOPE_SD = 0.1  # standard deviation of the change of ln r from the middle of a family's sizes in ln S to either end
_SKEWED_SD = 0.8  # standard deviation of ln r of skewed documents
_HARD_SHARE = 0.03  # of `hard` documents that are much harder than the others
_HARDER = 5.0  # factor of their difficulty
_HARD_SD = 0.3  # standard deviation of ln r of `hard` documents apart from this factor
_QUANTILES = 4000


@dataclass(frozen=True)
class Texts:
    """A description of the documents that a family is measured on.

    Attributes:
        documents: the number of documents.
        tails: the distribution of their difficulty: `t3` (heavy tails on both sides), `skewed` (a few very hard
            documents) or `hard` (3% of the documents are five times as hard as the others).
        lengths: the distribution of their lengths: `even`, or lognormal. The longest of 100 documents is ten times as
            long as the median (`uneven`), a hundred times (`wild`) or a thousand times (`extreme`).
        groups: the number of groups that the documents come from. Documents of one group share three quarters of the
            variance of difficulties and slopes. With 0, the documents are independent.

    """

    documents: int
    tails: str
    lengths: str
    groups: int = 0


def difficulties(normal: FloatArray, tails: str) -> FloatArray:
    """Convert standard normal numbers to difficulties r > 0 with mean 1."""
    if tails == "skewed":
        return np.exp(_SKEWED_SD * normal - _SKEWED_SD**2 / 2)
    if tails == "hard":
        harder = np.where(normal > ndtri(1 - _HARD_SHARE), _HARDER, 1.0)
        return harder * np.exp(_HARD_SD * normal) / _mean_hard()
    return _cut_t3(stdtrit(3, ndtr(normal))) / _mean_t3()


def _cut_t3(t: FloatArray) -> FloatArray:
    return np.maximum(1 + 0.25 * t, 0.05)


@cache
def _mean_hard() -> float:
    normal = ndtri(_quantile_levels())
    return float((np.where(normal > ndtri(1 - _HARD_SHARE), _HARDER, 1.0) * np.exp(_HARD_SD * normal)).mean())


@cache
def _mean_t3() -> float:
    return float(_cut_t3(stdtrit(3, _quantile_levels())).mean())


def _quantile_levels() -> FloatArray:
    return (np.arange(_QUANTILES) + 0.5) / _QUANTILES


def population(tails: str, sd: float) -> tuple[FloatArray, FloatArray]:
    """Return the difficulties of the population of documents for one model, and their weights, which add up to 1.

    Args:
        tails: the distribution of the part that models share, as in `Texts`.
        sd: the standard deviation of ln of the other parts.

    """
    shared = difficulties(ndtri(_quantile_levels()), tails)
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    separate = np.exp(sd * nodes - sd**2 / 2)
    difficulty = np.outer(shared / shared.mean(), separate)
    return difficulty.ravel(), np.tile(weights / weights.sum() / _QUANTILES, _QUANTILES)


@cache
def _y_by_neg_log_rbp(tails: str, sd: float) -> tuple[FloatArray, FloatArray]:
    """Return a table from which y is interpolated: ln(-ln RBP) over the population, and ln y, (300,) each."""
    r, weights = population(tails, sd)
    y = np.geomspace(1e-4, 30, 300)
    neg_log_rbp = np.array([-np.log(weights @ np.exp(-value * r)) for value in y])
    return np.log(neg_log_rbp), np.log(y)


def typical_document_y(neg_log_rbp: FloatArray, tails: str, sd: float) -> FloatArray:
    """Return the y of a document with r = 1 that makes -ln RBP over the population equal to `neg_log_rbp`."""
    return np.exp(np.interp(np.log(neg_log_rbp), *_y_by_neg_log_rbp(tails, sd)))


@dataclass(frozen=True)
class Documents:
    """One draw of documents.

    Attributes:
        length: the number of tokens of each document, (documents,).
        difficulty: the part of r that all models share, (documents,).
        slope: the slope of each document, a standard normal number, (documents,).
        group: the number of each document's group, (documents,).
        tails: the distribution of the difficulty, as in `Texts`.

    """

    length: IntArray
    difficulty: FloatArray
    slope: FloatArray
    group: IntArray
    tails: str

    @classmethod
    def draw(cls, rng: np.random.Generator, texts: Texts) -> Documents:
        """Draw documents as `texts` describes them."""
        count = texts.documents
        length = np.full(count, TOKENS)
        if texts.lengths != "even":
            sd = {"uneven": 1.0, "wild": 2.0, "extreme": 2.75}[texts.lengths]
            drawn = np.exp(sd * rng.standard_normal(count) - min(sd, 2.0) ** 2 / 2)
            length = np.maximum(drawn * TOKENS, 20).astype(np.int64)
        normal = rng.standard_normal((2, count))
        group = np.arange(count)
        if texts.groups:
            group = rng.integers(texts.groups, size=count)
            shared = rng.standard_normal((2, texts.groups))[:, group]
            normal = np.sqrt(0.75) * shared + np.sqrt(0.25) * normal
        return cls(length, difficulties(normal[0], texts.tails), normal[1], group, texts.tails)

    def measure(
        self, rng: np.random.Generator, *, ce: float, neg_log_rbp: FloatArray, ks: Sequence[int], place: float = 0.0
    ) -> DocumentCounts:
        """Draw the sums by document of one model.

        Args:
            rng: the generator for the model's separate part of the difficulty and for the tokens. A token with a hit at
                one k has hits at all larger k.
            ce: CE over the population, in nats per token.
            neg_log_rbp: -ln RBP_k over the population, which falls with k, (ks,).
            ks: the k.
            place: the place of the model among the sizes of its family, from -1 (smallest) to 1 (largest) in ln S.

        """
        count = len(self.length)
        sd = float(np.hypot(_SEPARATE_SD, _SLOPE_SD * place))
        ln_rest = _SEPARATE_SD * rng.standard_normal(count) + _SLOPE_SD * place * self.slope
        r = self.difficulty * np.exp(ln_rest - sd**2 / 2)
        share = np.exp(-np.outer(r, typical_document_y(neg_log_rbp, self.tails, sd)))  # (documents, ks)
        bins = np.diff(share, axis=1, prepend=0.0, append=1.0)
        hits = np.cumsum(rng.multinomial(self.length, np.maximum(bins, 0.0))[:, :-1], axis=1)
        nats = ce * r * np.maximum(self.length + np.sqrt(self.length) * rng.standard_normal(count), 1.0)
        return DocumentCounts(
            ks=tuple(ks),
            document=np.arange(count),
            tokens=self.length.astype(np.float64),
            nats=nats,
            hits=hits.astype(np.float64),
        )


@dataclass(frozen=True)
class Family:
    """The models of one family.

    Attributes:
        sizes: the number of sizes, m. They cover a factor of 1,000 in equal steps of ln S.
        tau: the standard deviation of ln y of a model around its law. CE and RBP_k share 80% of its square.
        ends: the factor by which the smallest and the largest model scatter more than the others.
        grows: the scatter of the largest model, divided by that of the smallest model.
        ar: the correlation between the scatter of neighbouring sizes.
        floor: the share of y at the largest size that does not fall with size.
        broken: the factor of the exponent above two thirds of the range of ln S.
        slope: 1, or -1 for a family in which the slope of each document has the opposite sign.

    """

    sizes: int
    tau: float
    ends: float = 1.0
    grows: float = 1.0
    ar: float = 0.0
    floor: float = 0.0
    broken: float = 1.0
    slope: float = 1.0

    @property
    def s(self) -> FloatArray:
        """The sizes S, (m,)."""
        return np.geomspace(1e6, 1e9, self.sizes)

    def scatter(self, rng: np.random.Generator, metrics: int) -> FloatArray:
        """Draw the factors by which y of each model differs from the law, (m, metrics)."""
        shared = rng.standard_normal((self.sizes, 1))
        separate = rng.standard_normal((self.sizes, metrics))
        deviations = np.sqrt(0.8) * shared + np.sqrt(0.2) * separate
        for i in range(1, self.sizes):
            deviations[i] = self.ar * deviations[i - 1] + np.sqrt(1 - self.ar**2) * deviations[i]
        tau = self.tau * np.geomspace(self.grows**-0.5, self.grows**0.5, self.sizes)[:, None]
        tau[[0, -1]] *= self.ends
        return np.asarray(np.exp(tau * deviations))

    def curve(self, alpha: float) -> FloatArray:
        """Return y of each size without scatter, (m,). It is 1 at the smallest size."""
        return self.y_at(self.s, alpha)

    def y_at(self, s: FloatArray, alpha: float) -> FloatArray:
        """Return y of models of any sizes s, (n,), without scatter."""
        floor = self.law_floor(alpha)
        return np.asarray(floor + (1 - floor) * self._fallen(s, alpha))

    def law_floor(self, alpha: float) -> float:
        """Return the floor E of a law that has y = 1 at the smallest size."""
        fallen = float(self._fallen(self.s[-1:], alpha)[0])
        return self.floor * fallen / (1 - self.floor + self.floor * fallen)

    def _fallen(self, s: FloatArray, alpha: float) -> FloatArray:
        """Return the part of y that falls with size, (n,). It is 1 at the smallest size."""
        x = np.log(s / self.s[0])
        place = np.log(self.s[-1] / self.s[0]) * 2 / 3
        return np.asarray(np.exp(-alpha * (np.minimum(x, place) + self.broken * np.maximum(x - place, 0.0))))

    def measure(
        self,
        rng: np.random.Generator,
        documents: Documents,
        *,
        alpha_ce: float = ALPHA,
        alphas: Sequence[float] = (ALPHA, ALPHA),
    ) -> list[DocumentCounts]:
        """Draw the sums by document of every size.

        Args:
            rng: the generator of random numbers.
            documents: the documents.
            alpha_ce: the exponent of CE.
            alphas: the exponents of -ln RBP_1 and -ln RBP_100.

        """
        factors = self.scatter(rng, 3)
        ce = CE_OF_SMALLEST * self.curve(alpha_ce) * factors[:, 0]
        neg_log_rbp = np.stack([self.curve(alpha) for alpha in alphas], axis=1) * [1.1, 0.25] * factors[:, 1:]
        place = self.slope * np.linspace(-1, 1, self.sizes)
        counts = []
        for i in range(self.sizes):
            counts.append(
                documents.measure(rng, ce=ce[i], neg_log_rbp=neg_log_rbp[i], ks=(1, 100), place=round(place[i], 6))
            )
        return counts
