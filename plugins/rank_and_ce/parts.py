"""The two parts of CE, E[ln R] and E[-ln(p R)], of every size of a family: values, laws, shares of its fall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray, RankAndRest
from rbptrack.stats.bootstrap import document_weights, drawn_sums
from rbptrack.stats.contrasts import ratio_law
from rbptrack.stats.intervals import Interval, percentiles, widening, worth
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.size_laws import fit_law

PARTS = ("ce", "rank", "rest")
_SEEN = 2.0  # standard errors that a fall of CE must have, for shares of it
_POWER = 0.8


@dataclass(frozen=True)
class Parts:
    """CE and its parts, in nats per token, of every size, and in document bootstraps that all sizes share.

    Attributes:
        values: CE, rank and rest, (m, 3).
        draws: the same in each replicate, (m, replicates, 3).
        bands: the rank part by `rbptrack.ranks.BANDS`, (m, bands).
        band_draws: the same in each replicate, (m, replicates, bands).
        widening: of percentile intervals, for few documents.

    """

    values: FloatArray
    draws: FloatArray
    bands: FloatArray
    band_draws: FloatArray
    widening: float

    @classmethod
    def of(cls, sizes: Sequence[RankAndRest], *, replicates: int, level: float) -> Parts:
        """Resample the documents of all sizes jointly. Source: `rbptrack.ranks.RankAndRest`; `document_weights`."""
        documents = len(sizes[0].tokens)
        once = np.ones((1, documents))
        weights = document_weights(documents, replicates=replicates)
        values, bands = zip(*(_means(size, once) for size in sizes), strict=True)
        draws, band_draws = zip(*(_means(size, weights) for size in sizes), strict=True)
        return cls(
            np.concatenate(values),
            np.stack(draws),
            np.concatenate(bands),
            np.stack(band_draws),
            widening(worth(np.sqrt(sizes[0].tokens)), level),
        )

    def interval(self, value: float, draws: FloatArray, level: float) -> Interval:
        """Return the percentile interval, widened for few documents."""
        low, high = percentiles(draws, level=level)
        return Interval(value, value - self.widening * (value - low), value + self.widening * (high - value))

    def rank_share(self, i: int, level: float) -> Interval:
        """Return the rank part of the i-th size over its CE."""
        shares = self.draws[i, :, 1] / self.draws[i, :, 0]
        return self.interval(float(self.values[i, 1] / self.values[i, 0]), shares, level)

    @property
    def falls(self) -> bool:
        """Whether CE falls from the smallest to the largest size, beyond its error."""
        fall = self.draws[0, :, 0] - self.draws[-1, :, 0]
        return bool(self.values[0, 0] - self.values[-1, 0] > _SEEN * fall.std())

    def share_of_fall(self, level: float) -> Interval:
        """Return the share of CE's fall, from the smallest to the largest size, that is the rank part's."""
        fall = self.values[0] - self.values[-1]
        drawn = self.draws[0] - self.draws[-1]
        return self.interval(float(fall[1] / fall[0]), drawn[:, 1] / drawn[:, 0], level)

    def band_shares(self, level: float) -> list[Interval]:
        """Return the share of that fall in each band of k."""
        fall = self.values[0, 0] - self.values[-1, 0]
        drawn = self.draws[0, :, 0] - self.draws[-1, :, 0]
        by_band = self.bands[0] - self.bands[-1]
        drawn_by_band = (self.band_draws[0] - self.band_draws[-1]) / drawn[:, None]
        return [
            self.interval(float(value / fall), draws, level)
            for value, draws in zip(by_band, drawn_by_band.T, strict=True)
        ]

    def laws(self, s: FloatArray, level: float) -> list[PowerLawFit | None]:
        """Return the laws in size of CE, rank and rest."""
        return [fit_law(s, self.values[:, j], self.draws[:, :, j], level=level) for j in range(len(PARTS))]

    def contrast(self, s: FloatArray, level: float) -> PowerLawFit | None:
        """Return the law of rank over rest: its alpha is the exponent of the rank part minus that of the rest."""
        rank = self.values[:, 1]
        rest = self.values[:, 2]
        return ratio_law(s, rank, rest, self.draws[:, :, 1], self.draws[:, :, 2], level=level)


def detectable(contrast: PowerLawFit, *, level: float, tests: int) -> float:
    """Return the smallest difference of exponents that would be found in 80%, corrected for so many tests.

    Source: (t + z) standard errors (Cohen, Statistical Power Analysis, 1988), at Bonferroni's level.
    """
    half = contrast.spread.half(1 - (1 - level) / tests)
    return float(half + special.ndtri(_POWER) * contrast.spread.se)


def _means(size: RankAndRest, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return CE, rank and rest, (replicates, 3), and the rank part by band, (replicates, bands)."""
    sums = drawn_sums(weights, np.column_stack([size.parts, size.bands]))
    means = sums[:, 1:] / sums[:, :1]
    return np.column_stack([means[:, 0] + means[:, 1], means[:, :2]]), means[:, 2:]
