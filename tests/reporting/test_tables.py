"""Tests of tables of results: their columns, CSV and Markdown, and metrics in MLflow."""

from __future__ import annotations

import math

import pytest

from rbptrack.analysis import Report, Term
from rbptrack.reporting.tables import report_metrics, results_tables, table_text
from rbptrack.stats import Estimate
from tests.reporting.law_reports import GLOSSARY, TABLE_WITH_SPECIAL_CHARACTERS, law_report


def test_results_tables_join_questions_about_the_same_cases() -> None:
    table = results_tables(law_report())[0].frame
    names = ["α", "verdict (α)", "A", "Δα vs. CE", "verdict (Δα vs. CE)", "held-out error", "verdict (held-out error)"]
    assert list(table) == ["family", "dataset", "metric", *names]
    assert table["metric"].tolist() == ["CE", "RBP_10"]
    assert table["Δα vs. CE"].tolist() == ["", "+0.150 (+0.130 to +0.170)"]
    assert table["verdict (Δα vs. CE)"].tolist() == ["", "above, p < 0.001"]


def test_results_tables_separate_questions_about_other_cases() -> None:
    report = law_report()
    report.add("beta", Estimate(0.4, 1e-4), family="pythia", dataset="wiki", null=0.0, size="70m", S=1.89e7)
    first, second = (table.frame for table in results_tables(report))
    assert "slope in ln k" not in first
    assert second.iloc[0].to_dict() == {
        "family": "pythia",
        "dataset": "wiki",
        "size": "70m",
        "S": "18.9M",
        "beta": "0.400 (0.380 to 0.420)",
        "verdict": "above, p < 0.001",
    }


def test_results_tables_separate_questions_without_a_metric() -> None:
    report = law_report()
    report.add("beta", Estimate(0.4, 1e-4), family="pythia", dataset="wiki", null=0.0)
    first, second = (table.frame for table in results_tables(report))
    assert "slope in ln k" not in first
    assert list(second) == ["family", "dataset", "beta", "verdict"]


def test_results_tables_add_names_to_titles_that_two_questions_share() -> None:
    report = Report({"alpha": Term("exponent", "exponent"), "gamma": Term("another exponent", "exponent")})
    for question, value in (("alpha", 0.1), ("gamma", 0.2)):
        report.add(question, value, family="pythia", dataset="wiki")
    table = results_tables(report)[0]
    assert table.frame[["exponent (alpha)", "exponent (gamma)"]].iloc[0].tolist() == ["0.100", "0.200"]
    assert table.names["exponent (gamma)"] == "gamma"


def test_results_tables_keep_different_numbers_of_one_name_apart() -> None:
    report = Report({"accepted": Term("tokens per call", "tokens"), "speed_up": Term("speed-up", "speed-up")})
    for question, length in (("accepted", 5), ("speed_up", 1)):
        report.add(question, 1.5, family="nano", dataset="wiki", beside={"length": length, "sizes": 3})
    row = results_tables(report)[0].frame.iloc[0].to_dict()
    assert (row["length"], row["length (speed-up)"], row["sizes"]) == ("5", "1", "3")
    assert "sizes (speed-up)" not in row


def test_results_tables_have_a_verdict_for_each_of_two_questions_with_the_same_title() -> None:
    report = Report({"alpha": Term("exponent", "exponent"), "gamma": Term("another exponent", "exponent")})
    report.add("alpha", Estimate(0.4, 1e-4), family="pythia", dataset="wiki", null=0.0)
    report.add("gamma", Estimate(-0.4, 1e-4), family="pythia", dataset="wiki", null=0.0)
    table = results_tables(report)[0]
    verdicts = table.frame[["verdict (exponent (alpha))", "verdict (exponent (gamma))"]]
    assert verdicts.iloc[0].tolist() == ["above, p < 0.001", "below, p < 0.001"]


def test_results_tables_of_estimates_without_intervals_have_no_interval_verdict_or_p() -> None:
    table = results_tables(law_report(intervals=False))[0].frame
    assert not [title for title in map(str, table) if title.startswith("verdict")]
    assert " to " not in table.to_string()


def test_report_metrics_and_csv_of_estimates_without_intervals_have_no_low_and_high() -> None:
    report = law_report(intervals=False)
    assert not [name for name in report_metrics(report) if name.endswith(("/low", "/high"))]
    assert table_text(report.results, "csv").splitlines()[1].startswith("alpha,pythia,wiki,ce,0.1,,,,,")


def test_report_metrics_are_named_by_question_family_dataset_metric_and_case() -> None:
    report = law_report()
    report.add("beta", 0.4, family="my (own)", dataset="wiki", N=4, S=1.5e9)
    values = report_metrics(report, max_number=1000)
    assert values["alpha/pythia/wiki/rbp_10"] == 0.25
    assert values["alpha/pythia/wiki/rbp_10/low"] == pytest.approx(0.25 - 1.96e-2, abs=1e-4)
    assert values["held_out/pythia/wiki/ce"] == pytest.approx(math.expm1(0.05))
    assert values["beta/my :28own:29/wiki/4/1.5e:2b09"] == 0.4
    assert all(math.isfinite(value) for value in values.values())


def test_report_metrics_are_at_most_forty_and_take_whole_results() -> None:
    report = Report({"alpha": Term("exponent", "α")})
    for i in range(30):
        report.add("alpha", Estimate(0.25, 1e-4), family="pythia", dataset=f"d{i}", metric="ce", null=0.0)
    values = report_metrics(report)
    assert 36 <= len(values) <= 40
    assert len([name for name in values if name.endswith("/low")]) == len([n for n in values if n.endswith("/high")])


def test_results_tables_and_metrics_of_an_empty_report_are_empty() -> None:
    assert results_tables(Report({})) == []
    assert report_metrics(Report({})) == {}


def test_results_tables_write_sizes_beside_estimates_as_thousands_and_millions() -> None:
    report = Report(GLOSSARY)
    for s in (5676.0, 2_045_568.0):
        case = {"family": "nano", "dataset": "wiki", "size": f"{s:g}"}
        report.add("beta", Estimate(0.1, sampling=1e-4), **case, beside={"S": s})
    (table,) = results_tables(report)
    assert table.frame["S"].tolist() == ["5.68k", "2.05M"]


def test_results_tables_show_the_margin_of_same_and_rows_without_interval() -> None:
    report = Report(GLOSSARY)
    keys = {"family": "pythia", "dataset": "wiki", "null": 0.0, "margin": 0.2}
    report.add("alpha", Estimate(0.01, 1e-4), **keys, metric="rbp_10")
    report.add("alpha", Estimate(0.01, df=math.nan), **keys, metric="rbp_100")
    assert results_tables(report)[0].frame["verdict"].tolist() == ["same within 0.200, p = 0.317", "no interval"]


def test_results_tables_show_means_in_a_table_of_their_own() -> None:
    report = Report(GLOSSARY | {"mean_alpha": Term("mean", "mean α")})
    for family in ("pythia", "opt"):
        report.add("alpha", Estimate(0.1, 1e-4), family=family, dataset="wiki", metric="rbp_10", null=0.0)
    report.add_means("alpha")
    laws, means = results_tables(report)
    assert "mean α" not in laws.frame
    assert means.frame["mean α"].tolist() == ["0.100 (0.080 to 0.120)"]


def test_table_text_in_csv_escapes_nothing_and_leaves_nan_empty() -> None:
    assert table_text(TABLE_WITH_SPECIAL_CHARACTERS, "csv") == "family,α\na|b,0.1 ± 0.2\n50%_x,\n"


def test_table_text_in_markdown_escapes_bars_and_underscores() -> None:
    assert table_text(TABLE_WITH_SPECIAL_CHARACTERS, "markdown").splitlines() == [
        "| family | α |",
        "| --- | --- |",
        r"| a\|b | 0.1 ± 0.2 |",
        r"| 50%\_x |  |",
    ]
