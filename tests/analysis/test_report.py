"""Reports: Holm, verdicts, rows and meanings."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbptrack.analysis import Report, Term
from rbptrack.analysis.report import COLUMNS, holm
from rbptrack.stats import Estimate

WHERE = {"family": "pythia", "dataset": "wiki"}


def answers(
    *numbers: Estimate | float, null: float | None = 0.0, margin: float = np.nan, question: str = "alpha"
) -> pd.DataFrame:
    report = Report({})
    for i, number in enumerate(numbers):
        report.add(question, number, **WHERE, metric=f"rbp_{i + 1}", null=null, margin=margin)
    return report.frame(question)


def known(value: float, se: float = 1.0) -> Estimate:
    return Estimate(value, sampling=se**2)


def test_holm_by_hand() -> None:
    corrected = holm(pd.Series([0.01, 0.04, 0.03, np.nan, 0.005]))
    assert corrected.tolist()[:3] == pytest.approx([0.03, 0.06, 0.06])
    assert np.isnan(corrected[3])
    assert corrected[4] == pytest.approx(0.02)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_between_p_and_bonferroni_and_keeps_the_order(p: list[float]) -> None:
    corrected = holm(pd.Series(p))
    assert (corrected >= np.array(p)).all()
    assert (corrected <= np.minimum(1, np.array(p) * len(p)) + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(corrected.to_numpy()[order]) >= 0).all()


def test_verdicts_are_above_below_same_and_undecided() -> None:
    assert answers(known(5.0), known(-5.0), known(0.5), margin=3.0)["verdict"].tolist() == ["above", "below", "same"]
    assert answers(known(0.5))["verdict"].tolist() == ["undecided"]
    assert answers(known(7.0), null=7.5, margin=2.6)["verdict"].tolist() == ["same"]


def test_a_row_within_the_margin_is_the_same_even_if_it_differs() -> None:
    frame = answers(known(0.5, 0.1), margin=1.0)
    assert frame["p_holm"][0] < 0.05
    assert frame["verdict"].tolist() == ["same"]


def test_nothing_is_the_same_without_a_margin() -> None:
    assert answers(known(0.0, 1e-6), known(1e-9, 1e-6))["verdict"].tolist() == ["undecided", "undecided"]


def test_a_verdict_is_at_the_level_corrected_over_its_question() -> None:
    alone = answers(known(2.2))
    among_five = answers(known(2.2), *[known(0.0)] * 4)
    assert alone["verdict"].tolist() == ["above"]
    assert among_five["verdict"].tolist() == ["undecided"] * 5
    report = Report({})
    report.add("alpha", known(2.2), **WHERE, null=0.0)
    for i in range(4):
        report.add("beta", known(0.0), **WHERE, null=0.0, k=i)
    assert report.frame("alpha")["verdict"].tolist() == ["above"]


def test_an_undecided_row_says_what_it_would_find_among_those_that_are_left() -> None:
    frame = answers(known(0.5), known(1.0), known(9.0))
    assert frame["verdict"].tolist() == ["undecided", "undecided", "above"]
    assert frame["detectable"].tolist()[:2] == pytest.approx([2.2414 + 0.8416] * 2, abs=1e-3)  # 5% over two tests
    assert np.isnan(frame["detectable"][2])


def test_what_an_undecided_row_would_find_has_power_of_80_percent() -> None:
    """Draws of an effect of that size, in place of the undecided row, are found in 80% of cases after Holm."""
    of_one = answers(known(0.0), known(9.0), *[known(0.5)] * 3)
    effect = of_one["detectable"][0]
    drawn = effect + np.random.default_rng(0).standard_normal(2000)
    found = [answers(known(value), known(9.0), *[known(0.5)] * 3)["verdict"][0] == "above" for value in drawn[:400]]
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)


def test_an_effect_that_would_be_found_is_on_the_readers_scale() -> None:
    report = Report({})
    report.add("ratio", known(0.0, 0.1), **WHERE, null=0.0, show=np.exp)
    assert report.frame("ratio")["detectable"][0] == pytest.approx(np.exp(0.2802) - 1, rel=1e-3)


def test_without_an_interval_there_is_no_p_and_no_verdict() -> None:
    frame = answers(Estimate(5.0, df=np.nan), 5.0, margin=1.0)
    assert frame[["low", "high", "p", "p_holm"]].isna().all(axis=None)
    assert frame["verdict"].tolist() == ["", ""]


def test_a_number_that_few_documents_decide_has_an_interval_and_a_note_but_no_verdict() -> None:
    report = Report({})
    for i, deciding in enumerate((1.5, 3.97, 4.0)):
        number = Estimate(5.0, sampling=1.0, sampling_df=3 * deciding - 1, deciding=deciding)
        report.add("alpha", number, **WHERE, metric=f"rbp_{i + 1}", null=0.0, margin=20.0)
    frame = report.frame("alpha")
    assert frame["low"].notna().all()
    assert frame["p"].notna().tolist() == [False, False, True]
    assert frame["verdict"].tolist() == ["", "", "same"]
    assert len(report.notes) == 1
    assert all(part in report.notes[0] for part in ("RBP_1", "1.5", "RBP_2", "3.9"))
    assert "RBP_3" not in report.notes[0]


def test_a_number_that_nothing_is_asked_of_has_an_interval_and_no_verdict() -> None:
    frame = answers(known(5.0), null=None)
    assert frame["low"].notna().all()
    assert frame["p"].isna().all()
    assert frame["verdict"].tolist() == [""]


def test_shown_numbers_keep_their_order() -> None:
    report = Report({})
    report.add("error", known(0.0, 0.1), **WHERE, show=np.expm1)
    report.add("error", known(0.0, 0.1), **WHERE, show=lambda x: -x, k=1)
    frame = report.frame("error")
    assert frame["high"][0] == pytest.approx(np.expm1(0.196), rel=1e-3)
    assert (frame["low"] < frame["high"]).all()


def test_results_are_one_table_and_a_question_has_its_own_columns() -> None:
    report = Report({})
    report.add("alpha", known(1.0), **WHERE, metric="ce", beside={"A": 3.0, "sizes": 7})
    report.add("beta", 2.0, **WHERE, S=1e6, ends=(1.0, np.inf))
    assert list(report.results.columns[: len(COLUMNS)]) == COLUMNS
    assert report.questions == ["alpha", "beta"]
    shared = ["family", "dataset", "metric", "alpha", "low", "high", "p", "p_holm", "verdict", "detectable"]
    assert list(report.frame("alpha")) == [*shared, "A", "sizes"]
    assert report.frame("alpha")["sizes"].tolist() == [7]
    assert report.frame("alpha")["sizes"].dtype == "int64"
    assert (report.case_columns("beta"), report.beside_columns("beta")) == (["S"], [])
    assert report.beside_columns("alpha") == ["A", "sizes"]
    assert report.frame("beta")[["low", "high"]].to_numpy().tolist() == [[1.0, np.inf]]


def test_an_empty_report_has_the_columns() -> None:
    assert list(Report({}).results) == COLUMNS
    assert Report({}).frame("alpha").empty


def test_terms_have_titles_and_forms() -> None:
    report = Report({"delta": Term("to CE", "Δα vs. CE"), "held_out": Term("error", form="+.1%"), "R2": "share: of 1"})
    assert report.term("delta") == Term("to CE", "Δα vs. CE")
    assert report.term("held_out") == Term("error", "held out", "+.1%")
    assert report.term("R2").title == "R2"
    assert report.term("p_holm").meaning
    assert report.term("unheard") == Term("", "unheard")


def test_a_report_pickles() -> None:
    report = Report({"alpha": "exponent"}, headline="Better.")
    report.add("alpha", known(1.0), **WHERE, null=0.0)
    report.add("alpha", known(0.1), **WHERE, null=0.0, show=lambda x: 2 * x, k=1)
    copy = pickle.loads(pickle.dumps(report))
    pd.testing.assert_frame_equal(copy.results, report.results)
    assert copy.has_margin("alpha") is False
    with pytest.raises(ValueError, match="pickled"):
        copy.add("alpha", known(0.2), **WHERE, null=0.0, k=2)
    report.add("alpha", known(0.2), **WHERE, null=0.0, k=2)
    assert report.results["detectable"].notna().all()


def test_a_notebook_shows_the_answers_with_their_titles() -> None:
    report = Report({"gain": Term("what is <gained>", title="G", form=".1%")}, headline="A & B", notes=["Left out: c."])
    report.add("gain", Estimate(0.25, sampling=1e-4, sampling_df=50.0), family="a", dataset="d", null=0.0)
    html = report._repr_html_()
    assert "A &amp; B" in html
    assert "what is &lt;gained&gt;" in html
    assert "<th>G</th>" in html
    assert "25.0%" in html
    assert "Left out: c." in html
