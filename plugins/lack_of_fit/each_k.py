"""The law in size at every k: what it is, what noise would make of it, and which documents decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from rbptrack.ranks import DocumentCounts, FloatArray, rbp_name
from rbptrack.stats import linear
from rbptrack.stats.intervals import Interval, worth
from rbptrack.stats.power_law import PowerLawFit, scatters
from rbptrack.stats.size_laws import LawValues, widened

from .bends import LEAST_SIZES
from .surface import Limit, Surface, fit_surface, largest_k_without_gap

NAN = float("nan")
UNKNOWN = Interval(NAN)


class LawAtK(StrEnum):
    """The result about the law at one k."""

    NO_BEND = "no bend detected"
    NOISE = "noise-limited"
    BENDS = "systematic deviation"
    INVERSE = "inverse"


@dataclass(frozen=True, kw_only=True)
class AtK:
    """The law at one k, a row of a table; NaN where too few misses are left to fit one, bands with fewer than 5 sizes.

    `alpha` with its interval, and the ends of a band that holds it at every k together; the `departure` from a line in
    ln y, with a band that holds all of them; `tau`, scatter between models in ln y; `snr`, |alpha| over its standard
    error; R^2 observed, and `expected` if the line were true under that noise.
    """

    k: int
    misses: int
    design_effect: float
    alpha: Interval = UNKNOWN
    band_low: float = NAN
    band_high: float = NAN
    departure: Interval = UNKNOWN
    tau: float = NAN
    snr: float = NAN
    r2: float = NAN
    expected: Interval = UNKNOWN


@dataclass(frozen=True)
class EachK:
    """The laws of a family at all k, and their surface (from 5 sizes) with its k* for a margin.

    Attributes:
        laws: at each k, ascending.
        surface: over all of them.
        limit: up to where it is straight.
        bends: whether the family's one test says that the law bends, corrected for what else was tested.

    """

    laws: list[AtK]
    surface: Surface | None
    limit: Limit | None
    bends: bool = False

    @property
    def verdicts(self) -> list[LawAtK]:
        """Of each k: it departs from the law only where the one test says that the law bends."""
        return [self._verdict(law) for law in self.laws]

    @property
    def k_star(self) -> int:
        """The largest k up to which, at every k, alpha is above 0 and no bend is detected; 0: at none."""
        return largest_k_without_gap([law.k for law in self.laws], [v == LawAtK.NO_BEND for v in self.verdicts])

    @property
    def last_k(self) -> int:
        """The last k at which a law could be fitted; 0: none."""
        return max((law.k for law in self.laws if np.isfinite(law.alpha.value)), default=0)

    @property
    def focus(self) -> int:
        """The k to examine: the first with misses and no law, else the last with misses."""
        missed = [law for law in self.laws if law.misses > 0]
        return next((law.k for law in missed if not law.alpha.low > 0), missed[-1].k)

    def _verdict(self, law: AtK) -> LawAtK:
        if law.alpha.high < 0:
            return LawAtK.INVERSE
        if self.bends and (law.departure.low > 0 or law.departure.high < 0):
            return LawAtK.BENDS
        return LawAtK.NO_BEND if law.alpha.low > 0 else LawAtK.NOISE


def laws_at_each_k(
    counts: Sequence[DocumentCounts],
    values: LawValues,
    s: FloatArray,
    *,
    least_misses: int,
    margin: float,
    level: float,
    replicates: int,
) -> EachK:
    """Return the law at every k of the counts, and from 5 sizes the surface over all of them.

    Source: `fit_power_law` at each k, `fit_surface` over all.

    Args:
        counts: of each size.
        values: their values and bootstraps, at these k among others.
        s: sizes S, (m,).
        least_misses: fewest tokens with rank above k, in any size, from which anything is fitted.
        margin: departure from a line, in ln y, within which a law counts as straight.
        level: nominal coverage of intervals and bands.
        replicates: of R^2 under the noise.

    """
    ks, tokens = counts[0].ks, np.array([c.tokens.sum() for c in counts], dtype=np.float64)  # (m,)
    misses = (tokens[:, None] - np.stack([c.hits.sum(axis=0) for c in counts])).min(axis=0)  # (ks,)
    enough = [k for k, fewest in zip(ks, misses, strict=True) if fewest >= least_misses]
    fits = values.fit_each(s, level=level)
    laws = {k: fits[rbp_name(k)] for k in enough if rbp_name(k) in fits}
    taus = dict(zip(laws, scatters(list(laws.values())).tolist(), strict=True))
    surface = None
    if len(s) >= LEAST_SIZES and laws:
        documents = worth(np.sqrt(counts[0].tokens))
        y, draws = values.of_ks(list(laws))
        if values.factor != 1:  # the surface corrects for few sources itself: twice is too wide
            draws = widened(y, draws, 1 / values.factor)
        surface = fit_surface(s, list(laws), y, draws, documents=documents, level=level)
    rng = np.random.default_rng(0)
    rows = []
    for k, few in zip(ks, misses, strict=True):
        y, draws = values.of(rbp_name(k))
        effect = design_effect(float(np.exp(-y[-1])), np.exp(-draws[-1]), tokens=tokens[-1])
        cells = _cells(laws[k], taus[k], k, surface, level, replicates, rng) if k in laws else {}
        rows.append(AtK(k=k, misses=int(few), design_effect=effect, **cells))
    return EachK(rows, surface, surface.limit(margin) if surface else None)


def _cells(
    law: PowerLawFit,
    tau: float,
    k: int,
    surface: Surface | None,
    level: float,
    replicates: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Return the numbers of one k that has a law."""
    cells = dict[str, Any]()
    if surface:
        at = int(np.searchsorted(surface.ks, k))
        tau, low, high = (float(bound[at]) for bound in (surface.tau, *surface.band))
        bend = (float(bound[at]) for bound in (surface.bend, *surface.bend_band))
        cells = {"band_low": low, "band_high": high, "departure": Interval(*bend)}
    noise = law.covariance + tau**2 * np.eye(law.points)
    expected = expected_r2(law, noise, replicates=replicates, level=level, rng=rng)
    snr = abs(law.alpha) / law.se if law.se > 0 else float("inf")
    return cells | {"alpha": law.exponent, "tau": tau, "snr": snr, "r2": law.r2, "expected": expected}


def design_effect(share: float, draws: FloatArray, *, tokens: float) -> float:
    """Return variance of a share's bootstrap draws over that of as many independent tokens; NaN where it is 0 or 1.

    Source: Kish, Survey Sampling, 1965, section 8.2; the variance is that of a document bootstrap.
    """
    binomial = share * (1 - share) / tokens
    return float(draws.var(ddof=1) / binomial) if binomial > 0 else float("nan")


def expected_r2(
    law: PowerLawFit, noise: FloatArray, *, replicates: int, level: float, rng: np.random.Generator
) -> Interval:
    """Return median, lower and upper end of the R^2 that points on a law would give under a noise, covariance (m, m) of
    ln y.

    Source: parametric bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6.5) of
    ln y ~ N(ln A - alpha ln S, noise).
    """
    values, vectors = np.linalg.eigh(noise)
    shock = rng.normal(size=(replicates, law.points)) * np.sqrt(np.clip(values, 0, None)) @ vectors.T
    drawn = np.log(law.predict(law.s)) + shock  # (replicates, m)
    residual = linear.least_squares(linear.centred(np.log(law.s)), drawn.T)[1]
    whole = ((drawn - drawn.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    r2 = 1 - (residual**2).sum(axis=0) / np.maximum(whole, 1e-300)
    tail = (1 - level) / 2
    low, middle, high = np.quantile(r2, [tail, 0.5, 1 - tail])
    return Interval(float(middle), float(low), float(high))


def most_misses(counts: Sequence[DocumentCounts], s: FloatArray, k: int, top: int) -> Iterator[dict[str, Any]]:
    """Yield the cells of the documents that hold most misses of the largest model at one k, and what each does to
    alpha.

    Source: `alphas_without_documents`.
    """
    i = counts[0].ks.index(k)
    tokens = np.stack([c.tokens for c in counts]).astype(np.float64)  # (m, documents)
    hits = np.stack([c.hits[:, i] for c in counts]).astype(np.float64)
    misses = tokens[-1] - hits[-1]
    alpha, *without = map(float, alphas_without_documents(s, tokens, hits))
    for d in np.argsort(-misses, kind="stable")[:top]:
        if misses[d] > 0:
            cells = {"document": int(counts[0].document[d]), "tokens": int(tokens[-1, d]), "misses": int(misses[d])}
            share = float(misses[d] / misses.sum())
            yield cells | {"share": share, "alpha_without": without[d], "alpha": alpha}


def alphas_without_documents(s: FloatArray, tokens: FloatArray, hits: FloatArray) -> FloatArray:
    """Return the exponent of -ln RBP_k, and without each document in turn, (1 + documents,), from counts, (m,
    documents).

    Source: the delete-one jackknife (Tukey, 1958) of the least-squares slope of ln(-ln RBP_k) on ln S.
    """
    whole = hits.sum(axis=1) / tokens.sum(axis=1)
    rest = (hits.sum(axis=1, keepdims=True) - hits) / (tokens.sum(axis=1, keepdims=True) - tokens)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -linear.lines(np.log(s), np.log(-np.log(np.column_stack([whole, rest]))))[1]
