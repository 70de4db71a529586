"""Reports: tables with a meaning for every column, and errors that say why nothing was found."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
import pandas as pd
import pytest

from rbptrack.analysis import Report
from rbptrack.analysis.findings import Finding, Reason, Remark, Verdict, corrected, within_margin
from rbptrack.analysis.lead import Lead
from rbptrack.analysis.rows import Alpha, Column, OfFamily
from rbptrack.base.words import some_of
from rbptrack.reporting.columns import readable
from rbptrack.reporting.telling import skipped, tell
from tests.synthetic import changed, family_runs

COLUMNS = {"b": "the second letter", "a": "the first"}


@dataclass(kw_only=True)
class LawRow(OfFamily):
    alpha: Alpha
    share: Annotated[float, Column("of the windows", title="share of windows", unit="%", form=".0%")]
    verdict: Annotated[Verdict, Column("whether it is odd")]


@dataclass
class Bare:
    share: float


def test_a_table_has_the_order_of_its_columns() -> None:
    report = Report()
    report.add_table("rows", [{"a": 1, "b": 2}, {"a": 3}], COLUMNS, caption="Two letters.")
    report.add_table("frame", pd.DataFrame({"a": [1]}), COLUMNS)
    table = report.tables["rows"]
    assert table.frame.to_csv(index=False) == "b,a\n2.0,1\n,3\n"
    assert (table.columns, table.caption) == (COLUMNS, "Two letters.")
    assert report.tables["frame"].frame.to_csv(index=False) == "b,a\n,1\n"


def test_without_rows_there_is_no_table() -> None:
    report = Report()
    report.add_table("none", iter(()), COLUMNS)
    report.add_table("empty", pd.DataFrame(columns=["a"]), COLUMNS)
    assert report.tables == {}


def test_a_column_without_a_meaning_is_a_fault_of_the_analyzer() -> None:
    with pytest.raises(ValueError, match="table t: no meaning is given for c"):
        Report().add_table("t", [{"a": 1, "c": 2}], COLUMNS)


def test_rows_are_a_table_whose_fields_say_what_its_columns_are() -> None:
    report = Report()
    report.add_rows("laws", [LawRow(dataset="wiki", family="opt", alpha=0.25, share=0.5, verdict=Verdict.NO)])
    table = report.tables["laws"]
    assert table.frame.to_csv(index=False) == "dataset,family,alpha,share,verdict\nwiki,opt,0.25,0.5,no\n"
    assert table.columns["share"] == "of the windows"
    assert [c.title for c in readable(table)] == ["dataset", "family", "α", "share of windows, %", "verdict"]
    assert [c.cells[0] for c in readable(table)] == ["wiki", "opt", "0.250", "50%", "no"]
    report.add_rows("none", iter(()))
    assert list(report.tables) == ["laws"]
    with pytest.raises(TypeError, match="Bare: no Column says what share means"):
        report.add_rows("bare", [Bare(share=0.5)])


def test_p_is_corrected_over_all_cases_of_a_question_before_a_verdict() -> None:
    asked = [Finding(question=q, case={}, p=p) for q, p in (("a", 0.01), ("a", 0.04), ("a", float("nan")), ("b", 0.04))]
    findings = corrected(asked, lambda one: Verdict.YES if one.p_corrected < 0.05 else Verdict.UNTOLD)
    assert [one.p_corrected for one in findings] == pytest.approx([0.02, 0.04, float("nan"), 0.04], nan_ok=True)
    assert [one.verdict for one in findings] == ["yes", "yes", "undecided", "yes"]
    assert corrected(asked[:1] * 6)[0].p_corrected == pytest.approx(0.06)


def test_findings_become_sentences_before_the_notes() -> None:
    """A question that rbptrack has no sentence for, as of others' plugins, is told plainly."""
    asked = Finding(question="is odd", case={"model": "m"}, estimate=0.5, low=0.25, high=1.0, verdict=Verdict.YES)
    report = Report(findings=[asked], notes=["A note of the author's."])
    tell(report)
    assert report.notes == ["is odd, m: yes, 0.5 (0.25 to 1).", "A note of the author's."]
    assert report.headline == "is odd, m: yes, 0.5 (0.25 to 1)"


def test_nothing_found_says_why() -> None:
    none = Report(notes=["One is broken.", "Two is small."]).nothing_found("none")
    assert str(none) == skipped(none) == "One is broken. Two is small."
    assert str(Report().nothing_found("no measurement to fit")) == "no measurement to fit"


def test_nothing_found_gives_each_reason_once() -> None:
    notes: list[str] = [Remark(f"m{i} needs 3 sizes.", Reason.FEW_SIZES, needed=3, there=1) for i in range(14)]
    none = Report(notes=notes).nothing_found("")
    assert str(none) == "m0 needs 3 sizes (13 more like this)."
    assert skipped(pickle.loads(pickle.dumps(none))) == "3 sizes needed and 1 there"


def test_counts_in_words() -> None:
    assert [some_of(n, 3, "case") for n in (0, 2, 3)] == ["none of 3 cases", "2 of 3 cases", "all 3 cases"]
    assert [some_of(n, 1, "case") for n in (0, 1)] == ["none of 1 case", "the one case"]


def test_tokens_are_shown_as_text_where_it_is_known() -> None:
    runs = family_runs([1e4], alpha=0.1, a=3.0)
    assert runs.token_texts(runs[0], [7]) == ["id 7"]
    named = changed(runs, token_texts=lambda _: {7: ' th"e\n'})
    assert named.token_texts(runs[0], np.array([7, 8])) == ['" th\\"e\\n"', "id 8"]


@dataclass(frozen=True, kw_only=True)
class Odd(Finding):
    question: str = "bends"
    count: int = 0

    @classmethod
    def say(cls, findings: Sequence[Self]) -> Iterator[str]:
        yield f"{sum(finding.count for finding in findings)} are odd."

    @classmethod
    def lead(cls, findings: Sequence[Self]) -> Lead:
        return Lead(sentence=next(cls.say(findings)), drawing="odd", order=7)


def test_findings_are_said_by_their_own_class_whatever_others_call_their_question() -> None:
    case = {"family": "f", "dataset": "d"}
    others = Finding(question="bends", case=case, verdict=Verdict.NO)
    report = Report(findings=[Odd(case=case, count=1), others, Odd(case=case, count=2)], overview=["table"])
    tell(report)
    assert report.notes == ["3 are odd.", "bends, f, d: no."]
    assert report.leads == [Lead(sentence="3 are odd.", drawing="odd", order=7)]
    assert report.overview == ["table", "odd"]


def test_same_needs_a_margin_and_an_interval_inside_it() -> None:
    inside = Odd(case={}, estimate=0.1, low=-0.1, high=0.3, margin=0.4, verdict=Verdict.SAME)
    for wrong in ({"margin": 0.2}, {"margin": float("nan")}, {"low": float("nan")}, {"null": 1.0}):
        with pytest.raises(ValueError, match="SAME needs an interval inside a margin"):
            replace(inside, **wrong)
        assert replace(inside, verdict=Verdict.UNTOLD, **wrong).verdict is Verdict.UNTOLD
    assert within_margin(Verdict.SAME, inside.interval, 0.2) is Verdict.UNTOLD
    assert within_margin(Verdict.SAME, inside.interval, 0.4) is Verdict.SAME
