"""The classes and functions with which plugins are written.

A plugin may import the names in `__all__` of `rbptrack.analysis`, `rbptrack.stats`, `rbptrack.figures` and
`rbptrack.ranks`, and nothing else of rbptrack. `rbptrack.analysis.testing` checks this.
"""

from rbptrack.analysis.comparable import disagreeing, newest, parts, without_twins
from rbptrack.analysis.exporting import Exporter
from rbptrack.analysis.family import BY_DOCUMENT, UNITS, Family, Reading, families, read_families
from rbptrack.analysis.headline import sentence, spanned, verdicts
from rbptrack.analysis.importing import (
    SCORES,
    Imported,
    ImportedMeasurement,
    ImportedRow,
    ImportedScore,
    Importer,
    ImportNote,
)
from rbptrack.analysis.pairs import (
    CHANGES_GLOSSARY,
    add_changes,
    compare_runs,
    end_of_share,
    pair_name,
    same_tokens,
    worst_documents,
    worst_tokens,
)
from rbptrack.analysis.plugin import Analyzer
from rbptrack.analysis.published import PUBLISHED_IN, published_in_k, published_in_size
from rbptrack.analysis.rank_store import Unreadable, WithoutRanks
from rbptrack.analysis.reading import (
    TABLES,
    column_names,
    load_json,
    parse_json,
    read_pairs,
    read_rows,
    read_small,
    whole_number,
)
from rbptrack.analysis.report import Glossary, Report, Term
from rbptrack.analysis.runs import Filters, Runs
from rbptrack.analysis.scores import hub_id, join_scores, last_checkpoints, plain_name, unused_scores
from rbptrack.base.errors import BadInput, RbptrackError, first_line, shortened
from rbptrack.base.escape import file_part
from rbptrack.base.formatting import counted, listed, number, short_hash
from rbptrack.base.markup import csv_text, markdown_text
from rbptrack.facts import IMPORTABLE, ONE_POINT

__all__ = [
    "BY_DOCUMENT",
    "CHANGES_GLOSSARY",
    "IMPORTABLE",
    "ONE_POINT",
    "PUBLISHED_IN",
    "SCORES",
    "TABLES",
    "UNITS",
    "Analyzer",
    "BadInput",
    "Exporter",
    "Family",
    "Filters",
    "Glossary",
    "ImportNote",
    "Imported",
    "ImportedMeasurement",
    "ImportedRow",
    "ImportedScore",
    "Importer",
    "RbptrackError",
    "Reading",
    "Report",
    "Runs",
    "Term",
    "Unreadable",
    "WithoutRanks",
    "add_changes",
    "column_names",
    "compare_runs",
    "counted",
    "csv_text",
    "disagreeing",
    "end_of_share",
    "families",
    "file_part",
    "first_line",
    "hub_id",
    "join_scores",
    "last_checkpoints",
    "listed",
    "load_json",
    "markdown_text",
    "newest",
    "number",
    "pair_name",
    "parse_json",
    "parts",
    "plain_name",
    "published_in_k",
    "published_in_size",
    "read_families",
    "read_pairs",
    "read_rows",
    "read_small",
    "same_tokens",
    "sentence",
    "short_hash",
    "shortened",
    "spanned",
    "unused_scores",
    "verdicts",
    "whole_number",
    "without_twins",
    "worst_documents",
    "worst_tokens",
]
