"""Tests of the tables of results on the terminal."""

from __future__ import annotations

import pytest

from rbptrack.analysis import Report, Term
from rbptrack.console.tables import table_lines
from rbptrack.reporting import Analysis, print_report
from rbptrack.reporting.tables import results_tables
from rbptrack.stats import Estimate
from tests.reporting.law_reports import GLOSSARY, law_report


def test_print_report_leaves_out_asides_and_the_family_if_there_is_only_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = law_report()
    report.glossary = {**GLOSSARY, "held_out": Term("error", "held-out error", aside=True)}
    print_report(Analysis("own", report))
    header = capsys.readouterr().out.splitlines()[1].split()
    assert header[:3] == ["dataset", "metric", "α"]
    assert "held-out error " not in " ".join(header)


def test_print_report_leaves_out_a_table_that_has_only_asides(capsys: pytest.CaptureFixture[str]) -> None:
    report = law_report()
    report.add("beta", 0.4, family="pythia", dataset="wiki", size="70m")
    print_report(Analysis("own", report))
    assert "70m" in capsys.readouterr().out
    report.glossary = {**GLOSSARY, "beta": Term("slope", aside=True)}
    print_report(Analysis("own", report))
    assert "70m" not in capsys.readouterr().out


def test_columns_by_importance_puts_columns_beside_estimates_after_the_verdict() -> None:
    """A narrow terminal drops the last columns first."""
    frame, by_importance = results_tables(law_report())[0].columns_by_importance()
    assert sorted(by_importance) == sorted(frame.columns)
    places = [by_importance.index(title) for title in ("metric", "α", "verdict (α)", "A")]
    assert places == sorted(places)


@pytest.mark.parametrize("width", range(20, 200, 5))
def test_a_table_without_room_for_the_verdict_shows_no_less_important_column(width: int) -> None:
    report = Report({"difference": Term("difference of exponents", "Δα", "+.3g"), "A": "factor", "versus": "the other"})
    keys = {"family": "", "dataset": "a-dataset-with-a-long-name", "versus": "a-family-with-a-long-name"}
    difference = Estimate(0.001, sampling=1e-4)
    for metric in ("rbp_1", "rbp_10"):
        report.add("difference", difference, **keys, metric=metric, null=0.0, margin=0.01, beside={"A": 3.0})
    frame, by_importance = results_tables(report)[0].columns_by_importance()
    _, left_out = table_lines(frame, width, by_importance=by_importance)
    if "verdict" in left_out:
        assert "A" in left_out
    if "Δα" in left_out:
        assert "verdict" in left_out
