"""Counts of each measurement, and of all of them together: points of curves, tables of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from rbptrack.analysis.families import Family, Pooled
from rbptrack.ranks import FloatArray, RankAndRest
from rbptrack.stats.answers import Answers
from rbptrack.stats.bootstrap import BOOTSTRAP_SEED, document_weights, drawn_sums
from rbptrack.stats.intervals import Interval, percentiles, widening, worth

from .equal_loss import Resampled
from .rank_and_probability import RankAndProbability, Rates


@dataclass(frozen=True)
class Counts(Pooled):
    """One model on one text; the runs of a size add."""

    joint: RankAndProbability
    answers: Answers
    split: RankAndRest
    _rates: dict[int, tuple[dict[int, Rates], dict[int, Rates]]] = field(default_factory=dict, repr=False)

    def rates(self, k: int, replicates: int) -> tuple[Rates, Rates]:
        """Return `Rates` once and in document bootstraps; kept, because neighbouring sizes share it."""
        if replicates not in self._rates:
            weights = document_weights(len(self.joint.tokens), replicates=replicates)
            once = np.ones((1, weights.shape[1]))
            self._rates[replicates] = Rates.of(self.joint, once), Rates.of(self.joint, weights)
        point, draws = self._rates[replicates]
        return point[k], draws[k]

    def resampled(self, replicates: int, seed: int) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Return CE, (replicates,), and -ln RBP_k of each k, (replicates,), in document bootstraps."""
        weights = document_weights(len(self.joint.tokens), replicates=replicates, seed=seed)
        tokens, nats, *hits = drawn_sums(weights, self.joint.metric_sums()).T
        with np.errstate(divide="ignore"):
            return nats / tokens, {k: -np.log(hit / tokens) for k, hit in zip(self.joint.ks, hits, strict=True)}

    def interval(self, value: float, draws: FloatArray, level: float) -> Interval:
        """Return the percentile interval, its sides as much longer as few documents ask for."""
        wider = widening(worth(np.sqrt(self.joint.tokens.sum(axis=(1, 2)))), level)
        low, high = percentiles(draws, level=level)
        return Interval(value, value - wider * (value - low), value + wider * (high - value))


Everything = list[tuple[Family, list[Counts]]]


def resampled_points(everything: Everything, ks: Sequence[int], *, replicates: int) -> dict[int, Resampled]:
    """Return the points in document bootstraps, by k: those on one dataset share documents, others are independent."""
    datasets = list(dict.fromkeys(family.dataset for family, _ in everything))
    drawn = [
        size.resampled(replicates, BOOTSTRAP_SEED + datasets.index(family.dataset))
        for family, counts in everything
        for size in counts
    ]
    documents = min(worth(size.joint.tokens.sum(axis=(1, 2))) for _, counts in everything for size in counts)
    ce = np.stack([point for point, _ in drawn], axis=1)
    return {k: Resampled(ce, np.stack([y[k] for _, y in drawn], axis=1), documents) for k in ks}


def per_size(everything: Everything, columns: Callable[[RankAndProbability], Mapping[str, FloatArray]]) -> pd.DataFrame:
    """Return a table of what each size of each family has, its sizes in order."""
    sizes = [
        {**keys, **columns(size.joint)}
        for family, counts in everything
        for keys, size in zip(family.size_keys, counts, strict=True)
    ]
    return pd.concat(map(pd.DataFrame, sizes), ignore_index=True)


def ends_at_p(family: Family, counts: Sequence[Counts]) -> dict[str, Mapping[str, FloatArray]]:
    """Return ranks at equal p of the smallest and the largest size, by label."""
    return {family.labels[i]: counts[i].joint.at_equal_p() for i in sorted({0, len(counts) - 1})}
