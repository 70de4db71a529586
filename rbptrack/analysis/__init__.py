"""The plugins' public contract: what a plugin reads, and what it returns.

A plugin imports from `rbptrack.analysis`, `rbptrack.stats`, `rbptrack.ranks` and `rbptrack.base.words`, and nothing
else of rbptrack; `rbptrack.analysis.testing` holds the contract as tests.
"""

from rbptrack.analysis.family import UNITS, Family, families, read_families
from rbptrack.analysis.plugin import Analyzer
from rbptrack.analysis.report import Glossary, Report, Term
from rbptrack.analysis.runs import Filters, Runs
from rbptrack.analysis.source import Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.ranks import CE, HEADLINE_KS, DocumentCounts, RankHistogram, RankTable, log_grid, rbp_name
from rbptrack.stats import (
    Estimate,
    Law,
    Sums,
    ce_and_missed,
    ce_and_rbp,
    cross_entropy,
    estimate,
    laws,
    missed,
    missed_over_ce,
    rbp,
)

__all__ = [
    "CE",
    "HEADLINE_KS",
    "UNITS",
    "Analyzer",
    "BadInput",
    "DocumentCounts",
    "Estimate",
    "Family",
    "Filters",
    "Glossary",
    "Law",
    "RankHistogram",
    "RankTable",
    "RbptrackError",
    "Report",
    "Runs",
    "Sums",
    "Term",
    "Unreadable",
    "WithoutRanks",
    "ce_and_missed",
    "ce_and_rbp",
    "cross_entropy",
    "estimate",
    "families",
    "laws",
    "log_grid",
    "missed",
    "missed_over_ce",
    "rbp",
    "rbp_name",
    "read_families",
]
