"""One source of the documents: its values, their errors over its own documents, and its laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rbptrack.analysis.families import Family
from rbptrack.analysis.rows import UNKNOWN, exponent
from rbptrack.ranks import CE, DocumentCounts, FloatArray, rbp_name
from rbptrack.stats.intervals import LEAST_DOCUMENTS, Interval, widening, worth
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.shares import Share, share_of
from rbptrack.stats.size_laws import LawValues, law_values


@dataclass(frozen=True, kw_only=True)
class Source:
    """One source of the documents that a family has read.

    Attributes:
        family: whose.
        name: of the source.
        counts: by document, of each size, ascending in S.
        share: of the scored tokens.
        level: nominal coverage of the intervals.
        several: whether it holds all small sources together; sentences leave it out.

    """

    family: Family
    name: str
    counts: list[DocumentCounts]
    share: float
    level: float
    several: bool = False

    @property
    def documents(self) -> int:
        """How many."""
        return len(self.counts[0].document)

    @property
    def enough(self) -> bool:
        """Whether it has enough documents for intervals."""
        return self.documents >= LEAST_DOCUMENTS and not self.several

    @property
    def keys(self) -> dict[str, Any]:
        """What every row begins with."""
        return self.family.keys | {"source": self.name}

    @cached_property
    def values(self) -> LawValues | None:
        """What laws are fitted to; None with fewer than 3 sizes.

        A bootstrap of few documents, or of a few long ones, is too narrow: its replicates are drawn apart for that.

        Source: `widening`, for as many documents as decide the slope (`worth`).
        """
        if len(self.counts) < 3:
            return None
        values = law_values(self.counts)
        wider = np.array([widening(worth(self._tilt(metric)), self.level) for metric in values.metrics])
        with np.errstate(divide="ignore", invalid="ignore"):
            draws = values.values[:, None] * (values.draws / values.values[:, None]) ** wider
        return replace(values, draws=draws)

    def _tilt(self, metric: str) -> FloatArray:
        """Return each document's influence on ln y of the largest size minus that of the smallest, (documents,)."""
        ends = [self.shares[i][metric] for i in (0, -1)]
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = [share.value if metric == CE else share.value * np.log(share.value) for share in ends]
            tilt = ends[1].influence / slopes[1] - ends[0].influence / slopes[0]
        return np.nan_to_num(tilt, nan=0.0, posinf=0.0, neginf=0.0)

    def law(self, metric: str) -> PowerLawFit | None:
        """Return the law of one metric; None if it has no law."""
        return self.values.fit(metric, self.family.s, level=self.level) if self.values else None

    def alpha(self, metric: str) -> Interval:
        """Return the law's exponent."""
        law = self.law(metric)
        if self.enough:
            return exponent(law)
        return Interval(law.alpha) if law else UNKNOWN

    @cached_property
    def shares(self) -> list[dict[str, Share]]:
        """Every metric with its error over documents, of each size."""
        return [
            {metric: share_of(values, count.tokens) for metric, values in _by_document(count).items()}
            for count in self.counts
        ]

    def value(self, i: int, metric: str) -> Interval:
        """Return a metric of the i-th size."""
        share = self.shares[i][metric]
        if not self.enough:
            return Interval(share.value)
        return share.interval(self.level, lowest=0.0, highest=np.inf if metric == CE else 1.0)


def _by_document(counts: DocumentCounts) -> dict[str, FloatArray]:
    """Return sums by document; a metric is their total per token: nats of CE, hits of RBP_k."""
    return {CE: counts.nats} | {rbp_name(k): counts.hits[:, i] for i, k in enumerate(counts.ks)}
