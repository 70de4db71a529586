"""Formulas of inference: documents as the unit (`documents`), laws over sizes (`laws`), other forms (`forms`)."""

from rbptrack.stats.documents import MIN_UNITS, Sums, cross_entropy, estimate, jackknife, missed, missed_over_ce, rbp
from rbptrack.stats.estimate import Estimate
from rbptrack.stats.laws import Law, fit, law_of, law_of_sums, laws_of, laws_of_sums

__all__ = [
    "MIN_UNITS",
    "Estimate",
    "Law",
    "Sums",
    "cross_entropy",
    "estimate",
    "fit",
    "jackknife",
    "law_of",
    "law_of_sums",
    "laws_of",
    "laws_of_sums",
    "missed",
    "missed_over_ce",
    "rbp",
]
