"""Formulas of inference: documents as the unit (`documents`), laws over sizes (`laws`), other forms (`forms`).

A statistic is a function of sums over documents: `estimate` gives its error, `laws` its law over sizes.
"""

from rbptrack.stats.documents import (
    MIN_UNITS,
    Sums,
    ce_and_missed,
    ce_and_rbp,
    cross_entropy,
    estimate,
    missed,
    missed_over_ce,
    rbp,
)
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.laws import Law, fit, laws, laws_by_metric

__all__ = [
    "MIN_UNITS",
    "Estimate",
    "Law",
    "Sums",
    "ce_and_missed",
    "ce_and_rbp",
    "cross_entropy",
    "estimate",
    "fit",
    "laws",
    "laws_by_metric",
    "missed",
    "missed_over_ce",
    "rbp",
]
