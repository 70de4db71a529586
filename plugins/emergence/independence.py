"""How often N tokens in a row succeed, against what simpler processes predict, and the law of each N.

For independent tokens p_{N,k} = RBP_k^N, so that -ln p = N A S^-alpha (arXiv 2510.20387, eqs. 6 to 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from rbptrack.ranks import FloatArray
from rbptrack.stats.bootstrap import Weights, paired_covariance
from rbptrack.stats.intervals import Interval, middle_spread, percentiles, simultaneous, widening, worth
from rbptrack.stats.power_law import PowerLawFit, fit_power_law

from .windows import WindowCounts, ladder

NULLS = ("independent", "position", "documents", "markov")
"""The nulls of `ladder`, the simplest first."""

_WORDS = {"position": "position", "documents": "documents", "markov": "neighbours"}


@dataclass(frozen=True)
class SuccessByLength:
    """Windows of one size at one k, measured and predicted, with document bootstraps.

    Attributes:
        lengths: the N, ascending from 1, (lengths,).
        runs: distinct runs of hits of at least N tokens, (lengths,).
        documents: documents that have one, (lengths,).
        enough: the N that are not refused, (lengths,).
        point: ln p, measured and by each null, (1, lengths).
        draws: the same in each bootstrap replicate, (replicates, lengths).
        level: nominal coverage of the intervals.
        widening: of the intervals of tests, at least 1.

    """

    lengths: tuple[int, ...]
    runs: FloatArray
    documents: FloatArray
    enough: FloatArray
    point: Mapping[str, FloatArray]
    draws: Mapping[str, FloatArray]
    level: float
    widening: float = 1.0

    @property
    def log_p(self) -> FloatArray:
        """Measured ln p_N, NaN where refused, (lengths,)."""
        return np.where(self.enough, self.point["measured"][0], np.nan)

    def probability(self, j: int) -> Interval:
        """Return p_N of the j-th length, the share of windows that succeed."""
        return self._exp(self.point["measured"][0, j], self.draws["measured"][:, j])

    def ratio(self, j: int) -> Interval:
        """Return rho_N = p_N / RBP_k^N: 1 where tokens are independent."""
        point = self.point
        draws = self.draws
        excess = point["measured"][0, j] - point["independent"][0, j]
        return self._exp(excess, draws["measured"][:, j] - draws["independent"][:, j])

    def effective_length(self, j: int) -> Interval:
        """Return n_eff = ln p_N / ln RBP_k: how many independent tokens a window counts as; NaN where every token
        succeeds.
        """
        single = self.point["measured"][0, 0]
        if not single < 0:
            return Interval(np.nan)
        low, high = percentiles(self.draws["measured"][:, j] / self.draws["measured"][:, 0], level=self.level)
        return Interval(self.point["measured"][0, j] / single, low, high)

    def eta(self, j: int) -> float:
        """Return D ln(-ln p_N) / d ln N between the length before and the j-th: 1 where tokens are independent."""
        measured = self.point["measured"][0]
        if not measured[0] < 0 or j == 0 or not self.enough[j - 1]:
            return float("nan")
        return float(np.log(measured[j] / measured[j - 1]) / np.log(self.lengths[j] / self.lengths[j - 1]))

    def explained(self, j: int, null: str) -> float:
        """Return the share of ln p_N - N ln RBP_k that a null gives; NaN where that is 0."""
        point = self.point
        excess = point["measured"][0, j] - point["independent"][0, j]
        if self.lengths[j] == 1 or excess == 0:
            return float("nan")
        return float((point[null][0, j] - point["independent"][0, j]) / excess)

    def tested(self, j: int) -> bool:
        """Return whether nulls are tested at the j-th length: not where it is refused or every token succeeds.

        Nor for N <= 2: a first-order chain is fitted to pairs and says nothing of them.
        """
        return bool(self.enough[j]) and self.lengths[j] > 2 and bool(self.point["measured"][0, 0] < 0)

    @property
    def _tested(self) -> list[int]:
        return [j for j in range(len(self.lengths)) if self.tested(j)]

    def _apart(self, null: str) -> tuple[FloatArray, FloatArray]:
        """Return ln p_N less a null's at each length that is tested, (tested,), and its replicates."""
        point, draws = (values["measured"] - values[null] for values in (self.point, self.draws))
        return point[0, self._tested], draws[:, self._tested]

    @cached_property
    def _zero_inside(self) -> dict[str, FloatArray]:
        """For each null, whether the interval of ln p_N minus its own has 0 in it, at each length that is tested.

        The intervals hold at all tested lengths at once, so that looking at many N rejects no more often; they are
        widened for few documents, by t over the normal quantile with as many as their unequal lengths are worth.
        """
        zero_inside = {}
        for null in NULLS if (tested := self._tested) else ():
            value, draws = self._apart(null)
            half = self.widening * simultaneous(value, draws, level=self.level)
            inside = np.zeros(len(self.lengths), dtype=bool)
            inside[tested] = np.abs(value) <= half
            zero_inside[null] = inside
        return zero_inside

    @property
    def p_independent(self) -> float:
        """P of independent tokens at all tested N together; NaN where none is tested.

        Source: Bonferroni over N of the normal tail, its distances widened for few documents as the verdicts' are; a
        bootstrap of so many replicates knows no p small enough to be corrected over many models.
        """
        if not (tested := self._tested):
            return float("nan")
        value, draws = self._apart("independent")
        half = self.widening * middle_spread(draws)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(half > 0, np.abs(value) / half, np.where(value == 0, 0.0, np.inf))
        return float(min(1.0, len(tested) * 2 * special.ndtr(-np.nanmax(z))))

    def consistent(self, j: int) -> list[str]:
        """Return the nulls that ln p_N does not contradict, in the order of `NULLS`."""
        return [null for null, inside in self._zero_inside.items() if inside[j]]

    def verdict(self, j: int) -> str:
        """Return the simplest null that the measured share does not contradict, in a word; empty if none is tested."""
        if not self.enough[j]:
            return "too few runs"
        if not self.tested(j):
            return ""
        consistent = self.consistent(j)
        if "independent" in consistent:
            return "independent"
        return " or ".join(_WORDS[null] for null in consistent) or "more than any one"

    def columns(self, j: int) -> dict[str, Any]:
        """Return the j-th length as columns of a table; where it is refused, only counts and nulls."""
        row = {"N": self.lengths[j], "runs": self.runs[j], "documents": self.documents[j], "verdict": self.verdict(j)}
        row |= {f"p_{null}": np.exp(self.point[null][0, j]) for null in NULLS}
        if not self.enough[j]:
            return row
        row |= {"p": self.probability(j), "rho": self.ratio(j), "n_eff": self.effective_length(j), "eta": self.eta(j)}
        return row | {f"by_{word}": self.explained(j, null) for null, word in _WORDS.items()}

    def _exp(self, value: float, draws: FloatArray) -> Interval:
        low, high = percentiles(draws, level=self.level)
        return Interval(np.exp(value), np.exp(low), np.exp(high))


def success_by_length(
    counts: WindowCounts, weights: Weights, *, least_runs: int, least_documents: int, level: float
) -> SuccessByLength:
    """Return measured and predicted success of each N.

    Source: arXiv 2510.20387, eqs. 6 to 8.

    Args:
        counts: windows of one size at one k, by document.
        weights: how often each bootstrap replicate draws each document, (replicates, documents).
        least_runs: an N is refused where fewer distinct runs of hits are that long,
        least_documents: or come from fewer documents.
        level: nominal coverage of the intervals.

    """
    runs = counts.runs.sum(axis=0)
    documents = (counts.runs > 0).sum(axis=0)
    return SuccessByLength(
        lengths=counts.lengths,
        runs=runs,
        documents=documents,
        enough=(runs >= least_runs) & (documents >= least_documents),
        point=ladder(counts, np.ones((1, len(counts.tokens)))),
        draws=ladder(counts, weights),
        level=level,
        widening=widening(worth(np.sqrt(counts.tokens)), level),
    )


@dataclass(frozen=True)
class LengthLaw:
    """-ln p_N = C_N S^-alpha_N of one N, fitted freely, and beside what N independent tokens give.

    Attributes:
        length: N.
        law: over the sizes that are used.
        change: of N_eff = (C_N / C_1) S^-(alpha_N - alpha_1): its exponent is alpha_N - alpha_1, 0 where tokens are
            independent; None for N = 1.
        per_token: N_eff / N, geometric mean over these sizes: C_N / (N C_1), 1 where tokens are independent; None for
            N = 1.

    """

    length: int
    law: PowerLawFit
    change: PowerLawFit | None
    per_token: Interval | None

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table."""
        law = self.law
        row = {"N": self.length, "sizes": law.points, "C": np.exp(law.log_a), "r2": law.r2}
        change = self.change.exponent if self.change else Interval(np.nan)
        row |= {"alpha": law.exponent, "alpha_change": change}
        return row | {"n_eff_per_n": self.per_token or Interval(np.nan)}


def fit_length_laws(s: FloatArray, sizes: Sequence[SuccessByLength], *, level: float) -> list[LengthLaw]:
    """Return the law of every N that at least 3 sizes have; sizes ascend, (m,).

    The sampling covariance is that of paired document bootstraps, over the same documents and lengths.

    Source: arXiv 2510.20387, eqs. 6 to 8, with the exponent of every N free.
    """
    y = -np.stack([size.log_p for size in sizes])  # (m, lengths)
    draws = -np.stack([size.draws["measured"] for size in sizes])  # (m, replicates, lengths)
    usable = np.isfinite(y) & (y > 0) & (np.isfinite(draws) & (draws > 0)).all(axis=1)
    first = (y[:, 0] > 0) & (draws[:, :, 0] > 0).all(axis=1)
    laws = []
    for j, n in enumerate(sizes[0].lengths):
        keep = usable[:, j] & first
        if keep.sum() < 3:
            continue
        logs = np.log(draws[keep, :, j])
        law = fit_power_law(s[keep], y[keep, j], covariance=paired_covariance(list(logs)), level=level)
        change = per_token = None
        if n > 1:
            relative = logs - np.log(draws[keep, :, 0])
            ratio = y[keep, j] / y[keep, 0]
            change = fit_power_law(s[keep], ratio, covariance=paired_covariance(list(relative)), level=level)
            low, high = percentiles(relative.mean(axis=0), level=level)
            per_token = Interval(float(np.exp(np.log(ratio).mean()) / n), np.exp(low) / n, np.exp(high) / n)
        laws.append(LengthLaw(n, law, change, per_token))
    return laws
