"""The analyzers' public contract: what an analyzer reads, and what it returns.

An analyzer imports from `rbptrack.analysis`, `rbptrack.stats`, `rbptrack.ranks` and `rbptrack.base.words`, and nothing
else of rbptrack; `rbptrack.analysis.testing` holds the contract as tests. `rbptrack.analysis.contract` shows a whole
analyzer; the modules beside it help with families, laws and figures.
"""

from rbptrack.analysis.contract import Analyzer, Drawing, Report, Table
from rbptrack.analysis.runs import Runs, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.names import metric_part
from rbptrack.ranks import RankHistogram, RankTable, parse_rbp_name, rbp_name

__all__ = [
    "Analyzer",
    "BadInput",
    "Drawing",
    "RankHistogram",
    "RankTable",
    "RbptrackError",
    "Report",
    "Runs",
    "Table",
    "Unreadable",
    "WithoutRanks",
    "metric_part",
    "parse_rbp_name",
    "rbp_name",
]
