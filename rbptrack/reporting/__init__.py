"""Run analyzers, and show their reports as HTML pages, terminal tables, figure files and runs in the store."""

from rbptrack.reporting.analyses import Analysis, run_analyzers
from rbptrack.reporting.comparison import comparison_report
from rbptrack.reporting.page import render, render_with_texts
from rbptrack.reporting.paper import describe_measured, describe_methods, latex_table, save_latex
from rbptrack.reporting.reading import render_reading
from rbptrack.reporting.save import save_figures, save_report
from rbptrack.reporting.tables import table_text
from rbptrack.reporting.terminal import print_report, print_summary, print_unreadable

__all__ = [
    "Analysis",
    "comparison_report",
    "describe_measured",
    "describe_methods",
    "latex_table",
    "print_report",
    "print_summary",
    "print_unreadable",
    "render",
    "render_reading",
    "render_with_texts",
    "run_analyzers",
    "save_figures",
    "save_latex",
    "save_report",
    "table_text",
]
