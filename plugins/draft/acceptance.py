"""Counts of the drafts of a family: acceptance, tokens in a row, speed-up, and the law in size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rbptrack.analysis.families import Family
from rbptrack.ranks import FloatArray
from rbptrack.stats.bootstrap import document_weights
from rbptrack.stats.intervals import Interval
from rbptrack.stats.power_law import PowerLawFit
from rbptrack.stats.reference import ReferenceSums
from rbptrack.stats.size_laws import fit_law

SAMPLING = "sampling"


@dataclass(frozen=True)
class Drafts:
    """The drafts of a family for one reference on one dataset, and the counts of each, ascending in S."""

    family: Family
    reference: str
    counts: list[ReferenceSums]
    costs: list[float]
    level: float

    @cached_property
    def ways(self) -> list[str]:
        """Sampling, then each number of branches."""
        return [SAMPLING, *map(str, self.counts[0].ks)]

    @property
    def case(self) -> dict[str, str]:
        """What a finding is of."""
        return {"dataset": self.family.dataset, "family": self.family.name, "reference": self.reference}

    def keys(self, i: int) -> dict[str, Any]:
        """Return the first columns of a row about the i-th size."""
        return {**self.family.size_keys[i], "reference": self.reference}

    def rate(self, i: int, way: int) -> Interval:
        """Return the share of tokens that are accepted, of the i-th size."""
        sums = self.counts[i]
        return sums.per_token(_hits(sums, way)).interval(self.level, lowest=0.0, highest=1.0)

    def accepted(self, i: int, way: int, length: int) -> Interval:
        """Return the accepted tokens of a draft of some length."""
        return self.counts[i].run(way, length).interval(self.level, lowest=0.0, highest=length)

    def faster(self, i: int, length: int) -> Interval:
        """Return the speed-up of drafts of some length."""
        run = self.accepted(i, 0, length)
        return Interval(*(speed_up(value, length, self.costs[i]) for value in (run.value, run.low, run.high)))

    def law(self, way: int) -> PowerLawFit | None:
        """Return -ln of the share of accepted tokens = A S^-alpha; None with fewer than 3 sizes, or where all are
        accepted.
        """
        weights = document_weights(len(self.counts[0].tokens))
        sums = [(_hits(counted, way), counted.tokens) for counted in self.counts]
        with np.errstate(divide="ignore", invalid="ignore"):
            y = -np.log([hits.sum() / tokens.sum() for hits, tokens in sums])
            draws = -np.log(np.stack([(weights @ hits) / (weights @ tokens) for hits, tokens in sums]))
        return fit_law(self.family.s, y, draws, level=self.level)


def _hits(sums: ReferenceSums, way: int) -> FloatArray:
    """Return accepted tokens, (documents,): by sampling, or with so many branches."""
    return sums.hits[:, way - 1] if way else sums.accept


def independent_run(rate: float, length: int) -> float:
    """Return accepted tokens of a draft of so many if each were accepted independently: rate + rate^2 + ... +
    rate^length.

    Source: Leviathan et al., arXiv 2211.17192, equation 1, less the token that the large model adds.
    """
    return float(sum(rate**j for j in range(1, length + 1)))


def speed_up(accepted: float, length: int, cost: float) -> float:
    """Return tokens per time with a draft of `length` tokens, relative to none: (accepted + 1) / (length cost + 1).

    Source: Leviathan et al., arXiv 2211.17192, theorem 3.8, with the expected run measured in place of assumed.

    Args:
        accepted: expected accepted tokens of a draft.
        length: its tokens.
        cost: time of the draft model's step over that of the reference's pass, which is taken to cost the same for
            one token as for a whole draft.

    """
    return (accepted + 1) / (length * cost + 1)
