"""Tests of reports: tests of several rows, verdicts, columns and terms."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Report, Term
from rbptrack.analysis.report import COLUMNS
from rbptrack.stats.estimate import DocumentInfluences, Estimate

PYTHIA_ON_WIKI = {"family": "pythia", "dataset": "wiki"}


def rows_of(*numbers: Estimate | float, null: float | None = 0.0, margin: float = np.nan) -> pd.DataFrame:
    """Return the rows of a report with one question: row i is the i-th number, of the metric rbp_<i + 1>."""
    report = Report({})
    for i, number in enumerate(numbers):
        report.add("alpha", number, **PYTHIA_ON_WIKI, metric=f"rbp_{i + 1}", null=null, margin=margin)
    return report.frame("alpha")


def normal(value: float, se: float = 1.0) -> Estimate:
    """Return an estimate with a known standard error: its interval and its p-value are those of a normal variable."""
    return Estimate(value, sampling=se**2)


def with_influences(value: float, u: np.ndarray) -> Estimate:
    """Return an estimate whose standard error is 1, with these influences of documents."""
    return Estimate(value, sampling=1.0, documents=DocumentInfluences(u, np.full(len(u), 1 / len(u))))


def test_p_of_rows_with_the_same_influences_is_not_raised() -> None:
    """The tests of such rows are one test. Without influences, Holm's method counts five tests."""
    u = np.random.default_rng(0).standard_normal(50)
    together = rows_of(*[with_influences(2.2, u)] * 5)
    assert together["p_adjusted"].to_numpy() == pytest.approx(together["p"].to_numpy(), rel=0.1)
    assert together["tests"].tolist() == [5] * 5
    assert rows_of(*[normal(2.2)] * 5)["p_adjusted"].to_numpy() == pytest.approx(5 * together["p"].to_numpy())


def test_rows_on_other_datasets_share_no_documents() -> None:
    u = np.random.default_rng(0).standard_normal(50)
    report = Report({})
    for dataset in ("wiki", "code"):
        report.add("alpha", with_influences(2.2, u), family="pythia", dataset=dataset, null=0.0)
    assert report.frame("alpha")["p_adjusted"].to_numpy() == pytest.approx(2 * report.frame("alpha")["p"].to_numpy())


def test_rows_that_name_the_same_documents_share_them() -> None:
    u = np.random.default_rng(0).standard_normal(50)
    report = Report({})
    for dataset in ("wiki", "code"):
        report.add("alpha", with_influences(2.2, u), family="pythia", dataset=dataset, null=0.0, documents="both")
    assert (report.frame("alpha")["p_adjusted"] < 1.1 * report.frame("alpha")["p"]).all()


def test_primary_rows_are_tested_apart_from_the_other_rows_of_their_question() -> None:
    report = Report({})
    for i in range(5):
        keys = {**PYTHIA_ON_WIKI, "metric": f"rbp_{i + 1}", "primary": i == 2}
        report.add("alpha", normal(2.2), **keys, null=0.0)
    frame = report.frame("alpha")
    assert frame["tests"].tolist() == [4, 4, 1, 4, 4]
    assert frame["verdict"].tolist() == ["undecided", "undecided", "above", "undecided", "undecided"]


def test_add_means_adds_the_mean_of_each_metric_with_a_test_of_equal_values() -> None:
    report = Report({})
    for family, value in (("a", 1.0), ("b", 9.0), ("c", 2.0)):
        report.add("alpha", normal(value), family=family, dataset=family, metric="rbp_10", null=0.0, margin=0.5)
        report.add("alpha", Estimate(1.0, df=np.nan), family=family, dataset=family, metric="rbp_1", null=0.0)
    report.add_means("alpha")
    [mean] = report.frame("mean_alpha").to_dict("records")
    assert (mean["mean_alpha"], mean["number"], mean["margin"]) == (4.0, 3, 0.5)
    assert mean["high"] - mean["low"] == pytest.approx(2 * 1.96 / 3**0.5, rel=1e-3)
    assert mean["verdict"] == "above"
    assert mean["homogeneity"] < 0.001


def test_verdicts_are_above_below_and_same() -> None:
    rows = rows_of(normal(5.0), normal(-5.0), normal(0.5), margin=3.0)
    assert rows["verdict"].tolist() == ["above", "below", "same"]


def test_verdicts_are_above_and_below_the_null_value() -> None:
    assert rows_of(normal(5.0), normal(15.0), null=10.0)["verdict"].tolist() == ["below", "above"]


def test_verdict_of_small_effect_without_margin_is_undecided() -> None:
    assert rows_of(normal(0.5))["verdict"].tolist() == ["undecided"]


def test_verdict_same_is_for_interval_within_margin_around_null() -> None:
    assert rows_of(normal(7.0), null=7.5, margin=2.6)["verdict"].tolist() == ["same"]


def test_verdict_of_significant_effect_within_margin_is_same() -> None:
    rows = rows_of(normal(0.5, 0.1), margin=1.0)
    assert rows["p_adjusted"][0] < 0.05
    assert rows["verdict"].tolist() == ["same"]


def test_verdict_without_margin_is_never_same() -> None:
    assert rows_of(normal(0.0, 1e-6), normal(1e-9, 1e-6))["verdict"].tolist() == ["undecided", "undecided"]


def test_verdicts_are_corrected_for_rows_of_their_question() -> None:
    alone = rows_of(normal(2.2))
    among_five = rows_of(normal(2.2), *[normal(0.0)] * 4)
    assert alone["verdict"].tolist() == ["above"]
    assert among_five["verdict"].tolist() == ["undecided"] * 5


def test_verdicts_are_not_corrected_for_rows_of_other_questions() -> None:
    report = Report({})
    report.add("alpha", normal(2.2), **PYTHIA_ON_WIKI, null=0.0)
    for i in range(4):
        report.add("beta", normal(0.0), **PYTHIA_ON_WIKI, null=0.0, k=i)
    assert report.frame("alpha")["verdict"].tolist() == ["above"]


def test_row_without_interval_has_no_p_and_no_verdict() -> None:
    rows = rows_of(Estimate(5.0, df=np.nan), 5.0, margin=1.0)
    assert rows[["low", "high", "p", "p_adjusted"]].isna().all(axis=None)
    assert rows["verdict"].tolist() == ["", ""]


def test_rows_that_fewer_than_4_documents_decide_have_verdicts_and_a_note() -> None:
    report = Report({})
    for i, deciding in enumerate((1.5, 3 * (1 - 1e-15), 3.97, 4.0)):
        number = Estimate(5.0, sampling=1.0, sampling_df=3 * deciding - 1, deciding_documents=deciding)
        report.add("alpha", number, **PYTHIA_ON_WIKI, metric=f"rbp_{i + 1}", null=0.0, margin=20.0)
    assert report.frame("alpha")["verdict"].tolist() == ["same"] * 4
    (note,) = report.notes
    for part in ("RBP_1", "1.5", "RBP_2", "3.0", "RBP_3", "3.9"):
        assert part in note
    assert "RBP_4" not in note


def test_row_without_null_has_interval_but_no_p_and_no_verdict() -> None:
    rows = rows_of(normal(5.0), null=None)
    assert rows["low"].notna().all()
    assert rows["p"].isna().all()
    assert rows["verdict"].tolist() == [""]


def test_low_is_below_high_if_shown_scale_is_reversed() -> None:
    report = Report({})
    report.add("error", normal(0.0, 0.1), **PYTHIA_ON_WIKI, show=np.expm1)
    report.add("error", normal(0.0, 0.1), **PYTHIA_ON_WIKI, show=lambda x: -x, k=1)
    frame = report.frame("error")
    assert frame["high"][0] == pytest.approx(np.expm1(0.196), rel=1e-3)
    assert (frame["low"] < frame["high"]).all()


def report_of_two_questions() -> Report:
    """Return a report with one row for alpha, which has two further values, and one row for beta at S = 1e6."""
    report = Report({})
    report.add("alpha", normal(1.0), **PYTHIA_ON_WIKI, metric="ce", beside={"A": 3.0, "sizes": 7})
    report.add("beta", 2.0, **PYTHIA_ON_WIKI, S=1e6, ends=(1.0, np.inf))
    return report


def test_results_of_two_questions_are_one_table() -> None:
    report = report_of_two_questions()
    assert list(report.results.columns[: len(COLUMNS)]) == COLUMNS
    assert report.questions == ["alpha", "beta"]


def test_frame_has_columns_of_its_question() -> None:
    report = report_of_two_questions()
    common = ["family", "dataset", "metric", "alpha", "low", "high", "p", "p_adjusted", "tests", "margin", "verdict"]
    assert list(report.frame("alpha")) == [*common, "A", "sizes"]
    assert report.frame("alpha")["sizes"].tolist() == [7]
    assert report.frame("alpha")["sizes"].dtype == "int64"
    assert report.frame("beta")[["low", "high"]].to_numpy().tolist() == [[1.0, np.inf]]


def test_case_columns_and_beside_columns_are_those_of_the_question() -> None:
    report = report_of_two_questions()
    assert (report.case_columns("beta"), report.beside_columns("beta")) == (["S"], [])
    assert report.beside_columns("alpha") == ["A", "sizes"]


def test_results_of_empty_report_have_all_columns() -> None:
    assert list(Report({}).results) == COLUMNS
    assert Report({}).frame("alpha").empty


def test_term_has_meaning_title_and_format_from_glossary() -> None:
    report = Report({"delta": Term("to CE", "Δα vs. CE"), "held_out": Term("error", form="+.1%"), "R2": "share: of 1"})
    assert report.term("delta") == Term("to CE", "Δα vs. CE")
    assert report.term("held_out") == Term("error", "held out", "+.1%")
    assert report.term("R2").title == "R2"


def test_term_of_common_column_has_meaning() -> None:
    assert Report({}).term("p_adjusted").meaning


def test_term_of_unknown_name_has_name_as_title() -> None:
    assert Report({}).term("unknown") == Term("", "unknown")


def report_with_shown_scale() -> Report:
    """Return a report with two rows of one question. The second row has a scale that cannot be pickled."""
    report = Report({"alpha": "exponent"}, headline="Better.")
    report.add("alpha", normal(1.0), **PYTHIA_ON_WIKI, null=0.0)
    report.add("alpha", normal(0.1), **PYTHIA_ON_WIKI, null=0.0, show=lambda x: 2 * x, k=1)
    return report


def test_pickled_report_has_same_results() -> None:
    report = report_with_shown_scale()
    copy = pickle.loads(pickle.dumps(report))
    pd.testing.assert_frame_equal(copy.results, report.results)


def test_pickled_report_accepts_further_rows() -> None:
    copy = pickle.loads(pickle.dumps(report_with_shown_scale()))
    copy.add("alpha", normal(0.2), **PYTHIA_ON_WIKI, null=0.0, k=2)
    assert copy.results["p"].notna().tolist() == [True, True, True]


def test_html_of_report_has_headline_titles_values_and_notes() -> None:
    report = Report({"gain": Term("what is <gained>", title="G", form=".1%")}, headline="A & B", notes=["Left out: c."])
    report.add("gain", Estimate(0.25, sampling=1e-4, sampling_df=50.0), family="a", dataset="d", null=0.0)
    html = report._repr_html_()
    assert "A &amp; B" in html
    assert "what is &lt;gained&gt;" in html
    assert "<th>G</th>" in html
    assert "25.0%" in html
    assert "Left out: c." in html
