"""Functions that tests of analyzers use to check and read a report."""

from __future__ import annotations

import pandas as pd

from rbptrack.analysis import Report


def check_charts_and_notes(report: Report) -> None:
    """Assert that all charts of a report can be drawn, and that each of its notes ends with a full stop."""
    for chart in report.figures.values():
        assert chart.to_dict()
    for note in report.notes:
        assert note.endswith(".")


def result(report: Report, question: str, metric: str, **case: object) -> pd.Series:
    """Return the one row of a question that has this metric and, in the columns named by `case`, these values."""
    rows = report.frame(question)
    rows = rows[rows["metric"] == metric]
    for column, value in case.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1
    return rows.iloc[0]
