"""Simulated documents with a known truth: what `studies.validity` analyses with the library's own functions.

A document has a length and a difficulty r with mean 1: a part that all models of a family share, a slope, by which it
becomes easier with size faster or more slowly than others, and a part that is each model's own. Its CE is ce * r, and
its RBP_k is exp(-y * r); y is chosen so that RBP_k over the population of documents is exactly what a law says. Tokens
are then drawn, so that documents are measured with noise.
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

CE_OF_SMALLEST = 3.5
"""CE of a family's smallest model, nats."""

_OWN = 0.1  # sd of ln r of one model on one document, beside what all models share
_SLOPE = 0.1  # sd of a document's change of ln r from the middle to either end of a family's sizes in ln S
_SKEW = 0.8  # sd of ln r of skewed documents
_QUANTILES = 4000


@dataclass(frozen=True)
class Texts:
    """The documents that a family is measured on.

    Attributes:
        documents: how many.
        tails: of their difficulty: `t3` (heavy on both sides) or `skewed` (a few very hard ones).
        lengths: `even`, or lognormal: the longest of 100 is ten times the median (`uneven`), a hundred times (`wild`)
            or a thousand times (`extreme`).
        sources: how many sources they come from; 0: each document is its own. Three quarters of the variance of
            difficulties and slopes are then the source's.

    """

    documents: int
    tails: str
    lengths: str
    sources: int = 0


def difficulty_of(normal: FloatArray, tails: str) -> FloatArray:
    """Difficulty r > 0 with mean 1 from standard normal numbers."""
    if tails == "skewed":
        return np.exp(_SKEW * normal - _SKEW**2 / 2)
    return _cut_t3(stdtrit(3, ndtr(normal))) / _mean_t3()


def _cut_t3(t: FloatArray) -> FloatArray:
    return np.maximum(1 + 0.25 * t, 0.05)


@cache
def _mean_t3() -> float:
    return float(_cut_t3(stdtrit(3, _levels())).mean())


def _levels() -> FloatArray:
    return (np.arange(_QUANTILES) + 0.5) / _QUANTILES


def population(tails: str, sd: float) -> tuple[FloatArray, FloatArray]:
    """Difficulties of one model over all documents there are, and their weights, which add up to 1.

    Args:
        tails: of the part that models share.
        sd: of ln of the rest.

    """
    shared = difficulty_of(ndtri(_levels()), tails)
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)
    own = np.exp(sd * nodes - sd**2 / 2)
    every = np.outer(shared / shared.mean(), own)
    return every.ravel(), np.tile(weights / weights.sum() / _QUANTILES, _QUANTILES)


@cache
def _exponents(tails: str, sd: float) -> tuple[FloatArray, FloatArray]:
    """-ln RBP over the population, and the y of a document with r = 1 that makes it, in logarithms."""
    r, weights = population(tails, sd)
    y = np.geomspace(1e-4, 30, 300)
    missed = np.array([-np.log(weights @ np.exp(-value * r)) for value in y])
    return np.log(missed), np.log(y)


def of_one_document(missed: FloatArray, tails: str, sd: float) -> FloatArray:
    """The y of a document with r = 1 where -ln RBP over the population is `missed`."""
    return np.exp(np.interp(np.log(missed), *_exponents(tails, sd)))


@dataclass(frozen=True)
class Documents:
    """One draw of documents.

    Attributes:
        length: tokens, (documents,).
        difficulty: the part of r that all models share, (documents,).
        slope: standard normal, (documents,).
        source: number of the source of each, (documents,).
        tails: of the difficulty.

    """

    length: IntArray
    difficulty: FloatArray
    slope: FloatArray
    source: IntArray
    tails: str

    @classmethod
    def draw(cls, rng: np.random.Generator, texts: Texts) -> Documents:
        """Draw documents of a kind."""
        count = texts.documents
        length = np.full(count, TOKENS)
        if texts.lengths != "even":
            sd = {"uneven": 1.0, "wild": 2.0, "extreme": 2.75}[texts.lengths]
            drawn = np.exp(sd * rng.standard_normal(count) - min(sd, 2.0) ** 2 / 2)
            length = np.maximum(drawn * TOKENS, 20).astype(np.int64)
        normal = rng.standard_normal((2, count))
        source = np.arange(count)
        if texts.sources:
            source = rng.integers(texts.sources, size=count)
            of_source = rng.standard_normal((2, texts.sources))[:, source]
            normal = np.sqrt(0.75) * of_source + np.sqrt(0.25) * normal
        return cls(length, difficulty_of(normal[0], texts.tails), normal[1], source, texts.tails)

    def measure(
        self, rng: np.random.Generator, *, ce: float, missed: FloatArray, ks: Sequence[int], place: float = 0.0
    ) -> DocumentCounts:
        """What is counted of one model.

        Args:
            rng: of the model's own part of the difficulty, and of the tokens; one token decides for all k.
            ce: CE over the population, nats.
            missed: -ln RBP_k over the population, falling in k, (ks,).
            ks: the k.
            place: of the model among the sizes of its family, -1 to 1 in ln S.

        """
        count = len(self.length)
        sd = float(np.hypot(_OWN, _SLOPE * place))
        ln_rest = _OWN * rng.standard_normal(count) + _SLOPE * place * self.slope
        r = self.difficulty * np.exp(ln_rest - sd**2 / 2)
        share = np.exp(-np.outer(r, of_one_document(missed, self.tails, sd)))  # (documents, ks)
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
    """Models of one family.

    Attributes:
        sizes: how many, m, in equal steps of ln S over a factor of 1,000.
        tau: sd of ln y of a model around its law; most of it is common to CE and RBP_k.
        ends: the smallest and the largest model scatter so many times as much as the others.
        grows: the largest model scatters so many times as much as the smallest one.
        ar: correlation of the scatter of neighbouring sizes.
        floor: share of y at the largest size that no size removes.
        bend: square term of ln y over ln S.
        slope: 1, or -1 if documents that become easier slowly in other families become easier fast in this one.

    """

    sizes: int
    tau: float
    ends: float = 1.0
    grows: float = 1.0
    ar: float = 0.0
    floor: float = 0.0
    bend: float = 0.0
    slope: float = 1.0

    @property
    def s(self) -> FloatArray:
        """The sizes S, (m,)."""
        return np.geomspace(1e6, 1e9, self.sizes)

    def scatter(self, rng: np.random.Generator, metrics: int) -> FloatArray:
        """Factors of y, (m, metrics)."""
        shared = rng.standard_normal((self.sizes, 1))
        own = rng.standard_normal((self.sizes, metrics))
        of_models = np.sqrt(0.8) * shared + np.sqrt(0.2) * own
        for i in range(1, self.sizes):
            of_models[i] = self.ar * of_models[i - 1] + np.sqrt(1 - self.ar**2) * of_models[i]
        tau = self.tau * np.geomspace(self.grows**-0.5, self.grows**0.5, self.sizes)[:, None]
        tau[[0, -1]] *= self.ends
        return np.asarray(np.exp(tau * of_models))

    def curve(self, alpha: float) -> FloatArray:
        """Return y of each size without scatter, 1 at the smallest size if there is no bend, (m,)."""
        x = np.log(self.s / self.s[0])
        fallen = np.exp(-alpha * x[-1])
        floor = self.floor * fallen / (1 - self.floor + self.floor * fallen)
        bent = np.exp(self.bend * (x - x.mean()) ** 2)
        return np.asarray((floor + (1 - floor) * np.exp(-alpha * x)) * bent)

    def floor_of(self, alpha: float) -> float:
        """Return E of a law whose y is 1 at the smallest size."""
        return self.floor * float(self.curve(alpha)[-1])

    def measure(
        self, rng: np.random.Generator, documents: Documents, *, alpha_ce: float, alphas: Sequence[float]
    ) -> list[DocumentCounts]:
        """Counts of every size, m of them, for laws of CE, -ln RBP_1 and -ln RBP_100 with these exponents."""
        factors = self.scatter(rng, 3)
        ce = CE_OF_SMALLEST * self.curve(alpha_ce) * factors[:, 0]
        missed = np.stack([self.curve(alpha) for alpha in alphas], axis=1) * [1.1, 0.25] * factors[:, 1:]
        place = self.slope * np.linspace(-1, 1, self.sizes)
        counts = []
        for i in range(self.sizes):
            of_size = documents.measure(rng, ce=ce[i], missed=missed[i], ks=(1, 100), place=round(place[i], 6))
            counts.append(of_size)
        return counts
