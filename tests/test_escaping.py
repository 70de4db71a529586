"""A report's page and a notebook's display show hostile names as text, in every field."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib import pyplot

from rbptrack.analysis import Drawing, Report
from rbptrack.analysis.figures import svg
from rbptrack.api import ShownReport
from rbptrack.commands import list_, plan
from rbptrack.reporting.files import InlineFigure, inline
from rbptrack.reporting.page import Section, render
from rbptrack.sweep.plan import Plan
from tests.synthetic import changed, family_runs

HOSTILE = """<script>alert("x")</script><img src=x onerror='alert(1)'>"""


@pytest.fixture
def report() -> Report:
    figure, axes = pyplot.subplots()
    axes.plot([1, 2], [1, 2], label=HOSTILE)
    axes.set(title=HOSTILE, xlabel=HOSTILE)
    axes.legend()
    made = Report(notes=[HOSTILE], headline=HOSTILE)
    made.add_table(HOSTILE, pd.DataFrame({HOSTILE: [HOSTILE]}), {HOSTILE: HOSTILE}, caption=HOSTILE)
    made.drawings[HOSTILE] = Drawing(figure, HOSTILE)
    pyplot.close(figure)
    return made


def test_the_page_of_a_report(report: Report) -> None:
    whole = family_runs([1e3, 1e4, 1e5], alpha=0.1, a=3.0)
    texts = [name for name, kind in whole.frame.dtypes.items() if kind == "string"]
    frame = whole.frame.assign(**{name: HOSTILE + whole.frame[name].fillna("") for name in texts})
    drawn = {name: InlineFigure(inline(svg(one.figure)), one.caption) for name, one in report.drawings.items()}
    page = render(
        HOSTILE,
        changed(whole, frame),
        [Section(HOSTILE, HOSTILE, HOSTILE, report, drawn)],
        facts=[(HOSTILE, HOSTILE)],
        silent=[(HOSTILE, HOSTILE)],
        run_page="http://host/#/" + HOSTILE,
    )
    assert_text(page)


def test_what_a_notebook_shows(report: Report) -> None:
    shown = ShownReport(tables=report.tables, drawings=report.drawings, notes=report.notes)
    shown.title = HOSTILE
    assert_text(shown._repr_html_())


def assert_text(page: str) -> None:
    """The hostile text is there, and never as a tag."""
    assert page.count("&lt;script&gt;") > 5
    assert 'alert("x")</script' not in page
    assert "<img" not in page


def test_tables_in_markdown_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    name = "=cmd|'/c calc'!A1 <img onerror=alert(1)>"
    frame = family_runs([1e3, 1e4], alpha=0.1, a=3.0).frame.assign(family=name)
    list_._write(frame, ["family", "ce"], list_.ListConfig(format=list_.ListFormat.markdown, columns=["family"]), 2)
    rows = capsys.readouterr().out.splitlines()
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)
    assert "<img" not in rows[2]
    assert plan._csv([Plan(name, "d")]).splitlines()[1].startswith("'=cmd")
