"""Classes and functions for writing plugins.

A plugin may import the names in `__all__` of `rbptrack.analysis`, `rbptrack.stats`, `rbptrack.figures` and
`rbptrack.ranks`, and nothing else from rbptrack. The tests in `rbptrack.analysis.testing` check this.
"""

from rbptrack.analysis.comparable import differing_facts, split_by_facts, without_conflicts, without_repeats
from rbptrack.analysis.family import BY_DOCUMENT, S_COLUMNS, Family, read_families
from rbptrack.analysis.headline import (
    deciding_row,
    decision_clause,
    headline_metric,
    join_clauses,
    range_text,
    verdict_clause,
)
from rbptrack.analysis.importing import Imported, ImportedMeasurement, ImportedScore, Importer, ImportNote
from rbptrack.analysis.input_files import (
    TABLE_SUFFIXES,
    MissingKey,
    column_names,
    load_json,
    parse_json,
    read_pairs,
    read_rows,
    whole_number,
)
from rbptrack.analysis.model_names import canonical_name, hub_id, plain_name
from rbptrack.analysis.pairs import (
    CHANGES_GLOSSARY,
    add_changes,
    compare_runs,
    pair_name,
    same_tokens,
    worst_documents,
    worst_tokens,
)
from rbptrack.analysis.plugin import Analyzer, Exporter
from rbptrack.analysis.rank_store import SCORES, Unreadable, WithoutRanks
from rbptrack.analysis.report import Glossary, Report, Term, clip_share
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, RbptrackError, shortened_list
from rbptrack.base.escape import file_part
from rbptrack.base.formatting import counted, estimate_text, format_number, listed, p_text, short_hash
from rbptrack.base.markup import csv_text, markdown_text
from rbptrack.base.names import natural_key
from rbptrack.base.secrets import names_a_secret
from rbptrack.measurement.columns import IMPORTABLE_COLUMNS, POINT_COLUMNS

__all__ = [
    "BY_DOCUMENT",
    "CHANGES_GLOSSARY",
    "IMPORTABLE_COLUMNS",
    "POINT_COLUMNS",
    "SCORES",
    "S_COLUMNS",
    "TABLE_SUFFIXES",
    "Analyzer",
    "BadInput",
    "Exporter",
    "Family",
    "Glossary",
    "ImportNote",
    "Imported",
    "ImportedMeasurement",
    "ImportedScore",
    "Importer",
    "MissingKey",
    "RbptrackError",
    "Report",
    "Runs",
    "Term",
    "Unreadable",
    "WithoutRanks",
    "add_changes",
    "canonical_name",
    "clip_share",
    "column_names",
    "compare_runs",
    "counted",
    "csv_text",
    "deciding_row",
    "decision_clause",
    "differing_facts",
    "estimate_text",
    "file_part",
    "format_number",
    "headline_metric",
    "hub_id",
    "join_clauses",
    "listed",
    "load_json",
    "markdown_text",
    "names_a_secret",
    "natural_key",
    "p_text",
    "pair_name",
    "parse_json",
    "plain_name",
    "range_text",
    "read_families",
    "read_pairs",
    "read_rows",
    "same_tokens",
    "short_hash",
    "shortened_list",
    "split_by_facts",
    "verdict_clause",
    "whole_number",
    "without_conflicts",
    "without_repeats",
    "worst_documents",
    "worst_tokens",
]
