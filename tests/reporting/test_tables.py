"""Tests of result tables: numbers as text, the columns of tables, CSV and Markdown, and metrics in MLflow."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.analysis import Report, Runs, Term
from rbptrack.analysis.testing import example_runs
from rbptrack.base.formatting import estimate_text, p_text
from rbptrack.console.tables import table_lines
from rbptrack.reporting import Analysis, describe_methods, latex_table, print_report
from rbptrack.reporting.tables import report_metrics, results_tables, table_text
from rbptrack.reporting.terminal import columns_by_importance
from rbptrack.stats import Estimate

GLOSSARY = {
    "alpha": Term("exponent of the law", "α"),
    "A": Term("factor of the law", "A"),
    "delta": Term("exponent minus that of CE", "Δα vs. CE", "+.3g"),
    "held_out": Term("error at the largest size", "held-out error", "+.1%"),
    "beta": "slope in ln k",
}


def law_report(*, intervals: bool = True) -> Report:
    """Make a report with the exponents of CE and RBP_10, their held-out errors and the difference of the exponents.

    Without intervals, the estimates have unknown degrees of freedom.
    """
    report = Report(GLOSSARY)
    error = {"sampling": 1e-4} if intervals else {"df": math.nan}
    for metric, alpha in (("ce", 0.1), ("rbp_10", 0.25)):
        keys = {"family": "pythia", "dataset": "wiki", "metric": metric}
        report.add("alpha", Estimate(alpha, **error), **keys, null=0.0, beside={"A": 3.0})
        report.add("held_out", Estimate(0.05, **error), **keys, null=0.0, show=np.expm1)
        if metric != "ce":
            report.add("delta", Estimate(0.15, **error), **keys, null=0.0, margin=0.01)
    return report


@pytest.mark.parametrize(
    ("value", "low", "high", "form", "text"),
    [
        (0.1123, 0.1042, 0.1211, "", "0.112 (0.104 to 0.121)"),
        (0.00631, 0.005, 0.00763, "", "0.00631 (0.00500 to 0.00763)"),
        (1234.0, 1200.0, 1300.0, "", "1,234 (1,200 to 1,300)"),
        (math.nan, math.nan, math.nan, "", ""),
        (0.0, -0.1, 0.1, "", "0.00 (-0.10 to 0.10)"),
        (-0.00004, -0.1, 0.1, "+.1%", "+0.0% (-10.0% to +10.0%)"),
        (0.0972, 0.05, 0.126, "+.3g", "+0.0972 (+0.0500 to +0.1260)"),
        (0.3, 0.1, math.inf, "", "0.300 (0.100 to ∞)"),
    ],
)
def test_estimate_text_writes_a_number_and_its_interval(
    value: float, low: float, high: float, form: str, text: str
) -> None:
    assert estimate_text(value, low, high, form) == text


def test_estimate_text_of_a_number_alone_has_three_digits() -> None:
    assert estimate_text(0.5) == "0.500"


@given(st.floats(-1e5, 1e5), st.sampled_from(["", "+.1%", "+.3g"]))
def test_estimate_text_of_an_unknown_interval_writes_only_the_number(value: float, form: str) -> None:
    text = estimate_text(value, math.nan, math.nan, form)
    assert "nan" not in text
    assert " to " not in text


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


def test_results_tables_have_a_verdict_for_each_of_two_questions_with_the_same_title() -> None:
    report = Report({"alpha": Term("exponent", "exponent"), "gamma": Term("another exponent", "exponent")})
    report.add("alpha", Estimate(0.4, 1e-4), family="pythia", dataset="wiki", null=0.0)
    report.add("gamma", Estimate(-0.4, 1e-4), family="pythia", dataset="wiki", null=0.0)
    table = results_tables(report)[0]
    verdicts = table.frame[["verdict (exponent (alpha))", "verdict (exponent (gamma))"]]
    assert verdicts.iloc[0].tolist() == ["above, p < 0.001", "below, p < 0.001"]


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


def test_results_tables_of_estimates_without_intervals_have_no_interval_verdict_or_p() -> None:
    table = results_tables(law_report(intervals=False))[0].frame
    assert not [title for title in table if title.startswith("verdict")]
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


TABLE_WITH_SPECIAL_CHARACTERS = pd.DataFrame({"family": ["a|b", "50%_x"], "α": ["0.1 ± 0.2", math.nan]})


def test_table_text_in_csv_escapes_nothing_and_leaves_nan_empty() -> None:
    assert table_text(TABLE_WITH_SPECIAL_CHARACTERS, "csv") == "family,α\na|b,0.1 ± 0.2\n50%_x,\n"


def test_table_text_in_markdown_escapes_bars_and_underscores() -> None:
    assert table_text(TABLE_WITH_SPECIAL_CHARACTERS, "markdown").splitlines() == [
        "| family | α |",
        "| --- | --- |",
        r"| a\|b | 0.1 ± 0.2 |",
        r"| 50%\_x |  |",
    ]


def test_latex_table_escapes_texts_and_aligns_numbers_on_the_right() -> None:
    assert r"50\%\_x &  \\" in latex_table(TABLE_WITH_SPECIAL_CHARACTERS, "100%")
    table = latex_table(pd.DataFrame({"metric": ["RBP_10"], "α": ["-0.1 (-0.2 to 0.0)"], "n": [3]}), "n_1")
    assert r"\begin{tabular}{lrr}" in table
    assert r"RBP$_{10}$ & $-$0.1 ($-$0.2 to 0.0) & 3 \\" in table
    assert r"\caption{n\_1}" in table
    assert r"\toprule" in table


@pytest.mark.parametrize(("p", "text"), [(math.nan, ""), (1e-9, "p < 0.001"), (0.04, "p = 0.040"), (1.0, "p = 1.000")])
def test_p_text_has_three_decimals_or_a_bound(p: float, text: str) -> None:
    assert p_text(p) == text


def test_results_tables_write_sizes_beside_estimates_as_thousands_and_millions() -> None:
    report = Report(GLOSSARY)
    for s in (5676.0, 2_045_568.0):
        case = {"family": "nano", "dataset": "wiki", "size": f"{s:g}"}
        report.add("beta", Estimate(0.1, sampling=1e-4), **case, beside={"S": s})
    (table,) = results_tables(report)
    assert table.frame["S"].tolist() == ["5.68k", "2.05M"]


def test_columns_by_importance_puts_columns_beside_estimates_after_the_verdict() -> None:
    """A narrow terminal drops the last columns first."""
    columns = columns_by_importance(results_tables(law_report())[0])
    assert columns is not None
    frame, by_importance = columns
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
    columns = columns_by_importance(results_tables(report)[0])
    assert columns is not None
    frame, by_importance = columns
    _, left_out = table_lines(frame, width, by_importance=by_importance)
    if "verdict" in left_out:
        assert "A" in left_out
    if "Δα" in left_out:
        assert "verdict" in left_out


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


@pytest.mark.parametrize(
    ("columns", "named", "not_named"),
    [
        ({"engine": "transformers", "rank": "paper"}, "logits in float32,", "strict"),
        ({"engine": "vllm 0.32.0", "head_dtype": "bfloat16"}, "by vllm 0.32.0 from logits in bfloat16,", "float32,"),
        ({"engine": "vllm"}, "logits in unknown precision,", "float32,"),
        ({"engine": "transformers", "rank": "strict"}, "strict rank", "equation 3"),
        ({"engine": "transformers", "candidates": "tokenizer"}, "candidates=tokenizer", "strict"),
    ],
)
def test_methods_name_the_definition_of_rank_and_the_precision_of_logits(
    columns: dict[str, str], named: str, not_named: str
) -> None:
    runs = example_runs()
    text = describe_methods(Runs(runs.frame.assign(**{"head_dtype": pd.NA, **columns}), runs.store))
    assert named in text
    assert not_named not in text
