"""The plugins' public contract: what a plugin reads, and what it returns.

A plugin imports from `rbptrack.analysis`, `rbptrack.stats`, `rbptrack.ranks` and `rbptrack.base.words`, and nothing
else of rbptrack; `rbptrack.analysis.testing` holds the contract as tests. `rbptrack.analysis.contract` shows a whole
analyzer; the modules beside it help with families, laws and figures.
"""

from rbptrack.analysis.contract import Analyzer, Drawing, Report, Table
from rbptrack.analysis.findings import Finding, NothingToSay, Reason, Remark, Verdict
from rbptrack.analysis.lead import Cell, Lead
from rbptrack.analysis.plugin import Plugin
from rbptrack.analysis.runs import Runs, Unreadable, WithoutRanks
from rbptrack.base.errors import BadInput, RbptrackError
from rbptrack.base.names import metric_part
from rbptrack.ranks import RankHistogram, RankTable, parse_rbp_name, rbp_name

__all__ = [
    "Analyzer",
    "BadInput",
    "Cell",
    "Drawing",
    "Finding",
    "Lead",
    "NothingToSay",
    "Plugin",
    "RankHistogram",
    "RankTable",
    "RbptrackError",
    "Reason",
    "Remark",
    "Report",
    "Runs",
    "Table",
    "Unreadable",
    "Verdict",
    "WithoutRanks",
    "metric_part",
    "parse_rbp_name",
    "rbp_name",
]
