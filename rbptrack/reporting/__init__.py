"""Runs analyzers and publishes their reports as HTML pages, terminal tables, figure files and runs in the store."""

from rbptrack.reporting.analyse import Analysis, analyse
from rbptrack.reporting.page import render
from rbptrack.reporting.reading import MAX_TOKENS, render_reading
from rbptrack.reporting.save import save_figures, save_reports
from rbptrack.reporting.tables import ResultsTable, cell, metrics, results_tables, table_text
from rbptrack.reporting.terminal import show, show_summary

__all__ = [
    "MAX_TOKENS",
    "Analysis",
    "ResultsTable",
    "analyse",
    "cell",
    "metrics",
    "render",
    "render_reading",
    "results_tables",
    "save_figures",
    "save_reports",
    "show",
    "show_summary",
    "table_text",
]
