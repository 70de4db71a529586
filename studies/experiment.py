"""Define experiments, and the claims that they check.

The first word of a claim says which number is computed from the outcomes of its draws:

    covers    how often an interval contains the truth; it should be 95%
    false     how often a test finds a difference although there is none; it should be at most 5%
    found     how often a test finds a difference that exists
    share     how often something else happens
    spread    90th percentile of a width, divided by its median
    error     90th percentile of the absolute error of a number without an interval
    median    median of another number
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rbptrack.ranks import FloatArray
from rbptrack.stats import Law, laws
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.sums import Statistic, SumsLike

ROOT = Path(__file__).parent.parent

NOMINAL = {"covers": 95, "false": 5}
"""The percentage that a claim should have, by its first word. Other claims have no such percentage."""

Settings = dict[str, Any]
Outcomes = Mapping[str, float]


@dataclass(frozen=True)
class Experiment:
    """A simulation.

    Attributes:
        cells: the combinations of settings to simulate.
        draw: the function that makes one draw and returns the outcome of each claim. It leaves out a claim if the
            analyzer would not give an answer.
        draws: the number of draws in a slice. One process makes all draws of a slice.

    """

    cells: Sequence[Settings]
    draw: Callable[[np.random.Generator, Settings], Outcomes]
    draws: int = 200


def grid(**values: Sequence[Any]) -> list[Settings]:
    """Return all combinations of settings."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def coverage(claim: str, number: Estimate, truth: float) -> dict[str, bool]:
    """Return `{claim: whether the 95% interval of the number contains the truth}`; empty if there is no interval."""
    return {claim: abs(number.value - truth) <= number.half_width()} if number.has_interval else {}


def rejection(claim: str, number: Estimate, null: float = 0.0) -> dict[str, bool]:
    """Return `{claim: whether the test rejects the null value at 5%}`; empty if no test is made."""
    p = number.p(null)
    return {} if np.isnan(p) else {claim: p < 0.05}


def fit_laws(s: FloatArray, counts: Sequence[SumsLike], statistic: Statistic) -> list[Law]:
    """Fit the law of each value of a statistic. Values that are not positive at every size are left out."""
    return [law for law in laws(s, counts, statistic) if law is not None]


def kind_of(claim: str) -> str:
    """Return the first word of a claim."""
    return claim.partition(":")[0]


def summary(claim: str, outcomes: FloatArray) -> float:
    """Compute the number that the first word of a claim asks for from the outcomes of all draws, (draws,).

    It is a percentage unless the first word is spread, error or median.
    """
    kind = kind_of(claim)
    if kind == "spread":
        return float(np.quantile(outcomes, 0.9) / np.median(outcomes))
    if kind == "error":
        return float(np.quantile(np.abs(outcomes), 0.9))
    if kind == "median":
        return float(np.median(outcomes))
    return 100 * float(np.mean(outcomes))
